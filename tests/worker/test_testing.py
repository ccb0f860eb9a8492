"""The test harness: a run without a worker tells what a worker would record."""

from __future__ import annotations

import asyncio

import pytest

from shared.protocol import events as ag
from worker.agents import AgentError, Interrupt, RunContext, agent
from worker.agents.testing import CancellationToken, StopCause, record, recorded_context, run_input


def test_a_context_without_a_driver_gives_events_that_compare_exactly():
    ctx, recorded = recorded_context(run_input("hi", thread_id="t", run_id="r"))
    with ctx.step("look"):
        ctx.say("It is 21 °C.")
    assert recorded == [
        ag.run_started("t", "r"),
        ag.StepStartedEvent(step_name="look"),
        ag.TextMessageStartEvent(message_id="r-msg-1", role="assistant"),
        ag.TextMessageContentEvent(message_id="r-msg-1", delta="It is 21 °C."),
        ag.TextMessageEndEvent(message_id="r-msg-1"),
        ag.StepFinishedEvent(step_name="look"),
    ]


def test_usage_is_told_by_every_ending():
    used = ag.TokenUsage(model="m", input_tokens=3)

    def succeeds(ctx: RunContext) -> None:
        ctx.usage.append(used)

    def fails(ctx: RunContext) -> None:
        ctx.usage.append(used)
        raise RuntimeError

    def ends_itself(ctx: RunContext) -> None:
        ctx.usage.append(used)
        ctx.emit(ag.run_finished(ctx.thread_id, ctx.run_id, None))

    def fails_itself(ctx: RunContext) -> None:
        ctx.usage.append(used)
        ctx.emit(ag.run_error("m", "AGENT_ERROR"))

    def asks(ctx: RunContext) -> Interrupt:
        ctx.usage.append(used)
        return Interrupt(reason="r")

    def is_cancelled(ctx: RunContext) -> None:
        ctx.usage.append(used)
        ctx.token.trip(StopCause.CLIENT)
        ctx.check_cancelled()

    for body in (succeeds, fails, ends_itself, fails_itself, asks, is_cancelled):
        assert record(body, token=CancellationToken())[-1].usage == [used], body.__name__


def test_usage_that_the_agents_own_terminal_event_tells_stands():
    def ends_itself(ctx: RunContext) -> None:
        ctx.usage.append(ag.TokenUsage(model="other"))
        ctx.emit(ag.run_finished(ctx.thread_id, ctx.run_id, None, usage=[ag.TokenUsage(model="m")]))

    assert record(ends_itself)[-1].usage == [ag.TokenUsage(model="m")]


def test_usage_may_be_a_mapping_and_a_misfit_does_not_cost_the_run():
    def body(ctx: RunContext) -> None:
        ctx.usage.extend([{"model": "m", "inputTokens": 1}, {"inputTokens": "many"}])

    assert record(body)[-1].usage == [ag.TokenUsage(model="m", input_tokens=1)]


@pytest.mark.parametrize("outcome", [None, {"type": "success"}], ids=["absent", "success"])
def test_a_success_that_the_agent_said_itself_names_the_calls_left_to_the_client(outcome):
    def asks(ctx: RunContext) -> None:
        for name in ("a", "b"):
            with ctx.tool_call(name, call_id=name) as call:
                if name == "a":
                    call.result(1)
        ctx.emit(ag.run_finished(ctx.thread_id, ctx.run_id, outcome))

    assert record(asks)[-1].outcome == ag.RunFinishedSuccessOutcome(
        type="success", pending_tool_call_ids=["b"]
    )


def test_what_the_agent_says_of_pending_calls_itself_stands():
    def asks(ctx: RunContext) -> None:
        with ctx.tool_call("a"):
            pass
        ctx.emit(ag.run_finished(ctx.thread_id, ctx.run_id, {"type": "success", "pendingToolCallIds": []}))

    assert record(asks)[-1].outcome.pending_tool_call_ids == []


@pytest.mark.parametrize(
    ("cause", "code"), [(StopCause.DEADLINE, "deadline_exceeded"), (StopCause.SHUTDOWN, "worker_shutdown")]
)
def test_a_stop_that_nobody_asked_for_is_a_failure(cause, code):
    def body(ctx: RunContext) -> None:
        ctx.token.trip(cause)
        ctx.say("x")

    assert record(body, token=CancellationToken())[-1].code == code


