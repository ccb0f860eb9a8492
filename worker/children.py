"""Kills a pool child whose agent does not stop although its run was ended; only where nothing else is hit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from shared.logs import get_logger
from shared.settings import Settings
from shared.store import keys
from shared.store.channel import Message, Subscription
from worker.fork_gate import FORK_GATE
from worker.process import worker_name

STOP_SECONDS = 1.0
"""What a child gets to stop its agent after its run was ended."""

_TICK_SECONDS = 0.1

log = get_logger(__name__)


class Children:
    """A thread in the pool's parent. ``kill`` kills the child with this pid if it still has this run."""

    def __init__(self, settings: Settings, name: str, kill: Callable[[str, int], None]) -> None:
        self._kill = kill
        self._condemned: list[tuple[float, str, int]] = []
        self._subscription = Subscription(settings.redis_url)
        self._subscription.subscribe(keys.family_channel(name))
        self._thread = threading.Thread(target=self._loop, name="outlast-children", daemon=True)

    def start(self) -> None:
        """Starts listening."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._subscription.close()

    def _loop(self) -> None:
        while not self._subscription.closed:
            try:
                happening = self._subscription.get(_TICK_SECONDS if self._condemned else 1.0)
                with FORK_GATE:
                    if isinstance(happening, Message):
                        self.hear(happening.data)
                    self._carry_out(time.monotonic())
            except Exception:
                log.exception("children.failed")
                time.sleep(_TICK_SECONDS)

    def hear(self, message: bytes) -> None:
        """``child KEY EXECUTION WORKER PID``: a name that is not made of the pid is none of ours."""
        word, *parts = message.decode(errors="replace").split(" ")
        if word != "child" or len(parts) != 4 or not parts[3].isdigit():
            return
        key, _, worker, pid = parts
        if worker == worker_name(int(pid)):
            self._condemned.append((time.monotonic() + STOP_SECONDS, key, int(pid)))

    def _carry_out(self, now: float) -> None:
        due = [one for one in self._condemned if one[0] <= now]
        self._condemned = [one for one in self._condemned if one[0] > now]
        for _, key, pid in due:
            self._kill(key, pid)
