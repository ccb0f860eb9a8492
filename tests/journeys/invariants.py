"""What holds for every run that has ended, whatever happened to it on the way."""

from __future__ import annotations

import re
from typing import Any

from tests.journeys.sse_stream import Event, Stream
from tests.journeys.stack import Run, Stack


def check_invariants(stack: Stack, run: Run, *, most_starts: int = 1) -> Event:
    """What must hold for every ended run; gives its terminal event.

    One RUN_STARTED first and one terminal event last, on every stream and again when read later; numbers
    without holes; the record and the terminal event agree and stay; the body started at most ``most_starts``
    times; cancelled only after an accepted cancel, transport_timeout only after a provider's timeout.
    """
    record = run.recorded()
    log = run.watch(0)
    terminal = log.finish()
    _check_shape(run, log, terminal, record)
    for stream in [run.stream, *run.watched]:
        if stream is not None and stream.items and stream is not log:
            first = stream.seqs[0] or 1
            assert stream.items == log.items[first - 1 : first - 1 + len(stream.items)], (
                "a stream that differs from the log"
            )
    _check_agreement(run, terminal, record)
    assert run.effects().count("START") <= most_starts, run.effects()
    assert run.record() == record, "the record changed after the ending"
    assert run.watch(0).finish() == terminal
    return terminal


def _check_shape(run: Run, log: Stream, terminal: Event, record: dict[str, Any]) -> None:
    types = log.types
    assert log.seqs == list(range(1, len(types) + 1)), log.seqs
    assert record["last_seq"] == len(types), (record, types[-3:])
    assert types[0] == "RUN_STARTED", types[:3]
    assert types.count("RUN_STARTED") == 1
    assert [name for name in types if name in {"RUN_FINISHED", "RUN_ERROR"}] == [terminal["type"]], types
    started = log.events[0]
    assert (started["threadId"], started["runId"], started["protocolVersion"]) == (
        run.thread_id,
        run.run_id,
        "1.0",
    )
    opened = sum(name == "TEXT_MESSAGE_START" for name in types)
    assert opened == sum(name == "TEXT_MESSAGE_END" for name in types), types


def _check_agreement(run: Run, terminal: Event, record: dict[str, Any]) -> None:
    if terminal["type"] == "RUN_ERROR":
        assert record["status"] == "failed", record
        assert record["code"] == terminal["code"], (record, terminal)
        assert re.fullmatch(r"\S.*", terminal["message"]), terminal
    else:
        kind = terminal.get("outcome", {}).get("type", "success")
        expected = {"success": "succeeded", "interrupt": "interrupted", "cancelled": "cancelled"}[kind]
        assert record["status"] == expected, (record, terminal)
        assert "code" not in record
        assert (terminal["threadId"], terminal["runId"]) == (run.thread_id, run.run_id)
    if record["status"] == "cancelled" or record.get("code") == "CANCELLED":
        assert run.cancel_accepted, "cancelled, and nobody asked"
    if record.get("code") == "transport_timeout":
        assert run.provider_timed_out, "a provider's timeout that none had"
