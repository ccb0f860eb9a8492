"""What a record keeps besides its lifecycle: the trace, the calls of models, when the agent first spoke."""

from __future__ import annotations

import json

import pytest

from shared.protocol import events, sse
from shared.runs.identity import RunIdentity
from shared.runs.outcome import Outcome
from shared.store import keys
from shared.store.ending import terminal_event
from tests.store.conftest import Bench

TRACE = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.mark.parametrize("traceparent", [TRACE, None])
def test_the_trace_context_is_in_the_record_and_in_every_claim(bench: Bench, traceparent: str | None):
    identity = RunIdentity("ann", "t1", "r1")
    started = sse.frame(1, events.dump(events.run_started("t1", "r1")))
    bench.store.runs.accept(
        identity, agent="echo", run_input=b"{}", started_frame=started, traceparent=traceparent
    )
    assert bench.claim(identity.key).traceparent == traceparent
    record = bench.store.runs.get(identity.key)
    assert record.traceparent == traceparent
    assert "traceparent" not in record.public()
    assert ("traceparent" in record.operator_view()) == (traceparent is not None)


def ended(bench: Bench, claim, first: int, *frames: bytes, **extra: str):
    outcome = Outcome.succeeded()
    terminal = sse.frame(first + len(frames), events.dump(terminal_event(claim.identity, outcome)))
    finish = bench.store.runs.finish(
        claim.key, claim.execution, first_seq=first, outcome=outcome, frames=[*frames, terminal], extra=extra
    )
    assert finish.recorded
    return bench.store.runs.get(claim.key)


def test_further_fields_come_with_the_ending(bench: Bench):
    calls = [{"name": "chat", "at": 5, "ms": 20, "failed": True}]
    record = ended(bench, bench.running(), 2, provider_calls=json.dumps(calls))
    assert record.provider_calls == record.operator_view()["provider_calls"] == calls
    assert "provider_calls" not in record.public()


def test_without_any_they_are_absent(bench: Bench):
    record = ended(bench, bench.running(), 2)
    assert (record.provider_calls, record.calling, record.first_event_at) == (None, None, None)
    assert not {"provider_calls", "calling", "first_event_at"} & record.operator_view().keys()


def test_a_call_under_way_is_shown_until_the_ending(bench: Bench):
    claim = bench.running()
    bench.store.client.hset(keys.record(claim.key), "calling", json.dumps({"name": "chat", "since": 7}))
    assert bench.store.runs.get(claim.key).calling == {"name": "chat", "since": 7}
    assert ended(bench, claim, 2).calling is None


def test_a_first_event_that_comes_with_the_ending_is_dated(bench: Bench):
    claim = bench.running()
    word = sse.frame(2, events.dump(events.CustomEvent(name="word", value="a")))
    record = ended(bench, claim, 2, word)
    assert record.first_event_at == record.times["finished_at"]
