"""The context tells an agent what was asked, and sends what it says through one door."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from shared.protocol import events as ag
from shared.protocol.events import Event, EventType, SerializationError
from shared.protocol.verifier import VerificationError, Verifier
from shared.runs.outcome import StopCause
from worker.agents import AgentError, Interrupt, ProtocolError, RunContext, current_run
from worker.agents.testing import RecordingSink, record, recorded_context, run_input
from worker.cancellation import CancellationToken
from worker.context import running

# The input


def test_an_input_with_the_least_gives_empty_values():
    ctx, _ = recorded_context(run_input())
    assert (ctx.thread_id, ctx.run_id) == ("thread", "run")
    assert (ctx.messages, ctx.tools, ctx.context, ctx.resume) == ([], [], [], [])
    assert (ctx.forwarded_props, ctx.state) == ({}, {})
    assert ctx.last_user_text is None


def test_the_last_user_text_is_the_last_users_even_if_others_spoke_later():
    messages = [
        {"id": "1", "role": "user", "content": "first"},
        {
            "id": "2",
            "role": "user",
            "content": [{"type": "text", "text": "se"}, {"type": "text", "text": "cond"}],
        },
        {"id": "3", "role": "assistant", "content": "reply"},
    ]
    assert recorded_context(run_input(messages=messages))[0].last_user_text == "second"


def test_an_empty_user_text_differs_from_none():
    assert recorded_context(run_input(""))[0].last_user_text == ""


def test_tools_and_answers_are_found_by_name():
    given = run_input(
        tools=[{"name": "search", "description": "d"}],
        resume=[{"interruptId": "i", "status": "resolved", "payload": {"ok": True}}],
    )
    ctx, _ = recorded_context(given)
    assert ctx.tool("search") is ctx.tools[0]
    assert ctx.tool("other") is None
    assert ctx.answer_to("i").payload == {"ok": True}
    assert ctx.answer_to("j") is None


def test_the_state_is_a_copy_of_the_inputs():
    given = run_input(state={"list": [1]})
    ctx, _ = recorded_context(given)
    ctx.state["list"].append(2)
    assert given.state == {"list": [1]}


# Speaking


def test_say_is_a_whole_message_and_returns_its_id():
    ctx, recorded = recorded_context()
    assert ctx.say("hi") == "run-msg-1"
    assert [event.type.value for event in recorded[1:]] == [
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
    ]


def test_ids_count_by_kind_and_are_the_same_every_time():
    def ids() -> list[str]:
        ctx, _ = recorded_context(run_input(run_id="r"))
        return [ctx.message().id, ctx.message().id, ctx.tool_call("t").id, ctx.subagent("s").id]

    assert ids() == ids() == ["r-msg-1", "r-msg-2", "r-call-1", "r-sub-1"]


def test_a_later_attempt_has_ids_of_its_own():
    verifier = Verifier()
    ctx = RunContext(run_input(), sink=RecordingSink(verifier), token=CancellationToken(), attempt=2)
    assert ctx.message().id == "run-a2-msg-1"


def test_a_refused_event_leaves_the_run_usable():
    ctx, recorded = recorded_context()
    with pytest.raises(VerificationError):
        ctx.emit(ag.TextMessageContentEvent(message_id="nobody", delta="x"))
    ctx.say("still here")
    assert len(recorded) == 4


def test_a_value_without_json_is_refused():
    ctx, recorded = recorded_context()
    with pytest.raises(SerializationError):
        ctx.emit(ag.CustomEvent(name="n", value=float("inf")))
    assert len(recorded) == 1


def test_parallel_tasks_have_subagent_scopes_of_their_own():
    async def agent(ctx: RunContext) -> None:
        gate = asyncio.Barrier(2)

        async def speak(name: str) -> None:
            with ctx.subagent(name):
                await gate.wait()
                ctx.emit(ag.CustomEvent(name=name, value=1))
                await gate.wait()

        await asyncio.gather(speak("a"), speak("b"))

    recorded = record(agent)
    owners = {
        event.name: event.subagent_run_id for event in recorded if event.type is EventType.SUBAGENT_STARTED
    }
    tags = {event.name: event.subagent_run_id for event in recorded if event.type is EventType.CUSTOM}
    assert tags == owners


# Transformers


class Doubling:
    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, event: Event) -> Iterable[Event]:
        self.seen += 1
        return [event, event] if isinstance(event, ag.CustomEvent) else [event]


def test_transformers_make_none_or_several_in_order_before_verification():
    doubling = Doubling()
    ctx, recorded = recorded_context(
        transformers=[
            lambda event: [] if getattr(event, "name", "") == "drop" else [event],
            doubling,
        ]
    )
    ctx.emit(ag.CustomEvent(name="drop", value=1))
    ctx.emit(ag.CustomEvent(name="keep", value=1))
    assert [event.name for event in recorded[1:]] == ["keep", "keep"]
    assert doubling.seen == 1


def test_a_swallowed_terminal_event_is_put_back():
    ctx, recorded = recorded_context(transformers=[lambda event: []])
    ctx.emit(ag.run_error("m", "C"))
    assert recorded[-1].type is EventType.RUN_ERROR


# The running agent


def test_the_running_agent_finds_its_run():
    def agent(ctx: RunContext) -> None:
        assert current_run() is ctx

    assert record(agent)[-1].type is EventType.RUN_FINISHED
    with pytest.raises(LookupError):
        current_run()


def test_a_run_inside_a_run_gives_the_outer_one_back():
    outer, _ = recorded_context()
    inner, recorded = recorded_context()
    with running(outer), outer.subagent("s"):
        with running(inner):
            inner.say("not the outer's subagent")
        assert current_run() is outer
    assert recorded[1].subagent_run_id is None


# Endings, as the test context records them


def test_an_agent_that_does_nothing_succeeds():
    recorded = record(lambda ctx: None)
    assert [event.type.value for event in recorded] == ["RUN_STARTED", "RUN_FINISHED"]
    assert recorded[-1].outcome.type == "success"


def test_two_recordings_of_one_agent_are_equal():
    def agent(ctx: RunContext) -> None:
        ctx.say("hi")

    assert record(agent, run_input("x")) == record(agent, run_input("x"))


def test_a_failure_on_purpose_ends_with_its_sentence():
    async def flaky(ctx: RunContext) -> None:
        ctx.say("Looking that up.")
        raise AgentError("the weather service is down")

    ending = record(flaky)[-1]
    assert (ending.code, ending.message) == ("AGENT_ERROR", "agent error: the weather service is down")


def test_handles_left_open_are_closed_innermost_first():
    def agent(ctx: RunContext) -> None:
        ctx.step("s").open()
        ctx.message().open()

    assert [event.type.value for event in record(agent)[-3:]] == [
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
        "RUN_FINISHED",
    ]


def test_an_agent_that_never_asks_is_cancelled_at_its_next_emit():
    token = CancellationToken()

    def chatty(ctx: RunContext) -> None:
        ctx.say("one")
        token.trip(StopCause.CLIENT)
        ctx.say("two")
        ctx.say("three")

    recorded = record(chatty, token=token)
    assert [event.delta for event in recorded if hasattr(event, "delta")] == ["one"]
    assert recorded[-1].outcome.type == "cancelled"


def test_a_trip_that_never_reached_the_agent_leaves_its_own_outcome():
    token = CancellationToken()

    def agent(ctx: RunContext) -> None:
        token.trip(StopCause.CLIENT)

    assert record(agent, token=token)[-1].outcome.type == "success"


def test_the_agents_own_terminal_event_stands_whatever_it_does_afterwards():
    def agent(ctx: RunContext) -> None:
        ctx.emit(ag.run_finished(ctx.thread_id, ctx.run_id, None, result=1))
        raise RuntimeError("too late")

    recorded = record(agent)
    assert recorded[-1].result == 1


def test_usage_travels_on_the_terminal_event():
    def agent(ctx: RunContext) -> None:
        ctx.usage.append(ag.TokenUsage(model="m", input_tokens=3))

    assert record(agent)[-1].usage[0].input_tokens == 3


# Interrupts


def test_an_interrupt_pauses_the_run_under_deterministic_ids():
    def agent(ctx: RunContext) -> Interrupt:
        return Interrupt(reason="confirmation", message="Delete?", response_schema={"type": "object"})

    outcome = record(agent)[-1].outcome
    assert (outcome.type, outcome.interrupts[0].id) == ("interrupt", "run-int-1")


def test_an_interrupt_takes_several_questions():
    questions = [ag.Interrupt(id=name, reason="r") for name in "ab"]
    assert [asked["id"] for asked in Interrupt(*questions).interrupts] == ["a", "b"]
    assert Interrupt(*questions).outcome().wire["type"] == "interrupt"


def test_an_interrupt_that_asks_nothing_is_a_protocol_failure():
    with pytest.raises(ProtocolError):
        Interrupt()
    assert record(lambda ctx: Interrupt())[-1].code == "PROTOCOL"


def test_an_interrupt_with_a_member_of_a_wrong_type_is_a_protocol_failure():
    with pytest.raises(ProtocolError):
        Interrupt(id="i", reason="r", message=5)
