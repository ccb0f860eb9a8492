"""How much of its subagents a run shows."""

from __future__ import annotations

import pytest

from shared.protocol import events as ag
from shared.protocol.events import Event
from tests.client_rules import Checker, Expander
from worker.agents import Interrupt, RunContext, SubagentVisibility, Timestamps, agent
from worker.agents.testing import record, recorded_context


def types(recorded: list[Event]) -> list[str]:
    return [event.type.value for event in recorded[1:]]


def tags(recorded: list[Event]) -> set[str | None]:
    return {getattr(event, "subagent_run_id", None) for event in recorded}


def check(recorded: list[Event]) -> None:
    """The official client takes it."""
    expand, checker = Expander(), Checker()
    for event in recorded:
        for one in expand(event.model_dump(mode="json", by_alias=True, exclude_none=True)):
            checker(one)


def crew(ctx: RunContext) -> None:
    with ctx.step("work"), ctx.subagent("helper"):
        ctx.think("hm")
        with ctx.step("work"):
            ctx.say("inside")
        with ctx.tool_call("t") as call:
            call.result("r")
        ctx.activity("PLAN", {})
        ctx.custom("n", 1)
        ctx.update_state(found=1)
        with ctx.subagent("deeper"):
            ctx.say("deep inside")
    ctx.say("outside")


def test_attributed_is_what_happens_without_it():
    entry = agent(crew, transformers=[SubagentVisibility.attributed])
    assert record(entry) == record(crew)


def test_inline_shows_the_work_as_the_agents_own():
    recorded = record(agent(crew, transformers=[SubagentVisibility.inline]))
    assert tags(recorded) == {None}
    assert [name for name in types(recorded) if name.startswith("SUBAGENT")] == []
    assert [event.delta for event in recorded if isinstance(event, ag.TextMessageContentEvent)] == [
        "inside",
        "deep inside",
        "outside",
    ]
    # The same step of agent and subagent is one step, from the first start to the last end.
    assert types(recorded).count("STEP_STARTED") == types(recorded).count("STEP_FINISHED") == 1
    assert recorded[-1].outcome.type == "success"
    check(recorded)


def test_inline_keeps_the_chunks_of_two_subagents_apart():
    ctx, recorded = recorded_context(transformers=[SubagentVisibility.inline()])
    for tag, message in (("s1", "m1"), ("s2", "m2")):
        ctx.emit(ag.SubagentStartedEvent(subagent_run_id=tag, name=tag))
        ctx.emit(ag.TextMessageChunkEvent(message_id=message, delta="a", subagent_run_id=tag))
    for tag in ("s1", "s2"):
        ctx.emit(ag.TextMessageChunkEvent(delta="b", subagent_run_id=tag))
    assert [(event.message_id, event.delta) for event in recorded[1:]] == [
        ("m1", "a"),
        ("m2", "a"),
        ("m1", "b"),
        ("m2", "b"),
    ]


def test_inline_says_again_what_a_call_of_chunks_is_called():
    ctx, recorded = recorded_context(transformers=[SubagentVisibility.inline()])
    for tag in ("s1", "s2"):
        ctx.emit(
            ag.ToolCallChunkEvent(tool_call_id=tag, tool_call_name=f"t-{tag}", delta="{", subagent_run_id=tag)
        )
    ctx.emit(ag.ToolCallChunkEvent(delta="}", subagent_run_id="s1"))
    assert (recorded[-1].tool_call_id, recorded[-1].tool_call_name) == ("s1", "t-s1")
    check(recorded)