def test_an_agents_own_error_code_is_one_that_it_may_claim():
    def body(ctx: RunContext) -> None:
        ctx.emit(ag.run_error("m", "worker_lost"))

    assert record(body)[-1].code == "AGENT_ERROR"


def test_a_refused_end_is_told_although_the_agent_goes_on():
    def body(ctx: RunContext) -> None:
        ctx.message().open()
        try:
            ctx.emit(ag.run_finished(ctx.thread_id, ctx.run_id, None))
        except Exception:  # noqa: BLE001 - as an agent may
            return

    assert record(body)[-1].code == "PROTOCOL_VIOLATION"


def test_two_recordings_of_a_failure_are_equal():
    def body(ctx: RunContext) -> None:
        raise RuntimeError

    assert record(body) == record(body)


def test_a_subagent_that_was_left_open_by_a_success_finished():
    def body(ctx: RunContext) -> None:
        ctx.subagent("s").open()

    assert record(body)[-2].type.value == "SUBAGENT_FINISHED"


def test_a_subagent_that_a_cancel_cut_off_says_so():
    async def body(ctx: RunContext) -> None:
        with ctx.subagent("s"):
            ctx.token.trip(StopCause.CLIENT)
            await ctx.until_cancelled(asyncio.sleep(60))
            ctx.check_cancelled()

    recorded = record(body, token=CancellationToken())
    assert [(event.type.value, getattr(event, "code", None)) for event in recorded[-2:]] == [
        ("SUBAGENT_ERROR", "CANCELLED"),
        ("RUN_FINISHED", None),
    ]


def test_an_error_inside_nested_subagents_fails_each_innermost_first():
    def body(ctx: RunContext) -> None:
        with ctx.subagent("outer"), ctx.subagent("inner"):
            raise AgentError("no data")

    recorded = record(body)
    assert [event.subagent_run_id for event in recorded[-3:-1]] == ["run-sub-2", "run-sub-1"]
    assert {event.message for event in recorded[-3:-1]} == {"agent error: no data"}


def test_a_resumed_run_may_use_the_id_of_a_suspended_subagent_again():
    def asks(ctx: RunContext) -> Interrupt:
        with ctx.subagent("s", subagent_id="kept") as helper:
            helper.suspend(["i"])
        return Interrupt(ag.Interrupt(id="i", reason="r", subagent_run_id="kept"))

    def goes_on(ctx: RunContext) -> None:
        with ctx.subagent("s", subagent_id="kept"):
            ctx.say(ctx.answer_to("i").payload)

    assert record(asks)[-1].outcome.type == "interrupt"
    answers = [{"interruptId": "i", "status": "resolved", "payload": "yes"}]
    recorded = record(goes_on, run_input(run_id="next", resume=answers))
    assert {event.subagent_run_id for event in recorded[1:-1]} == {"kept"}


def test_questions_with_one_id_are_refused():
    def asks(ctx: RunContext) -> Interrupt:
        return Interrupt(ag.Interrupt(id="i", reason="r"), ag.Interrupt(id="i", reason="r"))

    assert record(asks)[-1].code == "PROTOCOL"


def test_marked_provider_calls_are_kept():
    seen = []

    async def body(ctx: RunContext) -> None:
        with ctx.provider_call("model"):
            seen.append(ctx.provider_calls.current.name)
        seen.append([(call.name, call.failed) for call in ctx.provider_calls.ended])

    record(agent(body))
    assert seen == ["model", [("model", False)]]


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (StopCause.BUFFER_FULL, "EVENT_BUFFER_FULL"),
        (StopCause.LOST, "DISCONNECTED"),
        (StopCause.DEADLINE, "deadline_exceeded"),
        (StopCause.SHUTDOWN, "worker_shutdown"),
    ],
)
def test_every_cause_that_nobody_asked_for_ends_as_it_does_in_a_worker(cause: StopCause, code: str):
    token = CancellationToken()
    token.trip(cause)
    assert record(lambda ctx: ctx.say("never"), token=token)[-1].code == code
