"""Chunk events as the start, content and end events that they stand for.

A chunk may leave out the id of what it continues; then it means what is being assembled in its
lane. A lane is the subagent that a chunk is tagged with, None the parent agent's, and assembles one
thing at a time. The rules of closing are the official client's, which expands chunks on arrival.
"""

from typing import Any, Final, NamedTuple

from shared.protocol.items import MESSAGE, REASONING_MESSAGE, TOOL_CALL, ItemKind

Wire = dict[str, Any]
"""An event or a message as JSON spells it."""


class _Shape(NamedTuple):
    """How chunks of one kind are spelled; ``told`` are the members that the first one establishes."""

    kind: ItemKind
    id: str
    told: tuple[str, ...]
    start: str
    content: str
    end: str


_SHAPES: Final = {
    "TEXT_MESSAGE_CHUNK": _Shape(
        MESSAGE,
        "messageId",
        ("messageId", "role", "name"),
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
    ),
    "TOOL_CALL_CHUNK": _Shape(
        TOOL_CALL,
        "toolCallId",
        ("toolCallId", "toolCallName", "parentMessageId"),
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
    ),
    "REASONING_MESSAGE_CHUNK": _Shape(
        REASONING_MESSAGE,
        "messageId",
        ("messageId",),
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
    ),
}
CHUNK_TYPES: Final = frozenset(_SHAPES)

_LANE_CLOSERS = frozenset(
    {
        *(name for shape in _SHAPES.values() for name in (shape.start, shape.content, shape.end)),
        "TOOL_CALL_RESULT",
        "STATE_SNAPSHOT",
        "STATE_DELTA",
        "CUSTOM",
        "STEP_STARTED",
        "STEP_FINISHED",
        "REASONING_START",
        "REASONING_END",
        "SUBAGENT_FINISHED",
        "SUBAGENT_ERROR",
    }
)
_RUN_LEVEL = frozenset({"RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT"})


class _Assembly(NamedTuple):
    """What a lane assembles; ``opener`` is a chunk that opens it again without adding to it."""

    shape: _Shape
    opener: Wire

    @property
    def id(self) -> str:
        return str(self.opener[self.shape.id])


class ChunkLanes:
    """The lanes of one run."""

    __slots__ = ("_lanes",)

    def __init__(self) -> None:
        self._lanes: dict[str | None, _Assembly] = {}

    def __bool__(self) -> bool:
        """Whether anything is being assembled."""
        return bool(self._lanes)

    def opener(self, kind: ItemKind, item_id: str) -> Wire | None:
        """The chunk after which chunks continue this item without naming it; None if none may."""
        for assembly in self._lanes.values():
            if assembly.shape.kind == kind and assembly.id == item_id:
                return assembly.opener
        return None

    def expand(self, event: Wire) -> list[Wire]:
        """The events that this one stands for, the ends of what it closes first.

        Nothing for a chunk of which no client could tell what it continues.
        """
        name = event["type"]
        shape = _SHAPES.get(name)
        if shape is not None:
            return self._expand_chunk(event, shape)
        if name in _RUN_LEVEL:
            closed = [end for lane in list(self._lanes) for end in self._close(lane)]
        elif name in _LANE_CLOSERS:
            closed = self._close(event.get("subagentRunId"))
        else:
            closed = []
        return [*closed, event]

    def _expand_chunk(self, event: Wire, shape: _Shape) -> list[Wire]:
        named = event.get(shape.id)
        lane = self._lane_of(event, shape, named)
        assembly = self._lanes.get(lane)
        expanded: list[Wire] = []
        if assembly is None or assembly.shape is not shape or named not in {None, assembly.id}:
            if named is None or (shape.kind == TOOL_CALL and "toolCallName" not in event):
                return []
            expanded = self._close(lane)
            assembly = self._lanes[lane] = _Assembly(shape, _opener(event, shape))
            expanded.append(_part(event, assembly.opener | {"type": shape.start}))
        if "delta" in event or "rawEvent" in event or (not expanded and "metadata" in event):
            content = {
                "type": shape.content,
                shape.id: assembly.id,
                "delta": event.get("delta", ""),
            }
            owner = event.get("subagentRunId", assembly.opener.get("subagentRunId"))
            if owner is not None:
                content["subagentRunId"] = owner
            expanded.append(_part(event, content))
        return expanded

    def _lane_of(self, event: Wire, shape: _Shape, named: str | None) -> str | None:
        tag: str | None = event.get("subagentRunId")
        lanes = [lane for lane, assembly in self._lanes.items() if assembly.shape is shape]
        if named is not None:
            return next((lane for lane in lanes if self._lanes[lane].id == named), tag)
        if tag is not None or None in lanes or len(lanes) != 1:
            return tag
        return lanes[0]

    def _close(self, lane: str | None) -> list[Wire]:
        assembly = self._lanes.pop(lane, None)
        if assembly is None:
            return []
        end = {"type": assembly.shape.end, assembly.shape.id: assembly.id}
        if "subagentRunId" in assembly.opener:
            end["subagentRunId"] = assembly.opener["subagentRunId"]
        return [end]


def _opener(event: Wire, shape: _Shape) -> Wire:
    return {name: event[name] for name in ("type", *shape.told, "subagentRunId") if name in event}


def _part(chunk: Wire, part: Wire) -> Wire:
    if "metadata" in chunk:
        part["metadata"] = chunk["metadata"]
    return part
