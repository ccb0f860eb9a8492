"""A token trips once, wakes whoever waits, and knows whether the agent was told."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from shared.protocol import events
from shared.runs.outcome import StopCause
from worker.agents.testing import recorded_context
from worker.cancellation import CancellationToken, Cancelled, Disconnected


@pytest.fixture
def token() -> CancellationToken:
    return CancellationToken()


def tripped_soon(
    token: CancellationToken, cause: StopCause = StopCause.CLIENT, seconds: float = 0.05
) -> None:
    timer = threading.Timer(seconds, token.trip, (cause,))
    timer.daemon = True
    timer.start()


def test_the_first_cause_stands(token):
    assert token.trip(StopCause.DEADLINE)
    assert not token.trip(StopCause.CLIENT)
    assert token.cause is StopCause.DEADLINE


def test_of_many_threads_that_trip_one_wins(token):
    gate = threading.Barrier(8)
    answers = []

    def trip() -> None:
        gate.wait()
        answers.append(token.trip(StopCause.CLIENT))

    threads = [threading.Thread(target=trip) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert sorted(answers) == [False] * 7 + [True]


def test_a_callback_is_called_once_by_the_tripping_thread(token):
    called = []
    token.on_trip(lambda: called.append(threading.current_thread()))
    token.trip(StopCause.CLIENT)
    token.trip(StopCause.CLIENT)
    assert called == [threading.current_thread()]


def test_a_callback_that_comes_late_is_called_at_once(token):
    token.trip(StopCause.CLIENT)
    called = []
    token.on_trip(lambda: called.append(1))
    assert called == [1]


def test_an_unsubscribed_callback_is_not_called(token):
    called = []
    token.on_trip(lambda: called.append(1))()
    token.trip(StopCause.CLIENT)
    assert called == []


def test_a_failing_callback_does_not_keep_others_from_hearing(token):
    called = []
    token.on_trip(lambda: 1 / 0)
    token.on_trip(lambda: called.append(1))
    token.trip(StopCause.CLIENT)
    assert called == [1]


def test_a_waiting_thread_is_woken(token):
    tripped_soon(token)
    assert token.wait(5)


def test_a_wait_ends_without_a_trip_at_its_timeout(token):
    assert not token.wait(0.01)


def test_a_waiting_task_is_woken_from_another_thread(token):
    tripped_soon(token)
    asyncio.run(asyncio.wait_for(token.wait_async(), 5))


def test_the_workers_own_waits_and_callbacks_deliver_nothing(token):
    token.on_trip(lambda: None)
    token.trip(StopCause.CLIENT)
    token.wait(0)
    asyncio.run(token.wait_async())
    assert not token.delivered


def test_nothing_is_delivered_before_the_trip(token):
    token.mark_delivered()
    assert not token.delivered


# How an agent asks


def test_is_cancelled_delivers_only_when_it_says_yes(token):
    ctx, _ = recorded_context(token=token)
    assert not ctx.is_cancelled()
    token.trip(StopCause.CLIENT)
    assert not token.delivered
    assert ctx.is_cancelled()
    assert token.delivered


def test_check_cancelled_raises_after_the_trip(token):
    ctx, _ = recorded_context(token=token)
    ctx.check_cancelled()
    token.trip(StopCause.CLIENT)
    with pytest.raises(Cancelled):
        ctx.check_cancelled()
    assert token.delivered


def test_every_emit_after_the_trip_is_refused(token):
    ctx, recorded = recorded_context(token=token)
    ctx.say("one")
    token.trip(StopCause.OPERATOR)
    for _ in range(2):
        with pytest.raises(Cancelled):
            ctx.emit(events.CustomEvent(name="n", value=1))
    assert token.delivered
    assert len(recorded) == 4


def test_a_lost_run_says_disconnected(token):
    ctx, _ = recorded_context(token=token)
    token.trip(StopCause.LOST)
    with pytest.raises(Disconnected):
        ctx.say("nobody listens")


def test_cancelled_wakes_a_coroutine(token):
    ctx, _ = recorded_context(token=token)
    tripped_soon(token)
    asyncio.run(asyncio.wait_for(ctx.cancelled(), 5))
    assert token.delivered


def test_wait_cancelled_wakes_a_sync_agent(token):
    ctx, _ = recorded_context(token=token)
    assert not ctx.wait_cancelled(0.01)
    tripped_soon(token)
    assert ctx.wait_cancelled(5)
    assert token.delivered


def test_on_cancel_calls_back_and_delivers(token):
    ctx, _ = recorded_context(token=token)
    called = []
    ctx.on_cancel(lambda: called.append(1))
    token.trip(StopCause.CLIENT)
    assert called == [1]
    assert token.delivered


# until_cancelled, awaited


def run_async(ctx, work):
    async def agent():
        return await asyncio.wait_for(ctx.until_cancelled(work()), 5)

    return asyncio.run(agent())


def test_work_that_ends_first_gives_its_result(token):
    ctx, _ = recorded_context(token=token)

    async def work() -> str:
        await asyncio.sleep(0)
        return "reply"

    assert run_async(ctx, work) == "reply"
    assert not token.delivered


def test_work_that_fails_raises_its_error(token):
    ctx, _ = recorded_context(token=token)

    async def work() -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError):
        run_async(ctx, work)


def test_a_trip_cancels_the_work_and_gives_none_at_once(token):
    ctx, _ = recorded_context(token=token)
    unwound = []

    async def work() -> str:
        try:
            await asyncio.sleep(60)
        finally:
            unwound.append(1)
        return "never"

    async def agent() -> tuple[object, list[int]]:
        return await ctx.until_cancelled(work()), list(unwound)

    tripped_soon(token)
    started = time.monotonic()
    assert asyncio.run(agent()) == (None, [1])
    assert time.monotonic() - started < 3
    assert token.delivered


def test_a_tripped_token_never_starts_the_work(token):
    ctx, _ = recorded_context(token=token)
    token.trip(StopCause.CLIENT)
    started = []

    async def work() -> None:
        started.append(1)

    assert run_async(ctx, work) is None
    assert started == []


def test_work_that_does_not_let_itself_be_cancelled_is_left_behind(token, monkeypatch):
    monkeypatch.setattr("worker.races.UNWIND_SECONDS", 0.05)
    ctx, _ = recorded_context(token=token)

    async def agent() -> object:
        release = asyncio.Event()

        async def deaf() -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        task = asyncio.ensure_future(deaf())
        tripped_soon(token)
        result = await ctx.until_cancelled(task)
        left_behind = not task.done()
        release.set()
        await task
        return result, left_behind

    assert asyncio.run(agent()) == (None, True)


def test_an_agent_whose_own_task_is_cancelled_takes_the_work_along(token):
    ctx, _ = recorded_context(token=token)

    async def agent() -> bool:
        work = asyncio.ensure_future(asyncio.sleep(60))
        outer = asyncio.ensure_future(ctx.until_cancelled(work))
        await asyncio.sleep(0.01)
        outer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await outer
        return work.cancelled()

    assert asyncio.run(agent())


# until_cancelled, called


def test_a_callable_gives_its_result(token):
    ctx, _ = recorded_context(token=token)
    assert ctx.until_cancelled(lambda: 7) == 7


def test_a_callable_raises_its_error(token):
    ctx, _ = recorded_context(token=token)
    with pytest.raises(ZeroDivisionError):
        ctx.until_cancelled(lambda: 1 / 0)


def test_a_trip_leaves_a_blocked_callable_behind(token):
    ctx, _ = recorded_context(token=token)
    release = threading.Event()
    tripped_soon(token)
    assert ctx.until_cancelled(lambda: release.wait(30)) is None
    assert token.delivered
    release.set()


def test_a_tripped_token_never_calls_the_callable(token):
    ctx, _ = recorded_context(token=token)
    token.trip(StopCause.CLIENT)
    called = []
    assert ctx.until_cancelled(lambda: called.append(1)) is None
    assert called == []


def test_a_callable_belongs_to_the_scope_it_was_given_in(token):
    ctx, recorded = recorded_context(token=token)
    with ctx.subagent("helper") as helper:
        ctx.until_cancelled(lambda: ctx.say("from its thread"))
    assert recorded[2].subagent_run_id == helper.id


def test_a_callable_on_an_event_loop_is_refused(token):
    ctx, _ = recorded_context(token=token)

    async def agent() -> None:
        ctx.until_cancelled(lambda: 1)

    with pytest.raises(TypeError, match="awaitable"):
        asyncio.run(agent())
