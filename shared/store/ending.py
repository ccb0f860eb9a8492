"""Ends runs: the terminal event of an outcome, and the ending of a run from outside its execution."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from shared.protocol import events, sse
from shared.protocol.calls import unknown_calls
from shared.protocol.verifier import VerificationError, Verifier
from shared.runs.identity import RunIdentity
from shared.runs.lifecycle import Status
from shared.runs.outcome import FailureCode, Outcome
from shared.store.answers import Fence, Finish
from shared.store.log import EventLog
from shared.store.runs import RunStore

_TRIES = 5


def terminal_event(identity: RunIdentity, outcome: Outcome) -> events.Event:
    """RUN_ERROR for a failure, RUN_FINISHED with the outcome otherwise (AG-UI 1.0, run outcomes)."""
    if outcome.status is Status.FAILED:
        message = outcome.message or ""
        if outcome.incident:
            message = f"{message} (incident {outcome.incident})"
        return events.run_error(message, str(outcome.code))
    return events.run_finished(identity.thread_id, identity.run_id, outcome.wire, result=outcome.result)


def closing_frames(
    verifier: Verifier, identity: RunIdentity, outcome: Outcome, first_seq: int
) -> list[bytes]:
    """Closes what is open, innermost first, then the terminal event; seqs count on from ``first_seq``."""
    code = str(outcome.code or FailureCode.CANCELLED)
    closers = [] if verifier.terminated else verifier.closing_events(subagent_code=code)
    return [
        sse.frame(first_seq + index, events.dump(event))
        for index, event in enumerate([*closers, terminal_event(identity, outcome)])
    ]


def outcome_of(ending: str) -> Outcome:
    """The outcome that a fence's ending names: ``cancelled`` or a failure code."""
    return Outcome.cancelled() if ending == Status.CANCELLED else Outcome.failed(FailureCode(ending))


def observed(frames: Sequence[bytes], run_input: bytes) -> Verifier:
    """A lenient verifier after these frames of a log, for closing what they left open under its owner."""
    messages: Sequence[events.Message] = ()
    with suppress(ValueError):
        messages = events.parse_input(run_input, max_depth=events.ACCEPTED_DEPTH).messages
    verifier = Verifier(messages, enforce=False)
    for frame in frames:
        # What cannot be read any more opened nothing that anybody could see.
        with suppress(ValueError, VerificationError):
            verifier.observe(events.parse(sse.data_of(frame)))
    return verifier


def end_fenced(
    runs: RunStore, log: EventLog, fence: Fence, identity: RunIdentity, outcome: Outcome | None = None
) -> Finish:
    """Folds the log and records the ending of a fenced run; raises ``StoreError`` when Redis does not answer.

    Without ``outcome`` the one that the fence names is recorded. The record of a run that was executed
    lists the tool calls whose effect nobody can tell any more.
    """
    ending = outcome or outcome_of(fence.ending)
    record = runs.get(fence.key)
    executed = record is not None and "started_at" in record.times
    run_input = (runs.input_of(fence.key) or b"") if executed else b""
    answering = record.answering if record else ()
    finish = Finish("gone")
    for _ in range(_TRIES):
        frames = log.read_all(fence.key)
        verifier = observed(frames, run_input)
        calls = unknown_calls(run_input, frames, answering) if executed else []
        first_seq = len(frames) + 1
        finish = runs.finish(
            fence.key,
            fence.execution,
            first_seq=first_seq,
            outcome=ending,
            frames=closing_frames(verifier, identity, ending, first_seq),
            extra={"unknown_calls": json.dumps(calls)} if calls else {},
        )
        if finish.state != "gap":
            break
    return finish


def end_from_outside(
    runs: RunStore, log: EventLog, key: str, *, ending: str, guard: str, value: str = "", value2: str = ""
) -> Finish | None:
    """Fences a run when ``guard`` holds and ends it; None when the guard did not hold."""
    record = runs.get(key)
    fence = runs.fence(key, ending=ending, guard=guard, value=value, value2=value2)
    if fence is None or record is None:
        return None
    return end_fenced(runs, log, fence, record.identity)
