"""One claimed run in this process's hands, as pulse, driver and drain share it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from shared.runs.outcome import CANCEL_CAUSES, FailureCode, StopCause
from shared.store.answers import Claim
from worker.cancellation import CancellationToken

if TYPE_CHECKING:
    from worker.context import RunContext
    from worker.emitter import RunEmitter
    from worker.forms import Running


class Execution:
    """A claim and what runs under it; ``deadline`` and ``stopped_at`` are moments of the monotonic clock.

    ``abandoned``: its run is ended from outside and nothing is recorded here any more; ``left_behind``: that
    was done, and its agent still goes on.
    """

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.key = claim.key
        self.id = claim.execution
        self.token = CancellationToken()
        self.claimed_at = time.monotonic()
        self.deadline = self.claimed_at + claim.seconds_left
        self.stopped_at: float | None = None
        self.task_cancels = 0
        self.abandoned = False
        self.left_behind = False
        self.recording = False
        self.emitter: RunEmitter | None = None
        self.running: Running | None = None
        self.context: RunContext | None = None
        self._stopping = False
        self._lock = threading.Lock()
        self.token.on_trip(self._note)

    def _note(self) -> None:
        self.stopped_at = time.monotonic()

    def stop(self, cause: StopCause) -> None:
        """Trips the token in a thread of its own: what an agent hung on the trip may block or be slow."""
        with self._lock:
            if self._stopping or self.token.tripped:
                return
            self._stopping = True
        threading.Thread(
            target=self.token.trip, args=(cause,), name=f"outlast-stop-{self.key}", daemon=True
        ).start()

    def cancel_task(self) -> None:
        """Cancels the asyncio task of an async agent; a sync one has none."""
        if self.running is not None and self.running.cancel():
            self.task_cancels += 1

    def ending(self, code: FailureCode) -> str:
        """How it ends from outside: as ``code``, unless somebody asked for the stop before."""
        return "cancelled" if self.token.cause in CANCEL_CAUSES else str(code)
