"""Whether a worker can still be trusted with runs: agents left behind, a blocked event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable

from shared.settings import Settings
from worker.process import Process

LOOK_SECONDS = 0.5


def complaint(process: Process, settings: Settings, slots: int) -> str | None:
    """Why this process should take no more runs, or None."""
    abandoned = process.pulse.abandoned
    if abandoned > slots * settings.abandoned_share:
        return f"{abandoned} of {slots} slots are held by agents that do not stop"
    blocked = process.loop_blocked_seconds
    if blocked >= settings.loop_blocked_seconds:
        return f"the event loop has been blocked for {blocked:.0f} s"
    return None


class Condition:
    """Looks at a process until ``unfit`` was called with the first complaint; a daemon thread."""

    def __init__(
        self, process: Process, settings: Settings, slots: int, unfit: Callable[[str], None]
    ) -> None:
        self._process = process
        self._settings = settings
        self._slots = slots
        self._unfit = unfit
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="outlast-condition", daemon=True)

    def start(self) -> None:
        """Starts looking."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()

    def _loop(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            found = complaint(self._process, self._settings, self._slots)
            if found is not None:
                self._unfit(found)
                return
