"""Where a context's events go: the seam between the agent side and the execution side of a worker."""

from __future__ import annotations

from typing import Protocol

from shared.protocol.events import Event
from shared.protocol.verifier import Verifier


class EventBufferFull(Exception):
    """The run produced more than its log or its buffer may hold."""


class EventSink(Protocol):
    """Takes one run's events, in order, from any thread."""

    @property
    def verifier(self) -> Verifier:
        """The order of the run so far; ``terminated`` once the agent itself sent a terminal event."""

    def await_room(self) -> None:
        """Waits while the buffer is full, never on an event loop's thread; raises Cancelled, Disconnected."""

    def take(self, event: Event) -> None:
        """Verifies, serialises, numbers and buffers an event; it neither waits nor writes.

        Raises VerificationError, SerializationError, EventBufferFull, Disconnected, and
        ProtocolError for an event over the size limit.
        """

    def flush(self) -> None:
        """Has what was taken written; off an event loop's thread perhaps here and now."""

    async def drained(self) -> None:
        """Returns at once below the soft bound, else when the buffer is below it or the token trips."""
