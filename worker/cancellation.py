"""The token that says a run is to stop, and what its agent is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from shared.logs import get_logger
from shared.runs.outcome import StopCause

log = get_logger(__name__)


class Cancelled(Exception):
    """The run is to stop; raised by every emit and check once the token has tripped."""


class Disconnected(Exception):
    """This execution no longer owns its run: nobody reads what it still writes."""


class CancellationToken:
    """A stop flag for one execution; safe to use from any thread.

    It trips once and stays tripped; the first cause stands. ``delivered`` says that the agent has
    been told, and is set only by ``mark_delivered``: waits and callbacks of the worker's own do not
    count as the agent's.
    """

    __slots__ = ("_callbacks", "_lock", "cause", "delivered", "tripped")

    def __init__(self) -> None:
        self.tripped = False
        self.cause: StopCause | None = None
        self.delivered = False
        self._lock = threading.Lock()
        self._callbacks: dict[object, Callable[[], object]] = {}

    def trip(self, cause: StopCause) -> bool:
        """Trips the token and calls everybody who waits; False if it had tripped already."""
        with self._lock:
            if self.tripped:
                return False
            self.cause = cause
            self.tripped = True
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        for callback in callbacks:
            _call(callback)
        return True

    def on_trip(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Has ``callback`` called once by the tripping thread, at once if that is over; returns the way back.

        What a callback raises is logged, so that it cannot keep others from being called.
        """
        ticket = object()
        with self._lock:
            waiting = not self.tripped
            if waiting:
                self._callbacks[ticket] = callback
        if not waiting:
            _call(callback)

        def unsubscribe() -> None:
            with self._lock:
                self._callbacks.pop(ticket, None)

        return unsubscribe

    def mark_delivered(self) -> None:
        """Records that the agent was told of the trip; without a trip it does nothing."""
        if self.tripped:
            self.delivered = True

    def stopping(self) -> Cancelled | Disconnected:
        """The exception that tells the agent, by cause."""
        self.mark_delivered()
        if self.cause is StopCause.LOST:
            return Disconnected("this execution no longer owns its run")
        return Cancelled(f"the run is to stop ({self.cause})")

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks this thread until the trip, at most ``timeout`` seconds; says whether it tripped."""
        rung = threading.Event()
        unsubscribe = self.on_trip(rung.set)
        try:
            return rung.wait(timeout)
        finally:
            unsubscribe()

    async def wait_async(self) -> None:
        """Waits for the trip on the running event loop."""
        if self.tripped:
            return
        rung: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        unsubscribe = self.on_trip(lambda: wake(rung))
        try:
            await rung
        finally:
            unsubscribe()


def wake(future: asyncio.Future[None]) -> None:
    """Completes a future from any thread; one that is done or whose loop is closed stays as it is."""

    def complete() -> None:
        if not future.done():
            future.set_result(None)

    try:
        future.get_loop().call_soon_threadsafe(complete)
    except RuntimeError:
        log.debug("cancellation.loop_closed")


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:  # one bad listener must not keep the others from hearing
        log.warning("cancellation.callback_failed", exc_info=True)
