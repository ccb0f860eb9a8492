"""What the context sends besides messages: thoughts, calls with their arguments, results, own events."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from shared.protocol import events as ag
from shared.protocol.events import EventType, SerializationError
from shared.protocol.verifier import Rule, VerificationError
from worker.agents.testing import recorded_context, run_input


class Query(BaseModel):
    q: str
    limit: int = 3


@dataclass
class Place:
    city: str


@pytest.fixture
def run():
    return recorded_context()


# Thinking


def test_think_is_a_whole_reasoning_and_returns_its_id(run):
    ctx, recorded = run
    assert ctx.think("hm") == "run-msg-1"
    assert recorded[1:] == [
        ag.ReasoningStartEvent(message_id="run-msg-1"),
        ag.ReasoningMessageStartEvent(message_id="run-msg-1", role="reasoning"),
        ag.ReasoningMessageContentEvent(message_id="run-msg-1", delta="hm"),
        ag.ReasoningMessageEndEvent(message_id="run-msg-1"),
        ag.ReasoningEndEvent(message_id="run-msg-1"),
    ]


def test_think_carries_the_providers_opaque_form(run):
    ctx, recorded = run
    thought = ctx.think("", encrypted="opaque")
    assert recorded[3] == ag.ReasoningEncryptedValueEvent(
        subtype="message", entity_id=thought, encrypted_value="opaque"
    )


def test_a_call_carries_the_providers_opaque_form(run):
    ctx, recorded = run
    with ctx.tool_call("t") as call:
        call.encrypted("opaque")
    assert (recorded[2].subtype, recorded[2].entity_id) == ("tool-call", call.id)


# Arguments read back


def test_arguments_are_refused_while_they_are_partial(run):
    ctx, _ = run
    with ctx.tool_call("t") as call:
        with pytest.raises(SerializationError):
            call.arguments()
        call.args('{"q":')
        with pytest.raises(SerializationError):
            call.arguments(Query)
        call.args('"x"}')
        assert call.arguments() == {"q": "x"}
        assert call.arguments(Query) == Query(q="x", limit=3)


def test_arguments_are_read_as_any_type_that_pydantic_knows(run):
    ctx, _ = run
    with ctx.tool_call("t") as call:
        call.args({"city": "Rome"})
    assert call.arguments(Place) == Place("Rome")
    assert call.arguments(dict[str, str]) == {"city": "Rome"}


def test_a_call_that_ended_without_arguments_has_none(run):
    ctx, _ = run
    with ctx.tool_call("t") as call:
        pass
    assert call.arguments() == {}


def test_arguments_that_do_not_fit_are_told_by_place_and_not_by_value(run):
    ctx, _ = run
    with ctx.tool_call("t") as call:
        call.args({"q": "secret", "limit": "secret"})
    with pytest.raises(SerializationError) as refused:
        call.arguments(Query)
    assert "limit" in str(refused.value)
    assert "secret" not in str(refused.value)
    assert refused.value.__context__ is None


def test_arguments_that_were_refused_are_not_read_back(run):
    ctx, _ = run
    call = ctx.tool_call("t")
    with pytest.raises(VerificationError):
        call.args({"q": 1})
    call.open().end()
    assert call.arguments() == {}


# Results


def test_a_result_of_content_parts_stays_parts(run):
    ctx, recorded = run
    with ctx.tool_call("t") as call:
        call.result([ag.TextPart(type="text", text="sunny")])
    assert recorded[-1].content == [ag.TextPart(type="text", text="sunny")]


def test_a_result_of_an_earlier_runs_call_keeps_the_calls_id():
    history = [
        {
            "id": "m-1",
            "role": "assistant",
            "toolCalls": [
                {"id": "c-1", "type": "function", "function": {"name": "delete", "arguments": "{}"}}
            ],
        }
    ]
    ctx, recorded = recorded_context(run_input(messages=history))
    assert ctx.tool_result("c-1", {"done": True}) == "run-msg-1"
    assert recorded[1:] == [
        ag.ToolCallResultEvent(
            message_id="run-msg-1", tool_call_id="c-1", content='{"done":true}', role="tool"
        )
    ]


def test_a_result_answers_a_call_of_this_run_that_was_left_open(run):
    ctx, recorded = run
    with ctx.tool_call("t") as call:
        pass
    ctx.tool_result(call.id, "later")
    assert (recorded[-1].tool_call_id, recorded[-1].content) == (call.id, "later")
    assert ctx.sink.verifier.unanswered_calls == ()


def test_a_result_for_a_call_that_nobody_made_is_refused(run):
    ctx, _ = run
    with pytest.raises(VerificationError) as refused:
        ctx.tool_result("nobody", 1)
    assert refused.value.rule is Rule.UNKNOWN_ID


def test_a_result_without_json_takes_no_message_id(run):
    ctx, _ = run
    with pytest.raises(SerializationError):
        ctx.tool_result("c", object())
    assert ctx.message().id == "run-msg-1"


# Two handles at once, and everything reachable from inside


def test_two_messages_and_two_calls_may_be_open_at_once(run):
    ctx, recorded = run
    with ctx.message() as one, ctx.message() as two, ctx.tool_call("a") as call, ctx.tool_call("b") as other:
        for piece in "xy":
            one.delta(piece)
            two.delta(piece.upper())
        call.args('{"a":')
        other.args("{}")
        call.args("1}")
        other.result("second")
        call.result("first")
    told: dict[str, str] = {}
    for event in recorded:
        if event.type is EventType.TEXT_MESSAGE_CONTENT:
            told[event.message_id] = told.get(event.message_id, "") + event.delta
    assert told == {one.id: "xy", two.id: "XY"}
    assert call.arguments() == {"a": 1}


def test_state_is_published_from_inside_an_open_call(run):
    ctx, recorded = run
    with ctx.tool_call("search") as call:
        ctx.update_state(searching=True)
        call.result("found")
    assert [event.type.value for event in recorded[1:]] == [
        "TOOL_CALL_START",
        "STATE_SNAPSHOT",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
    ]


# Own events


def test_custom_and_raw_events_are_sent_with_the_scopes_tag(run):
    ctx, recorded = run
    with ctx.subagent("s") as helper:
        ctx.custom("acme.progress", None)
        ctx.raw({"native": 1}, source="framework")
    assert recorded[2:4] == [
        ag.CustomEvent(name="acme.progress", value=None, subagent_run_id=helper.id),
        ag.RawEvent(event={"native": 1}, source="framework", subagent_run_id=helper.id),
    ]


def test_the_parent_run_and_the_actor_are_known():
    ctx, _ = recorded_context(run_input(parentRunId="before"))
    assert ctx.parent_run_id == "before"
    assert ctx.actor is not None
