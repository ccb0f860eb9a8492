"""Blocks open once, close once, and close however their scope is left."""

from __future__ import annotations

import pytest

from shared.protocol import events as ag
from shared.protocol.events import EventType, SerializationError
from shared.protocol.verifier import Rule, VerificationError
from shared.runs.outcome import StopCause
from worker.agents import AgentError, Cancelled, ProtocolError
from worker.agents.testing import recorded_context


def types(recorded) -> list[str]:
    return [event.type.value for event in recorded[1:]]


@pytest.fixture
def run():
    return recorded_context()


def test_a_message_opens_speaks_and_closes(run):
    ctx, recorded = run
    with ctx.message() as message:
        message.delta("Hello")
    assert recorded[1:] == [
        ag.TextMessageStartEvent(message_id="run-msg-1", role="assistant"),
        ag.TextMessageContentEvent(message_id="run-msg-1", delta="Hello"),
        ag.TextMessageEndEvent(message_id="run-msg-1"),
    ]


def test_an_explicit_end_is_the_only_one(run):
    ctx, recorded = run
    with ctx.message() as message:
        message.end()
        message.end()
    assert types(recorded) == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_END"]


def test_a_block_may_be_opened_and_ended_without_a_scope(run):
    ctx, recorded = run
    message = ctx.message().open()
    message.open().delta("x")
    message.end()
    assert types(recorded) == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]


def test_an_unopened_block_closes_nothing(run):
    ctx, recorded = run
    ctx.message().end()
    assert types(recorded) == []


def test_an_exception_closes_everything_innermost_first_and_goes_on(run):
    ctx, recorded = run
    with pytest.raises(KeyError), ctx.step("work"), ctx.message():
        raise KeyError("boom")
    assert types(recorded)[-2:] == ["TEXT_MESSAGE_END", "STEP_FINISHED"]


def test_an_empty_delta_is_not_sent(run):
    ctx, recorded = run
    with ctx.message() as message:
        message.delta("")
    assert "TEXT_MESSAGE_CONTENT" not in types(recorded)


@pytest.mark.parametrize("kind", ["message", "reasoning", "tool_call"])
def test_a_character_cut_in_two_is_held_back_until_it_is_whole(run, kind):
    ctx, recorded = run
    block = ctx.tool_call("t") if kind == "tool_call" else getattr(ctx, kind)()
    with block:
        write = block.args if kind == "tool_call" else block.delta
        write("a\ud83d")
        write("\ude00b")
    assert [event.delta for event in recorded if hasattr(event, "delta")] == ["a", "😀b"]


def test_half_a_character_at_the_end_becomes_a_replacement(run):
    ctx, recorded = run
    with ctx.message() as message:
        message.delta("a\ud83d")
    assert [event.delta for event in recorded if hasattr(event, "delta")] == ["a", "\ufffd"]


# After the trip


def test_terminators_refused_after_the_trip_are_swallowed(run):
    ctx, recorded = run
    with ctx.step("work"), ctx.message(), ctx.tool_call("t"), ctx.reasoning(), ctx.subagent("s"):
        ctx.token.trip(StopCause.CLIENT)
    assert not [name for name in types(recorded) if "END" in name or "FINISHED" in name]


def test_an_explicit_end_after_the_trip_is_swallowed_and_delivers_it(run):
    ctx, _ = run
    message = ctx.message().open()
    ctx.token.trip(StopCause.CLIENT)
    message.end()
    assert ctx.token.delivered


def test_the_refused_emit_and_not_the_refused_terminator_is_what_is_raised(run):
    ctx, _ = run
    message = ctx.message().open()
    ctx.token.trip(StopCause.CLIENT)
    with pytest.raises(Cancelled), message:
        message.delta("x")


def test_a_run_that_the_agent_ended_inside_a_scope_stays_ended(run):
    ctx, recorded = run
    with ctx.message():
        ctx.emit(ag.run_error("enough", "OWN"))
    assert recorded[-1].type is EventType.RUN_ERROR


def test_a_message_that_was_closed_by_hand_is_told(run):
    ctx, _ = run
    with pytest.raises(VerificationError) as refused, ctx.message() as message:
        ctx.emit(ag.TextMessageEndEvent(message_id=message.id))
    assert refused.value.rule is Rule.NOT_OPEN


# Reasoning


def test_reasoning_opens_and_closes_span_and_message_under_one_id(run):
    ctx, recorded = run
    with ctx.reasoning() as thought:
        thought.delta("hm")
        thought.encrypted("opaque")
    assert types(recorded) == [
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_ENCRYPTED_VALUE",
        "REASONING_MESSAGE_END",
        "REASONING_END",
    ]
    assert {getattr(event, "message_id", thought.id) for event in recorded[1:]} == {thought.id}


def test_the_span_is_closed_also_when_closing_the_message_is_refused(run):
    ctx, recorded = run
    with pytest.raises(VerificationError), ctx.reasoning() as thought:
        ctx.emit(ag.ReasoningMessageEndEvent(message_id=thought.id))
    assert types(recorded)[-1] == "REASONING_END"


def test_a_span_whose_message_cannot_start_is_closed(run):
    ctx, recorded = run
    ctx.emit(ag.ReasoningMessageStartEvent(message_id="r", role="reasoning"))
    with pytest.raises(VerificationError):
        ctx.reasoning(message_id="r").open()
    assert types(recorded)[-1] == "REASONING_END"


# Tool calls


def test_a_call_takes_fragments_and_ends_before_its_result(run):
    ctx, recorded = run
    with ctx.tool_call("search") as call:
        call.args('{"q":')
        call.args('"weather"}')
        message_id = call.result({"degrees": 21})
    assert types(recorded) == [
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
    ]
    result = recorded[-1]
    assert (result.message_id, result.content, result.role) == (message_id, '{"degrees":21}', "tool")


