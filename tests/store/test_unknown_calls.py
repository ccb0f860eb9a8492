"""What the record says of tool calls that a lost or forced ending left without a result."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.protocol import events, sse
from shared.protocol.calls import unknown_calls
from shared.runs.identity import RunIdentity
from shared.runs.outcome import FailureCode, Outcome
from shared.store.answers import Claim
from shared.store.ending import end_fenced, end_from_outside, terminal_event
from shared.store.log import Batch
from tests.store.conftest import Bench

Wire = dict[str, Any]


def call(number: int, name: str = "book", *, ended: bool = True, result: bool = False) -> list[Wire]:
    told: list[Wire] = [{"type": "TOOL_CALL_START", "toolCallId": f"c{number}", "toolCallName": name}]
    if ended:
        told.append({"type": "TOOL_CALL_END", "toolCallId": f"c{number}"})
    if result:
        told.append(
            {
                "type": "TOOL_CALL_RESULT",
                "messageId": f"m{number}",
                "toolCallId": f"c{number}",
                "content": "done",
            }
        )
    return told


def frames(told: list[Wire], first: int = 2) -> tuple[bytes, ...]:
    return tuple(sse.frame(first + index, json.dumps(event).encode()) for index, event in enumerate(told))


def executed(bench: Bench, *told: Wire, run_input: Wire | None = None) -> Claim:
    identity = RunIdentity("ann", "t1", "r1")
    document = {"threadId": "t1", "runId": "r1", "messages": [], **(run_input or {})}
    started = sse.frame(1, events.dump(events.run_started("t1", "r1")))
    bench.store.runs.accept(
        identity, agent="echo", run_input=json.dumps(document).encode(), started_frame=started
    )
    claim = bench.claim(identity.key)
    assert claim is not None
    if told:
        answer = bench.store.log.append(Batch(claim.key, claim.execution, 2, frames(list(told))))
        assert answer.state == "ok"
    return claim


def lost(bench: Bench, claim: Claim, ending: str = FailureCode.WORKER_LOST) -> Wire:
    finish = end_from_outside(bench.store.runs, bench.store.log, claim.key, ending=str(ending), guard="any")
    assert finish is not None
    assert finish.recorded
    record = bench.store.runs.get(claim.key)
    assert record is not None
    return record.public()


def test_a_lost_run_lists_calls_that_were_open_or_had_no_result(bench: Bench):
    claim = executed(bench, *call(1, result=True), *call(2, "pay"), *call(3, "search", ended=False))
    assert lost(bench, claim)["unknown_calls"] == [
        {"id": "c2", "name": "pay"},
        {"id": "c3", "name": "search"},
    ]


@pytest.mark.parametrize(
    "ending",
    ["cancelled", FailureCode.WORKER_SHUTDOWN, FailureCode.DEADLINE_EXCEEDED, FailureCode.WORKER_LOST],
)
def test_every_ending_from_outside_lists_them(bench: Bench, ending: str):
    assert lost(bench, executed(bench, *call(1)), ending)["unknown_calls"] == [{"id": "c1", "name": "book"}]


def test_a_forced_stop_lists_them(bench: Bench):
    claim = executed(bench, *call(1))
    answer = bench.store.runs.terminate(claim.key, by="olga")
    assert answer.fence is not None
    end_fenced(bench.store.runs, bench.store.log, answer.fence, claim.identity)
    record = bench.store.runs.get(claim.key)
    assert (record.status, record.unknown_calls) == ("cancelled", [{"id": "c1", "name": "book"}])


def test_the_clients_own_tools_are_left_out(bench: Bench):
    tool = {"name": "draw", "description": "", "parameters": {}}
    claim = executed(bench, *call(1, "draw"), run_input={"tools": [tool]})
    assert "unknown_calls" not in lost(bench, claim)


def test_without_any_the_field_is_absent(bench: Bench):
    assert "unknown_calls" not in lost(bench, executed(bench, *call(1, result=True)))


def test_a_call_told_in_chunks_counts(bench: Bench):
    chunks = [
        {"type": "TOOL_CALL_CHUNK", "toolCallId": "c1", "toolCallName": "book", "delta": "{"},
        {"type": "TOOL_CALL_CHUNK", "delta": "}"},
    ]
    assert lost(bench, executed(bench, *chunks))["unknown_calls"] == [{"id": "c1", "name": "book"}]


def test_a_workers_own_ending_lists_nothing(bench: Bench):
    claim = executed(bench, *call(1))
    outcome = Outcome.succeeded()
    frame = sse.frame(4, events.dump(terminal_event(claim.identity, outcome)))
    bench.store.runs.finish(claim.key, claim.execution, first_seq=4, outcome=outcome, frames=[frame])
    assert bench.store.runs.get(claim.key).unknown_calls is None


PENDING: Wire = {
    "messages": [
        {
            "id": "a1",
            "role": "assistant",
            "toolCalls": [
                {"id": "c1", "type": "function", "function": {"name": "transfer", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
            ],
        },
        {"id": "m2", "role": "tool", "toolCallId": "c2", "content": "seen"},
    ],
    "resume": [{"interruptId": "i1", "status": "resolved", "payload": True}],
}


def resuming(**changed: Any) -> bytes:
    return json.dumps({"threadId": "t", "runId": "r", **PENDING, **changed}).encode()


def test_a_granted_call_of_an_earlier_run_counts_until_it_has_its_result():
    granted = [{"id": "c1", "name": "transfer"}]
    assert unknown_calls(resuming(), [], {"i1"}) == granted
    result = {"type": "TOOL_CALL_RESULT", "messageId": "m1", "toolCallId": "c1", "content": "done"}
    assert unknown_calls(resuming(), frames([result]), {"i1"}) == []


@pytest.mark.parametrize("answering", [set(), {"another"}])
def test_an_answer_to_nothing_grants_no_call(answering: set[str]):
    assert unknown_calls(resuming(), [], answering) == []


def test_a_refused_call_of_an_earlier_run_had_no_effect():
    refused = resuming(resume=[{"interruptId": "i1", "status": "cancelled"}])
    assert unknown_calls(refused, [], {"i1"}) == []


def test_what_cannot_be_read_is_passed_over():
    told = [b"nonsense", *frames(call(1), 1), sse.frame(3, b"[1]"), sse.frame(4, b"{")]
    assert unknown_calls(b"{}", told) == [{"id": "c1", "name": "book"}]


def test_a_run_that_nobody_executed_has_no_effects(bench: Bench):
    run_input = {"threadId": "t1", "runId": "r1", **PENDING}
    identity = RunIdentity("ann", "t1", "r1")
    started = sse.frame(1, events.dump(events.run_started("t1", "r1")))
    bench.store.runs.accept(
        identity, agent="echo", run_input=json.dumps(run_input).encode(), started_frame=started
    )
    finish = end_from_outside(
        bench.store.runs, bench.store.log, identity.key, ending="queue_timeout", guard="any"
    )
    assert finish.recorded
    assert bench.store.runs.get(identity.key).unknown_calls is None
