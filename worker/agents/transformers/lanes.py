"""Which message or call a chunk belongs to that does not say so (AG-UI 1.0, chunk events)."""

from __future__ import annotations

from typing import NamedTuple

from shared.protocol import events as ag
from shared.protocol.events import Event

CHUNKS = (ag.TextMessageChunkEvent, ag.ToolCallChunkEvent, ag.ReasoningMessageChunkEvent)

_RUN_LEVEL = (ag.RunStartedEvent, ag.RunFinishedEvent, ag.RunErrorEvent, ag.MessagesSnapshotEvent)
_KEEPS_LANE = (
    ag.RawEvent,
    ag.ActivitySnapshotEvent,
    ag.ActivityDeltaEvent,
    ag.ReasoningEncryptedValueEvent,
    ag.SubagentStartedEvent,
)


class _Item(NamedTuple):
    kind: type[object]
    id: str


class Lanes:
    """What each lane assembles; a lane is the subagent a chunk is tagged with, None the parent agent's."""

    def __init__(self) -> None:
        self._lanes: dict[str | None, _Item] = {}

    def follow(self, event: Event) -> str | None:
        """Notes an event; for a chunk the id of its message or call, None where nobody could tell."""
        if isinstance(event, CHUNKS):
            return self._chunk(event)
        if isinstance(event, _RUN_LEVEL):
            self._lanes.clear()
        elif self._lanes and not isinstance(event, _KEEPS_LANE):
            self._lanes.pop(event.subagent_run_id, None)
        return None

    def _chunk(
        self, event: ag.TextMessageChunkEvent | ag.ToolCallChunkEvent | ag.ReasoningMessageChunkEvent
    ) -> str | None:
        named = chunk_id(event)
        tag, kind = event.subagent_run_id, type(event)
        lanes = [lane for lane, item in self._lanes.items() if item.kind is kind]
        if named is not None:
            lane = next((lane for lane in lanes if self._lanes[lane].id == named), tag)
            self._lanes[lane] = _Item(kind, named)
            return named
        lane = lanes[0] if tag is None and None not in lanes and len(lanes) == 1 else tag
        item = self._lanes.get(lane)
        return item.id if item is not None and item.kind is kind else None


def chunk_id(
    event: ag.TextMessageChunkEvent | ag.ToolCallChunkEvent | ag.ReasoningMessageChunkEvent,
) -> str | None:
    """The id that a chunk itself gives."""
    return event.tool_call_id if isinstance(event, ag.ToolCallChunkEvent) else event.message_id
