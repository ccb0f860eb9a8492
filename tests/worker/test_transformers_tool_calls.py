"""Shipped transformers of tool calls: calls kept from the client, results made the state."""

from __future__ import annotations

from typing import Any

import pytest

from shared.protocol import events as ag
from shared.protocol.events import Event
from worker.agents import FilterToolCalls, RunContext, ToolResultToState, agent
from worker.agents.testing import record, recorded_context


def types(recorded: list[Event]) -> list[str]:
    return [event.type.value for event in recorded[1:]]


def called(call_id: str, name: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def two_calls(ctx: RunContext) -> None:
    for name in ("secret", "shown"):
        with ctx.tool_call(name, call_id=name) as call:
            call.args({"a": 1})
            call.encrypted("opaque")
            call.result("r")


# Filtering


@pytest.mark.parametrize(
    "factory",
    [FilterToolCalls.denying("secret", "other"), FilterToolCalls.allowing("shown")],
    ids=["deny", "allow"],
)
def test_a_refused_call_leaves_nothing_behind(factory):
    recorded = record(agent(two_calls, transformers=[factory]))
    assert types(recorded) == [
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "REASONING_ENCRYPTED_VALUE",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "RUN_FINISHED",
    ]
    assert {getattr(event, "tool_call_id", "shown") for event in recorded} == {"shown"}


def test_deny_refuses_also_what_is_allowed():
    ctx, recorded = recorded_context(transformers=[FilterToolCalls(allow=["a", "b"], deny=["b"])])
    for name in "abc":
        with ctx.tool_call(name):
            pass
    assert [event.tool_call_name for event in recorded if isinstance(event, ag.ToolCallStartEvent)] == ["a"]


def test_an_allowed_nothing_refuses_everything():
    ctx, recorded = recorded_context(transformers=[FilterToolCalls(allow=[])])
    with ctx.tool_call("a"):
        pass
    assert len(recorded) == 1


def test_the_chunks_of_a_refused_call_are_dropped_also_without_an_id():
    ctx, recorded = recorded_context(transformers=[FilterToolCalls(deny=["secret"])])
    ctx.emit(ag.ToolCallChunkEvent(tool_call_id="c", tool_call_name="secret", delta="{"))
    ctx.emit(ag.ToolCallChunkEvent(delta="}"))
    ctx.emit(ag.ToolCallChunkEvent(tool_call_id="d", tool_call_name="shown", delta="{"))
    ctx.emit(ag.ToolCallChunkEvent(delta="}"))
    assert [(event.tool_call_id, event.delta) for event in recorded[1:]] == [("d", "{"), (None, "}")]


def test_a_refused_call_is_not_left_to_the_client():
    def asks(ctx: RunContext) -> None:
        for name in ("secret", "shown"):
            with ctx.tool_call(name, call_id=name):
                pass

    def says_so(ctx: RunContext) -> None:
        asks(ctx)
        outcome = {"type": "success", "pendingToolCallIds": ["secret", "shown"]}
        ctx.emit(ag.run_finished(ctx.thread_id, ctx.run_id, outcome))

    for body in (asks, says_so):
        recorded = record(agent(body, transformers=[FilterToolCalls.denying("secret")]))
        assert recorded[-1].outcome.pending_tool_call_ids == ["shown"]


def test_a_refused_call_leaves_the_snapshots_too():
    messages = [
        {
            "id": "1",
            "role": "assistant",
            "content": "both",
            "toolCalls": [called("s", "secret"), called("v", "shown")],
        },
        {"id": "2", "role": "tool", "toolCallId": "s", "content": "r"},
        {"id": "3", "role": "tool", "toolCallId": "v", "content": "r"},
        {"id": "4", "role": "assistant", "toolCalls": [called("s2", "secret")]},
        {"id": "5", "role": "assistant", "content": "text", "toolCalls": [called("s3", "secret")]},
    ]
    ctx, recorded = recorded_context(transformers=[FilterToolCalls(deny=["secret"])])
    given = ag.MessagesSnapshotEvent.model_validate({"messages": messages})
    ctx.emit(given)
    kept = recorded[1].messages
    assert [message.id for message in kept] == ["1", "3", "5"]
    assert [call.id for call in kept[0].tool_calls] == ["v"]
    assert kept[2].tool_calls is None
    assert len(given.messages[0].tool_calls) == 2, "the given event is changed"


def test_a_subagent_is_not_attributed_to_a_refused_call():
    ctx, recorded = recorded_context(transformers=[FilterToolCalls(deny=["secret"])])
    with ctx.tool_call("secret") as call, ctx.subagent("s", parent_tool_call_id=call.id):
        pass
    assert recorded[1].parent_tool_call_id is None


# A result as the state


def finds(value: Any, name: str = "find"):
    def body(ctx: RunContext) -> None:
        with ctx.tool_call(name) as call:
            call.result(value)

    return body


def test_a_result_becomes_the_state_after_it():
    recorded = record(agent(finds({"a": 1}), transformers=[ToolResultToState.snapshot("find")]))
    assert types(recorded)[-3:] == ["TOOL_CALL_RESULT", "STATE_SNAPSHOT", "RUN_FINISHED"]
    assert recorded[-2].snapshot == {"a": 1}


def test_a_result_becomes_a_change_of_the_state():
    patch = [{"op": "add", "path": "/a", "value": 1}]
    recorded = record(agent(finds(patch), transformers=[ToolResultToState.delta("find")]))
    assert [operation.model_dump() for operation in recorded[-2].delta] == patch


def test_the_state_may_come_instead_of_the_result_and_the_call_is_not_left_to_the_client():
    recorded = record(agent(finds([1]), transformers=[ToolResultToState.snapshot("find", replacing=True)]))
    assert types(recorded)[-3:] == ["TOOL_CALL_END", "STATE_SNAPSHOT", "RUN_FINISHED"]
    assert recorded[-1].outcome.pending_tool_call_ids is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("snapshot", "no JSON"),
        ("snapshot", "NaN"),
        ("snapshot", "[" * 200 + "]" * 200),
        ("delta", '{"a": 1}'),
        ("delta", '[{"op": "add"}]'),
        ("delta", '[{"op": "add", "path": "a", "value": 1}]'),
    ],
)
def test_what_does_not_parse_passes_untouched(kind, value):
    made = ToolResultToState("find", kind, replacing=True)
    recorded = record(finds(value), transformers=[made])
    assert types(recorded)[-2:] == ["TOOL_CALL_RESULT", "RUN_FINISHED"]
    assert recorded[-2].content == value


