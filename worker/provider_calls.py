"""What one run's agent marks as calls to its provider: how long each took, and which one is going on."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from shared import tracing
from worker.cancellation import Cancelled, Disconnected

MOST_KEPT = 100
"""How many ended calls of one run are kept: the latest, because the last one is the one that failed."""


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """One ended call; ``started_ms`` is since the epoch by this machine's clock.

    ``failed`` says that it raised something other than the run's stop.
    """

    name: str | None
    started_ms: int
    seconds: float
    failed: bool = False

    def document(self) -> dict[str, str | int | bool]:
        """As the record keeps it: ``name``, ``at`` and ``ms`` in milliseconds, ``failed``."""
        told: dict[str, str | int | bool] = {} if self.name is None else {"name": self.name}
        told |= {"at": self.started_ms, "ms": round(self.seconds * 1000)}
        if self.failed:
            told["failed"] = True
        return told


@dataclass(frozen=True, slots=True)
class CurrentCall:
    """A call that is going on; ``since`` in milliseconds since the epoch."""

    name: str | None
    since: int

    def document(self) -> dict[str, str | int]:
        """As the record keeps it under ``calling``."""
        told: dict[str, str | int] = {} if self.name is None else {"name": self.name}
        return told | {"since": self.since}


class ProviderCalls:
    """The calls of one run; they may overlap, in tasks and in threads."""

    def __init__(self) -> None:
        self._ended: deque[ProviderCall] = deque(maxlen=MOST_KEPT)
        self._open: dict[object, CurrentCall] = {}

    @property
    def ended(self) -> tuple[ProviderCall, ...]:
        """The latest ended calls in the order in which they ended."""
        return tuple(self._ended.copy())

    @property
    def current(self) -> CurrentCall | None:
        """The call that has gone on for longest."""
        return next(iter(list(self._open.values())), None)

    def stored(self) -> str | None:
        """The ended calls as the record keeps them (a JSON list); None when there was none."""
        ended = self.ended
        return json.dumps([call.document() for call in ended], separators=(",", ":")) if ended else None

    @contextmanager
    def calling(self, name: str | None = None) -> Iterator[None]:
        """Measures what happens inside, as a span of the run's trace when tracing is on."""
        call, begun, failed = CurrentCall(name, time.time_ns() // 1_000_000), time.monotonic(), False
        mark = object()
        self._open[mark] = call
        try:
            with tracing.span("outlast.provider_call", kind="client", provider=name) as span:
                try:
                    yield
                except (Cancelled, Disconnected):
                    span.event("outlast.stopped")
                    raise
                except Exception as error:
                    failed = True
                    span.fail(type(error))
                    raise
        finally:
            del self._open[mark]
            self._ended.append(ProviderCall(name, call.since, time.monotonic() - begun, failed))