def test_the_results_message_id_is_reserved_when_the_call_is_made(run):
    ctx, _ = run
    call = ctx.tool_call("search")
    assert (call.id, call.message_id) == ("run-call-1", "run-msg-1")
    assert ctx.message().id == "run-msg-2"


def test_a_call_without_a_result_is_left_to_the_client(run):
    ctx, recorded = run
    with ctx.tool_call("ask") as call:
        call.args({"q": 1})
    assert types(recorded) == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
    assert recorded[2].delta == '{"q":1}'


def test_a_text_result_is_sent_as_it_is(run):
    ctx, recorded = run
    with ctx.tool_call("t") as call:
        call.result("sunny")
    assert recorded[-1].content == "sunny"


def test_a_result_after_the_scope_is_right(run):
    ctx, recorded = run
    with ctx.tool_call("t") as call:
        pass
    call.result(1)
    assert types(recorded)[-2:] == ["TOOL_CALL_END", "TOOL_CALL_RESULT"]


def test_a_second_result_is_refused(run):
    ctx, _ = run
    with ctx.tool_call("t") as call:
        call.result(1)
        with pytest.raises(ProtocolError):
            call.result(2)


@pytest.mark.parametrize(
    "value", [float("nan"), object(), {"a": {1}}, ["\ud800"]], ids=["nan", "object", "set", "surrogate"]
)
def test_a_value_without_json_is_refused_and_the_call_stays_usable(run, value):
    ctx, recorded = run
    with ctx.tool_call("t") as call:
        with pytest.raises(SerializationError):
            call.args(value)
        with pytest.raises(SerializationError):
            call.result(value)
        call.result("instead")
    assert types(recorded) == ["TOOL_CALL_START", "TOOL_CALL_END", "TOOL_CALL_RESULT"]


def test_a_model_is_sent_as_its_json(run):
    ctx, recorded = run
    with ctx.tool_call("t") as call:
        call.result({"tool": ag.Tool(name="n", description="d")})
    assert recorded[-1].content == '{"tool":{"name":"n","description":"d"}}'


# Subagents


def test_what_is_emitted_inside_belongs_to_the_subagent(run):
    ctx, recorded = run
    with ctx.subagent("helper") as helper:
        ctx.say("inside")
        ctx.emit(ag.CustomEvent(name="n", value=1))
        ctx.emit(ag.CustomEvent(name="n", value=1, subagent_run_id="somebody"))
    ctx.say("outside")
    tags = [getattr(event, "subagent_run_id", None) for event in recorded[2:]]
    assert tags == [helper.id] * 4 + ["somebody", helper.id] + [None] * 3


def test_a_nested_subagent_names_its_parent(run):
    ctx, recorded = run
    with ctx.subagent("outer") as outer, ctx.subagent("inner") as inner:
        ctx.say("x")
    started = recorded[2]
    assert (started.subagent_run_id, started.parent_subagent_run_id) == (inner.id, outer.id)
    assert [event.subagent_run_id for event in recorded[-2:]] == [inner.id, outer.id]


def test_the_messages_snapshot_stays_without_a_tag(run):
    ctx, recorded = run
    with ctx.subagent("s"):
        ctx.emit(ag.MessagesSnapshotEvent(messages=[]))
    assert getattr(recorded[2], "subagent_run_id", None) is None


def test_a_message_of_the_parent_goes_on_inside_a_subagent(run):
    ctx, recorded = run
    with ctx.message() as message, ctx.subagent("s"):
        message.delta("still the parent's")
    assert recorded[3].subagent_run_id is None


def test_leaving_a_subagent_is_success(run):
    ctx, recorded = run
    with ctx.subagent("s"):
        pass
    assert recorded[-1].type is EventType.SUBAGENT_FINISHED


def test_a_subagent_finishes_once_with_its_result_and_gives_the_scope_back(run):
    ctx, recorded = run
    with ctx.subagent("s") as subagent:
        subagent.finish({"found": 3})
        subagent.fail("too late")
        ctx.say("the parent again")
    assert recorded[2].result == {"found": 3}
    assert recorded[3].subagent_run_id is None
    assert types(recorded).count("SUBAGENT_FINISHED") == 1
    assert "SUBAGENT_ERROR" not in types(recorded)


def test_a_suspended_subagent_names_the_interrupts(run):
    ctx, recorded = run
    with ctx.subagent("s") as subagent:
        subagent.suspend(["i-1"])
    assert recorded[-1].outcome.interrupt_ids == ["i-1"]


def test_a_failing_subagent_says_the_code_and_not_the_exceptions_text(run):
    ctx, recorded = run
    with pytest.raises(RuntimeError), ctx.subagent("s"):
        raise RuntimeError("password=hunter2")
    error = recorded[-1]
    assert (error.type, error.code) == (EventType.SUBAGENT_ERROR, "AGENT_ERROR")
    assert "hunter2" not in error.message


def test_a_subagent_that_failed_on_purpose_says_why(run):
    ctx, recorded = run
    with pytest.raises(AgentError), ctx.subagent("s"):
        raise AgentError("no data for Sunday")
    assert recorded[-1].message == "agent error: no data for Sunday"


def test_the_error_that_unwinds_is_heard_and_not_the_refused_terminator(run):
    ctx, _ = run
    message = ctx.message().open()
    ctx.emit(ag.TextMessageEndEvent(message_id=message.id))
    with pytest.raises(KeyError), message:
        raise KeyError("the real reason")
