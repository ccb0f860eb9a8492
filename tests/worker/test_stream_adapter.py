"""A generator of AG-UI events is an agent: its events pass, its boundaries become the run's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from shared.protocol import events as ag
from shared.runs.outcome import StopCause
from worker.agents import UpstreamError, current_run
from worker.agents.entries import entry_for
from worker.agents.testing import record, recorded_context, run_input
from worker.cancellation import CancellationToken


def both(*made: Any) -> list[Any]:
    """An async and a sync generator function over the same events; each counts how often it was closed."""

    async def asynchronous(given: ag.RunAgentInput) -> AsyncIterator[Any]:
        try:
            for event in made:
                yield event() if callable(event) and not isinstance(event, type) else event
        finally:
            asynchronous.closed.append(1)

    def synchronous(given: ag.RunAgentInput) -> Iterator[Any]:
        try:
            for event in made:
                yield event() if callable(event) and not isinstance(event, type) else event
        finally:
            synchronous.closed.append(1)

    asynchronous.closed, synchronous.closed = [], []
    return [asynchronous, synchronous]


TEXT = (
    ag.TextMessageStartEvent(message_id="m"),
    ag.TextMessageContentEvent(message_id="m", delta="hi"),
    ag.TextMessageEndEvent(message_id="m"),
)
STARTED = ag.RunStartedEvent(thread_id="another", run_id="another")


def finished(**members: Any) -> ag.RunFinishedEvent:
    return ag.RunFinishedEvent(thread_id="another", run_id="another", **members)


@pytest.mark.parametrize("agent", both(STARTED, *TEXT, finished()))
def test_boundaries_are_replaced_and_the_rest_passes(agent):
    recorded = record(agent)
    assert recorded[1:-1] == list(TEXT)
    assert (recorded[0].run_id, recorded[-1].run_id) == ("run", "run")


@pytest.mark.parametrize("agent", both(*TEXT))
def test_an_end_without_a_terminal_event_is_success(agent):
    assert record(agent)[-1].outcome.type == "success"


@pytest.mark.parametrize("agent", both(finished(result={"a": 1}, usage=[ag.TokenUsage(input_tokens=2)])))
def test_result_and_usage_of_its_ending_are_kept(agent):
    ending = record(agent)[-1]
    assert (ending.result, ending.usage[0].input_tokens) == ({"a": 1}, 2)


@pytest.mark.parametrize(
    "agent",
    both(
        finished(
            outcome=ag.RunFinishedInterruptOutcome(
                type="interrupt", interrupts=[ag.Interrupt(id="i", reason="confirm")]
            )
        )
    ),
)
def test_an_interrupt_outcome_pauses_the_run(agent):
    assert record(agent)[-1].outcome.interrupts[0].id == "i"


@pytest.mark.parametrize("agent", both(*TEXT[:2], finished()))
def test_an_ending_with_something_open_is_a_violation(agent):
    assert record(agent)[-1].code == "PROTOCOL_VIOLATION"


@pytest.mark.parametrize("agent", both(ag.RunErrorEvent(message="key=secret", code="transport_timeout")))
def test_a_run_error_fails_the_run_without_its_text(agent):
    ending = record(agent)[-1]
    assert ending.code == "transport_timeout"
    assert "secret" not in ending.message


def test_a_run_error_is_raised_with_what_it_said():
    agent = both(ag.RunErrorEvent(message="m", code="c"))[1]
    ctx, _ = recorded_context()
    with pytest.raises(UpstreamError) as raised:
        entry_for("x", agent).run(ctx)
    assert (raised.value.message, raised.value.code) == ("m", "c")


@pytest.mark.parametrize("agent", both(finished(outcome=ag.RunFinishedCancelledOutcome(type="cancelled"))))
def test_a_cancelled_outcome_that_nobody_asked_for_is_a_failure(agent):
    assert record(agent)[-1].code == "AGENT_ERROR"


@pytest.mark.parametrize("agent", both("data: {}"))
def test_something_that_is_no_event_is_a_protocol_failure(agent):
    assert record(agent)[-1].code == "PROTOCOL"


@pytest.mark.parametrize("agent", both(ag.TextMessageEndEvent(message_id="nobody"), *TEXT))
def test_a_refused_event_fails_the_run_and_closes_the_generator(agent):
    assert record(agent)[-1].code == "PROTOCOL_VIOLATION"
    assert agent.closed == [1]


@pytest.mark.parametrize("agent", both(finished(), *TEXT))
def test_the_generator_is_closed_at_its_own_ending(agent):
    assert len(record(agent)) == 2
    assert agent.closed == [1]


@pytest.mark.parametrize("index", [0, 1])
def test_a_stop_reaches_a_generator_at_its_next_yield(index):
    token = CancellationToken()
    agent = both(*TEXT[:2], lambda: token.trip(StopCause.CLIENT) and TEXT[2])[index]
    recorded = record(agent, token=token)
    assert recorded[-1].outcome.type == "cancelled"
    assert agent.closed == [1]


def test_a_generator_finds_its_run_for_on_cancel():
    token = CancellationToken()
    called = []

    def agent(given: ag.RunAgentInput) -> Iterator[ag.Event]:
        current_run().on_cancel(lambda: called.append(1))
        yield from TEXT
        token.trip(StopCause.CLIENT)

    recorded = record(agent, token=token)
    assert called == [1]
    assert recorded[-1].outcome.type == "cancelled"


def test_a_cancelled_task_closes_its_generator():
    closed = []

    async def agent(given: ag.RunAgentInput) -> AsyncIterator[ag.Event]:
        try:
            yield TEXT[0]
            await asyncio.Event().wait()
        finally:
            closed.append(1)

    async def stop() -> None:
        ctx, recorded = recorded_context()
        task = asyncio.ensure_future(entry_for("x", agent).run(ctx))
        while len(recorded) < 2:  # noqa: ASYNC110 - a list has no event to wait for
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stop())
    assert closed == [1]


def test_an_async_generator_is_closed_before_its_run_ends():
    agent = both(finished(), *TEXT)[0]

    async def closed_by_then() -> list[int]:
        await entry_for("x", agent).run(recorded_context()[0])
        return list(agent.closed)

    assert asyncio.run(closed_by_then()) == [1]


def test_a_generator_that_does_not_close_keeps_its_runs_outcome():
    def stubborn(given: ag.RunAgentInput) -> Iterator[ag.Event]:
        try:
            yield finished()
        except GeneratorExit:
            yield TEXT[0]

    assert record(stubborn)[-1].outcome.type == "success"


def test_the_generator_is_given_the_input():
    seen = []

    def agent(given: ag.RunAgentInput) -> Iterator[ag.Event]:
        seen.append(given)
        yield from ()

    given = run_input("hi")
    record(agent, given)
    assert seen == [given]


def test_calls_left_to_the_client_are_listed_at_its_ending():
    call = [
        ag.ToolCallStartEvent(tool_call_id="c", tool_call_name="ask"),
        ag.ToolCallEndEvent(tool_call_id="c"),
    ]
    assert record(both(*call, finished())[0])[-1].outcome.pending_tool_call_ids == ["c"]
