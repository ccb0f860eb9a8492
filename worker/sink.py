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

    def put(self, event: Event) -> None:
        """Verifies, serialises, numbers and buffers an event.

        On an event loop's thread it never waits; elsewhere it may block while the buffer is full.
        Raises VerificationError, SerializationError, EventBufferFull, Disconnected, and
        ProtocolError for an event over the size limit.
        """

    async def drained(self) -> None:
        """Returns at once below the soft bound, else when the buffer is below it or the token trips."""
