"""How many runs an actor has under way: a soft count that costs no command while it is far from the limit."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from shared.store.store import Store

FRESH_SECONDS = 1.0
"""A count older than this is read again."""

_MOST_ACTORS = 4096


@dataclass(slots=True)
class _Count:
    read_at: float
    active: int


class ActiveRuns:
    """Counts read from Redis, raised by this process's own accepts in between.

    A refusal always rests on a count read for it, so runs that ended a moment ago never count against their
    actor.
    """

    def __init__(self, store: Store, limit: int) -> None:
        self.store = store
        self.limit = limit
        self._counts: dict[str, _Count] = {}
        self._lock = threading.Lock()

    def has_room(self, actor: str) -> bool:
        """Whether the actor may have one more; raises ``StoreError`` when a needed count cannot be read."""
        count, now = self._counts.get(actor), time.monotonic()
        if count and count.active < self.limit:
            if now - count.read_at < FRESH_SECONDS:
                return True
            # One request reads for all that come meanwhile.
            count.read_at = now
        active = self.store.active_runs(actor)
        with self._lock:
            if len(self._counts) >= _MOST_ACTORS and actor not in self._counts:
                self._counts.clear()
            self._counts[actor] = _Count(time.monotonic(), active)
        return active < self.limit

    def note_accepted(self, actor: str) -> None:
        """Counts a run that this process just accepted."""
        with self._lock:
            count = self._counts.get(actor)
            if count:
                count.active += 1