def test_hidden_shows_nothing_but_the_state():
    recorded = record(agent(crew, transformers=[SubagentVisibility.hidden]))
    assert types(recorded) == [
        "STEP_STARTED",
        "STATE_SNAPSHOT",
        "STEP_FINISHED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert tags(recorded) == {None}


@pytest.fixture
def hidden():
    ctx, recorded = recorded_context(transformers=[SubagentVisibility.hidden()])
    ctx.emit(ag.SubagentStartedEvent(subagent_run_id="s", name="s"))
    return ctx, recorded


def test_hidden_drops_continuations_that_carry_no_tag(hidden):
    ctx, recorded = hidden
    ctx.emit(ag.TextMessageStartEvent(message_id="m", subagent_run_id="s"))
    ctx.emit(ag.TextMessageContentEvent(message_id="m", delta="x"))
    ctx.emit(ag.TextMessageEndEvent(message_id="m"))
    ctx.emit(ag.ReasoningMessageChunkEvent(message_id="r", delta="x", subagent_run_id="s"))
    ctx.emit(ag.ReasoningMessageChunkEvent(delta="x"))
    ctx.emit(ag.ReasoningEncryptedValueEvent(subtype="message", entity_id="r", encrypted_value="v"))
    ctx.emit(ag.ActivitySnapshotEvent(message_id="a", activity_type="PLAN", content={}, subagent_run_id="s"))
    ctx.emit(ag.ActivityDeltaEvent(message_id="a", activity_type="PLAN", patch=[]))
    assert len(recorded) == 1


def test_hidden_drops_calls_that_belong_by_their_message(hidden):
    ctx, recorded = hidden
    ctx.emit(ag.TextMessageStartEvent(message_id="m", subagent_run_id="s"))
    ctx.emit(ag.ToolCallStartEvent(tool_call_id="c", tool_call_name="t", parent_message_id="m"))
    ctx.emit(ag.ToolCallArgsEvent(tool_call_id="c", delta="{}"))
    ctx.emit(ag.ToolCallEndEvent(tool_call_id="c"))
    ctx.emit(ag.ReasoningEncryptedValueEvent(subtype="tool-call", entity_id="c", encrypted_value="v"))
    ctx.emit(ag.ToolCallResultEvent(message_id="r", tool_call_id="c", content="x"))
    ctx.emit(ag.ToolCallChunkEvent(tool_call_id="d", tool_call_name="t", delta="{", subagent_run_id="s"))
    ctx.emit(ag.ToolCallChunkEvent(delta="}"))
    assert len(recorded) == 1


def test_hidden_shows_the_result_of_a_shown_call_whoever_executed_it(hidden):
    ctx, recorded = hidden
    with ctx.tool_call("t") as call:
        pass
    ctx.emit(ag.ToolCallResultEvent(message_id="r", tool_call_id=call.id, content="x", subagent_run_id="s"))
    assert recorded[-1] == ag.ToolCallResultEvent(message_id="r", tool_call_id=call.id, content="x")
    assert ctx.sink.verifier.unanswered_calls == ()


def test_hidden_takes_the_messages_of_subagents_out_of_snapshots(hidden):
    ctx, recorded = hidden
    ctx.emit(ag.TextMessageStartEvent(message_id="told", subagent_run_id="s"))
    call = {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    messages = [
        {"id": "own", "role": "assistant", "content": "x"},
        {"id": "told", "role": "assistant", "content": "x"},
        {"id": "theirs", "role": "assistant", "toolCalls": [call], "subagentRunId": "s"},
        {"id": "result", "role": "tool", "toolCallId": "c", "content": "x"},
    ]
    ctx.emit(ag.MessagesSnapshotEvent.model_validate({"messages": messages}))
    assert [message.id for message in recorded[-1].messages] == ["own"]
    ctx.emit(ag.ToolCallResultEvent(message_id="r", tool_call_id="c", content="x"))
    assert recorded[-1].type.value == "MESSAGES_SNAPSHOT"


def test_hidden_keeps_an_empty_id_for_a_subagent():
    ctx, recorded = recorded_context(transformers=[SubagentVisibility.hidden()])
    ctx.emit(ag.SubagentStartedEvent(subagent_run_id="", name="s"))
    ctx.emit(ag.CustomEvent(name="n", value=1, subagent_run_id=""))
    assert len(recorded) == 1


@pytest.mark.parametrize("factory", [SubagentVisibility.inline, SubagentVisibility.hidden])
def test_interrupts_stay_and_lose_their_tag(factory):
    def asks(ctx: RunContext) -> Interrupt:
        with ctx.subagent("s") as helper:
            helper.suspend(["i"])
        return Interrupt(ag.Interrupt(id="i", reason="r", subagent_run_id=helper.id))

    recorded = record(agent(asks, transformers=[factory]))
    assert recorded[-1].outcome.interrupts == [ag.Interrupt(id="i", reason="r")]


@pytest.mark.parametrize("factory", [SubagentVisibility.inline, SubagentVisibility.hidden])
def test_what_a_failing_subagent_left_open_is_closed(factory):
    def fails(ctx: RunContext) -> None:
        ctx.subagent("s").open()
        ctx.message().open()
        ctx.tool_call("t").open()
        raise RuntimeError

    recorded = record(agent(fails, transformers=[factory]))
    check(recorded)
    assert recorded[-1].code == "AGENT_ERROR"
    assert tags(recorded) == {None}


def test_timestamps_leave_a_time_that_the_agent_gave():
    ctx, recorded = recorded_context(transformers=[Timestamps(lambda: 7)])
    ctx.emit(ag.CustomEvent(name="n", value=1, timestamp=3))
    ctx.custom("n", 1)
    assert [event.timestamp for event in recorded[1:]] == [3, 7]


def test_timestamps_are_milliseconds_since_the_epoch():
    ctx, recorded = recorded_context(transformers=[Timestamps()])
    ctx.custom("n", 1)
    assert 1.7e12 < recorded[1].timestamp < 1e13
