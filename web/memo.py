"""Values that are read once and kept for a moment, so that a busy process asks Redis rarely."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Memo(Generic[Key, Value]):
    """Keeps what ``read`` gave for ``seconds``, at most ``most`` values; safe to share between threads.

    Two threads that miss at once both read: a lock held over I/O would make everybody wait for the slowest.
    """

    def __init__(self, seconds: float, *, most: int = 1024) -> None:
        self.seconds = seconds
        self.most = most
        self._kept: dict[Key, tuple[float, Value]] = {}
        self._lock = threading.Lock()

    def get(self, key: Key, read: Callable[[], Value]) -> Value:
        """The kept value, or what ``read`` gives now; an exception of ``read`` is raised and not kept."""
        held = self._kept.get(key)
        if held is not None and time.monotonic() < held[0]:
            return held[1]
        value = read()
        self.put(key, value)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Keeps a value from now on."""
        with self._lock:
            if len(self._kept) >= self.most and key not in self._kept:
                self._make_room()
            self._kept[key] = (time.monotonic() + self.seconds, value)

    def forget(self, key: Key) -> None:
        """Drops a value, so that the next ``get`` reads."""
        with self._lock:
            self._kept.pop(key, None)

    def _make_room(self) -> None:
        now = time.monotonic()
        self._kept = {key: held for key, held in self._kept.items() if held[0] > now}
        while len(self._kept) >= self.most:
            del self._kept[next(iter(self._kept))]
