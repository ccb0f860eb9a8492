"""Stamps events with the time at which they were sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from shared.protocol.events import Event


def _now() -> int:
    return time.time_ns() // 1_000_000


class Timestamps:
    """Gives every event without a timestamp the worker's time, in milliseconds since the epoch.

    RUN_STARTED has none: it is written when the run is accepted, before any worker has it.
    """

    def __init__(self, clock: Callable[[], int] = _now) -> None:
        self._clock = clock

    def __call__(self, event: Event) -> Iterable[Event]:
        """The event, stamped."""
        return [
            event if event.timestamp is not None else event.model_copy(update={"timestamp": self._clock()})
        ]
