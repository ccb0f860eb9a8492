"""Work against a token: whichever comes first decides."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import TypeVar

from worker.cancellation import CancellationToken, wake

T = TypeVar("T")

UNWIND_SECONDS = 1.0
"""How long work that lost against the token may take to unwind before it is left behind."""


async def race(token: CancellationToken, work: Awaitable[T]) -> T | None:
    """The work's result, or None when the token trips first; then the work is cancelled.

    Work that is done by the time the trip is noticed has won.
    """
    if token.tripped:
        token.mark_delivered()
        _drop(work)
        return None
    task: asyncio.Future[T] = asyncio.ensure_future(work)
    settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task.add_done_callback(lambda _: None if settled.done() else settled.set_result(None))
    unsubscribe = token.on_trip(lambda: wake(settled))
    try:
        await settled
    except asyncio.CancelledError:
        await _unwind(task)
        raise
    finally:
        unsubscribe()
    if task.done():
        return task.result()
    token.mark_delivered()
    await _unwind(task)
    return None


def race_in_thread(token: CancellationToken, work: Callable[[], T]) -> T | None:
    """The callable's result from a thread beside the token, or None when the token trips first.

    Raises TypeError on an event loop's thread, which it would block.
    """
    if on_event_loop():
        raise TypeError("on an event loop give until_cancelled an awaitable, such as asyncio.to_thread(work)")
    if token.tripped:
        token.mark_delivered()
        return None
    settled = threading.Event()
    results: list[T] = []
    errors: list[BaseException] = []
    context = copy_context()

    def run() -> None:
        try:
            results.append(context.run(work))
        except BaseException as error:  # noqa: BLE001 - raised again where the agent waits
            errors.append(error)
        finally:
            settled.set()

    unsubscribe = token.on_trip(settled.set)
    try:
        threading.Thread(target=run, name="outlast-until-cancelled", daemon=True).start()
        settled.wait()
    finally:
        unsubscribe()
    if errors:
        raise errors[0]
    if results:
        return results[0]
    token.mark_delivered()
    return None


def on_event_loop() -> bool:
    """Whether this thread is running an event loop right now."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _drop(work: Awaitable[object]) -> None:
    """Lets go of work that is never started."""
    if asyncio.iscoroutine(work):
        work.close()
    elif isinstance(work, asyncio.Future):
        work.cancel()


async def _unwind(task: asyncio.Future[T]) -> None:
    """Cancels the work and waits a moment for it; what it still raises is its own affair."""
    task.cancel()
    await asyncio.wait({task}, timeout=UNWIND_SECONDS)
    if task.done() and not task.cancelled():
        task.exception()
