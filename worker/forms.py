"""Runs an agent in its form: a coroutine on the process's loop, a plain function in the caller's thread."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
import weakref
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from shared.logs import get_logger
from worker.agents.base import AgentEntry
from worker.cancellation import CancellationToken
from worker.context import RunContext, running

log = get_logger(__name__)

_left: weakref.WeakSet[asyncio.Task[None]] = weakref.WeakSet()


def coroutines_left() -> int:
    """Async agents of this process that go on although nobody waits for them: they hold no slot."""
    return sum(not task.done() for task in list(_left))


@dataclass(frozen=True, slots=True)
class Ended:
    """How an agent's body ended: what it returned or what escaped it, whatever that is."""

    value: Any = None
    error: BaseException | None = None


class Abandoned(Exception):
    """The worker does not wait for this agent any more; its run was ended from outside."""


class Running:
    """One agent's body. ``run`` is called once and waits for the end; the others may come from any thread."""

    def __init__(self, entry: AgentEntry, ctx: RunContext, loop: asyncio.AbstractEventLoop) -> None:
        self.entry = entry
        self.ctx = ctx
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._ended: Ended | None = None
        self._over = threading.Event()

    def run(self) -> Ended:
        """Runs the agent to its end; nothing escapes."""
        if self.entry.is_async:
            return self._on_loop(lambda: self.entry.run(self.ctx))
        try:
            with running(self.ctx):
                value = self.entry.run(self.ctx)
        except BaseException as error:  # noqa: BLE001 - becomes the run's one recorded ending
            return Ended(error=error)
        # A plain function may hand out a coroutine, as a functools.partial of an async one does.
        return self._on_loop(lambda: value) if inspect.isawaitable(value) else Ended(value)

    def cancel(self) -> bool:
        """Cancels the asyncio task, which tells the agent; False when there is none to cancel."""
        task = self._task
        if task is None or self._over.is_set():
            return False
        self._loop.call_soon_threadsafe(self._cancel, task, self.ctx.token)
        return True

    def abandon(self) -> None:
        """Lets the thread that waits for a coroutine go; a plain function has no such thread."""
        task = self._task
        if task is not None and not task.done():
            _left.add(task)
        self._finish(Ended(error=Abandoned("the run was ended from outside")))

    def _on_loop(self, start: Any) -> Ended:
        self._loop.call_soon_threadsafe(self._start, start)
        unsubscribe = self.ctx.token.on_trip(self.cancel) if self.entry.cancel_at_once else None
        self._over.wait()
        if unsubscribe:
            unsubscribe()
        return self._ended or Ended()

    def _start(self, start: Any) -> None:
        self._task = asyncio.create_task(self._body(start))
        # A task that is cancelled before its first step never enters the body.
        self._task.add_done_callback(lambda _: self._finish(Ended(error=asyncio.CancelledError())))
        if self.entry.cancel_at_once and self.ctx.token.tripped:
            self._cancel(self._task, self.ctx.token)

    async def _body(self, start: Any) -> None:
        try:
            with running(self.ctx):
                work: Awaitable[Any] = start()
                ended = Ended(await work)
        except BaseException as error:  # noqa: BLE001 - SystemExit and its like must not end the shared loop
            ended = Ended(error=error)
        self._finish(ended)

    def _finish(self, ended: Ended) -> None:
        if self._ended is None:
            self._ended = ended
        self._over.set()

    @staticmethod
    def _cancel(task: asyncio.Task[None], token: CancellationToken) -> None:
        if not task.done():
            token.mark_delivered()
            task.cancel()


class LoopThread:
    """The event loop that all async agents of this process share; it survives what escapes their tasks."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._closing = False
        self._asked: float | None = None
        self._thread = threading.Thread(target=self._run, name="outlast-loop", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self, timeout: float = 1.0) -> None:
        """Stops the loop; a task that blocks it is left behind."""
        self._closing = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout)
        if not self._thread.is_alive():
            self.loop.close()

    def blocked_seconds(self) -> float:
        """How long a question to the loop has been open; each call asks one when none is."""
        now, asked = time.monotonic(), self._asked
        if asked is not None:
            return now - asked
        self._asked = now
        try:
            self.loop.call_soon_threadsafe(self._answer)
        except RuntimeError:  # closed
            self._asked = None
        return 0.0

    def _answer(self) -> None:
        self._asked = None

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._closing:
            try:
                self.loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - an agent's own task may raise SystemExit through it
                log.warning("loop.escaped", error=type(error).__name__)
