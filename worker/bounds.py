"""How much one run may say: bytes of one event, events and bytes of the run's log."""

from __future__ import annotations

from shared.protocol import events
from shared.settings import Settings
from worker.failures import ProtocolError
from worker.sink import EventBufferFull

_CLOSING: frozenset[type[object]] = frozenset(
    {
        events.TextMessageEndEvent,
        events.ToolCallEndEvent,
        events.ReasoningMessageEndEvent,
        events.ReasoningEndEvent,
        events.StepFinishedEvent,
        events.SubagentFinishedEvent,
        events.SubagentErrorEvent,
        events.RunFinishedEvent,
        events.RunErrorEvent,
    }
)


def is_closing(event: events.Event) -> bool:
    """Whether the event closes what was opened or ends the run; such events are exempt from the bounds."""
    return type(event) in _CLOSING


class Bounds:
    """Counts one run's frames against its limits."""

    def __init__(self, settings: Settings, *, events: int, size: int = 0) -> None:
        """``events`` and ``size`` (in bytes) are what the log holds already."""
        self.settings = settings
        self.events = events
        self.bytes = size

    def check(self, size: int, *, closing: bool) -> None:
        """Raises ProtocolError for an event over the size limit, EventBufferFull when the log is full."""
        limits = self.settings
        if size > limits.max_bytes_per_event:
            raise ProtocolError(f"an event of {size} bytes is over the limit of {limits.max_bytes_per_event}")
        if closing:
            return
        if self.events >= limits.max_events_per_run:
            raise EventBufferFull(f"the run's log holds its {limits.max_events_per_run} events")
        if self.bytes + size > limits.max_bytes_per_run:
            raise EventBufferFull(f"the run's log holds its {limits.max_bytes_per_run} bytes")

    def count(self, size: int) -> None:
        """Notes a frame that was taken."""
        self.events += 1
        self.bytes += size