def test_another_tools_result_is_left_alone():
    recorded = record(finds("{}", "other"), transformers=[ToolResultToState("find", "snapshot")])
    assert "STATE_SNAPSHOT" not in types(recorded)


def test_the_text_parts_of_a_result_are_read_as_one():
    parts = [ag.TextPart(type="text", text='{"a"'), ag.TextPart(type="text", text=": 1}")]
    recorded = record(finds(parts), transformers=[ToolResultToState("find", "snapshot")])
    assert recorded[-2].snapshot == {"a": 1}


def test_the_state_belongs_to_whom_the_result_belongs():
    def body(ctx: RunContext) -> None:
        with ctx.subagent("s"):
            finds("{}")(ctx)

    recorded = record(body, transformers=[ToolResultToState("find", "snapshot")])
    state = next(event for event in recorded if isinstance(event, ag.StateSnapshotEvent))
    assert state.subagent_run_id == "run-sub-1"


def test_calls_are_known_from_chunks_and_snapshots_too():
    ctx, recorded = recorded_context(transformers=[ToolResultToState("find", "snapshot", replacing=True)])
    message = {"id": "1", "role": "assistant", "toolCalls": [called("s", "find")]}
    ctx.emit(ag.MessagesSnapshotEvent.model_validate({"messages": [message]}))
    ctx.emit(ag.ToolCallChunkEvent(tool_call_id="c", tool_call_name="find", delta="{}"))
    for call in "sc":
        ctx.tool_result(call, {"from": call})
    assert [event.snapshot["from"] for event in recorded if isinstance(event, ag.StateSnapshotEvent)] == [
        "s",
        "c",
    ]
