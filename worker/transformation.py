"""What stands between an agent and its log: transformers, each turning one event into none or several."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from shared.protocol import events as ag
from shared.protocol.events import Event
from worker.cancellation import Cancelled, Disconnected
from worker.terminal import TERMINAL

Transformer = Callable[[Event], Iterable[Event]]
"""Turns one event into none, one or several, before they are verified; an instance serves one run."""

LAST_SECONDS = 1.0
"""How long a run's ending waits for a transformer that is still busy in a thread the agent left behind."""


class TransformerFailed(Exception):
    """A transformer raised. Its state is unknown, so it sees nothing more and its run ends as failed."""


class Transformation:
    """One run's transformers, in order. ``failure`` is set for good by the first one that raises."""

    def __init__(self, transformers: Sequence[Transformer] = ()) -> None:
        self.failure: TransformerFailed | None = None
        self._transformers = tuple(transformers)
        self._lock = threading.RLock()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._transformers)

    def send(self, event: Event, put: Callable[[Event], None]) -> list[Event]:
        """Puts what becomes of an event, in one piece also among threads, and returns it.

        ``put`` is called under a lock, so it neither waits nor writes. Raises TransformerFailed, also for
        every event after the first failure, and what ``put`` raises.
        """
        with self._lock:
            made = self._transformed(event)
            for one in made:
                put(one)
        return made

    def last(self, event: Event) -> list[Event]:
        """What becomes of one of the worker's own events; raises TransformerFailed."""
        with self._held():
            return self._transformed(event)

    @contextmanager
    def _held(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=LAST_SECONDS):
            raise TransformerFailed("a transformer does not come to an end")
        try:
            yield
        finally:
            self._lock.release()

    def _transformed(self, event: Event) -> list[Event]:
        if self.failure is not None:
            raise self.failure
        made = [event]
        for transform in self._transformers:
            try:
                made = [later for earlier in made for later in _turned(transform, earlier)]
            except (Cancelled, Disconnected):
                raise
            except BaseException as error:
                self.failure = TransformerFailed(f"the transformer {_name(transform)} failed")
                raise self.failure from error
        return made


def _turned(transform: Transformer, event: Event) -> list[Event]:
    made = list(transform(event))
    for index, one in enumerate(made):
        if not isinstance(one, ag.BaseEvent):
            raise TypeError(f"it made a {type(one).__name__}, which is no AG-UI event")
        if isinstance(one, TERMINAL):
            return made[: index + 1]
    # A run without its terminal event would be worse than one that shows it.
    return [*made, event] if isinstance(event, TERMINAL) else made


def _name(transform: Transformer) -> str:
    return getattr(transform, "__qualname__", type(transform).__qualname__)
