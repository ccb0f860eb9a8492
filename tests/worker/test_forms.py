from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shared.runs.outcome import StopCause
from worker.agents.base import AgentEntry
from worker.agents.entries import entry_for
from worker.agents.testing import recorded_context
from worker.context import RunContext, current_run
from worker.forms import Abandoned, LoopThread, Running


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    thread = LoopThread()
    thread.start()
    yield thread.loop
    thread.close()


def body(agent: Callable[..., Any], loop: asyncio.AbstractEventLoop) -> Running:
    entry = agent if isinstance(agent, AgentEntry) else entry_for("agent", agent)
    ctx, _ = recorded_context()
    return Running(entry, ctx, loop)


def test_an_async_agent_runs_on_the_shared_loop(loop: asyncio.AbstractEventLoop):
    async def agent(ctx: RunContext) -> Any:
        return asyncio.get_running_loop(), current_run() is ctx

    assert body(agent, loop).run().value == (loop, True)


def test_a_sync_agent_runs_in_the_callers_thread(loop: asyncio.AbstractEventLoop):
    def agent(ctx: RunContext) -> Any:
        return threading.current_thread(), current_run() is ctx

    assert body(agent, loop).run().value == (threading.current_thread(), True)


def test_the_current_run_is_gone_after_the_run(loop: asyncio.AbstractEventLoop):
    body(lambda ctx: None, loop).run()
    with pytest.raises(LookupError):
        current_run()


def test_runs_on_one_loop_know_their_own_context(loop: asyncio.AbstractEventLoop):
    async def agent(ctx: RunContext) -> bool:
        await asyncio.sleep(0.01)
        return current_run() is ctx

    bodies = [body(agent, loop) for _ in range(20)]
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda one=one: answers.append(one.run().value)) for one in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert answers == [True] * 20


def test_a_plain_function_that_hands_out_a_coroutine_is_awaited(loop: asyncio.AbstractEventLoop):
    async def agent(ctx: RunContext, word: str) -> str:
        return word

    entry = AgentEntry("agent", functools.partial(agent, word="done"), is_async=False)
    assert body(entry, loop).run().value == "done"


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), MemoryError()])
@pytest.mark.parametrize("form", ["async", "sync"])
def test_nothing_escapes_and_the_loop_lives(loop: asyncio.AbstractEventLoop, error: BaseException, form: str):
    async def coroutine(ctx: RunContext) -> None:
        raise error

    def function(ctx: RunContext) -> None:
        raise error

    assert body(coroutine if form == "async" else function, loop).run().error is error

    async def fine(ctx: RunContext) -> int:
        return 1

    assert body(fine, loop).run().value == 1


def test_a_task_that_an_agent_cancelled_itself_ends_with_cancelled_error(loop: asyncio.AbstractEventLoop):
    async def agent(ctx: RunContext) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    ended = body(agent, loop).run()
    assert isinstance(ended.error, asyncio.CancelledError)


def test_cancelling_the_task_tells_the_agent(loop: asyncio.AbstractEventLoop, eventually: Callable[..., Any]):
    started = threading.Event()

    async def agent(ctx: RunContext) -> None:
        started.set()
        await asyncio.sleep(30)

    one = body(agent, loop)
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(one.run()))
    thread.start()
    assert started.wait(5)
    one.ctx.token.trip(StopCause.CLIENT)
    assert not one.ctx.token.delivered
    assert one.cancel()
    thread.join(5)
    assert isinstance(ended[0].error, asyncio.CancelledError)
    assert one.ctx.token.delivered
    assert not one.cancel()


def test_a_sync_agent_has_no_task_to_cancel(loop: asyncio.AbstractEventLoop):
    one = body(lambda ctx: None, loop)
    one.run()
    assert not one.cancel()


@pytest.mark.parametrize("before", [True, False])
def test_an_async_generator_is_cancelled_at_once_and_closed(loop: asyncio.AbstractEventLoop, before: bool):
    closed = threading.Event()
    started = threading.Event()

    async def agent(given: Any) -> Any:
        started.set()
        try:
            await asyncio.sleep(30)
            yield None
        finally:
            closed.set()

    one = body(agent, loop)
    if before:
        one.ctx.token.trip(StopCause.CLIENT)
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(one.run()))
    thread.start()
    if not before:
        assert started.wait(5)
        one.ctx.token.trip(StopCause.CLIENT)
    thread.join(5)
    assert isinstance(ended[0].error, asyncio.CancelledError)
    assert one.ctx.token.delivered
    assert closed.is_set() == (not before)


def test_a_thread_that_waits_for_a_coroutine_can_be_let_go(loop: asyncio.AbstractEventLoop):
    started, release = threading.Event(), threading.Event()

    async def agent(ctx: RunContext) -> None:
        started.set()
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    one = body(agent, loop)
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(one.run()))
    thread.start()
    assert started.wait(5)
    one.abandon()
    thread.join(5)
    assert isinstance(ended[0].error, Abandoned)
    release.set()
