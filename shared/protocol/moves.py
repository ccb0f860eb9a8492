"""What moved or vanished among a run's messages, for the clients that read them before."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from shared.protocol.chunks import Wire

REASONING_ROLE: Final = "reasoning"
ACTIVITY_ROLE: Final = "activity"
CLINGING: Final = (REASONING_ROLE, ACTIVITY_ROLE)
"""Roles of messages that a client may keep although a snapshot leaves them out."""

_AUTHORITY = "@ag-ui/client"
_TYPES = "authoritativeActivityTypes"


class Moves:
    """How far an earlier state of the conversation may differ from the present one.

    ``settled`` leading messages come first, in the same order, in every earlier state, except for
    what is gone by now; None means all of them. ``lost`` holds, by role, the ids (and owners) of
    reasoning and activity messages that a snapshot of the agent removed or made something else.
    ``activity_types`` are the types of which the agent told every activity there is; None: all types.
    """

    __slots__ = ("_removed", "activity_types", "lost", "settled")

    def __init__(self, messages: Sequence[Wire]) -> None:
        self.settled: int | None = _first_doubled(messages)
        self.lost: dict[str, dict[str, str | None]] = {role: {} for role in CLINGING}
        self.activity_types: frozenset[str] | None = frozenset()
        self._removed: set[str] = set()

    def inserted(self, at: int) -> None:
        """A message came to stand at ``at``, before others, or shares its id with the one there."""
        self.settled = at if self.settled is None else min(self.settled, at)

    def appeared(self, message_ids: Iterable[str]) -> None:
        """Messages were added; one that a snapshot had removed may stand anywhere in earlier states."""
        if not self._removed.isdisjoint(message_ids):
            self.settled = 0

    def restated(self, before: Sequence[Wire], after: Sequence[Wire], types: frozenset[str] | None) -> None:
        """A snapshot of the agent, complete for activities of ``types``, made ``after`` of ``before``."""
        known = {message["id"] for message in before}
        left = {message["id"] for message in after}
        if self.settled is not None:
            self.settled = sum(message["id"] in left for message in before[: self.settled])
        self.appeared(left - known)
        doubled = _first_doubled(after)
        if doubled is not None:
            self.inserted(doubled)
        self._removed |= known - left
        for message in before:
            if message["role"] in CLINGING:
                self.lost[message["role"]][message["id"]] = message.get("subagentRunId")
        if self.activity_types is not None:
            self.activity_types = None if types is None else self.activity_types | types


def complete_types(messages: Iterable[Wire], metadata: Wire | None) -> frozenset[str] | None:
    """Of which types a MESSAGES_SNAPSHOT with these members names every activity; None: of all.

    The convention and what an absent or malformed declaration means are the official client's.
    """
    declared: Any = (metadata or {}).get(_AUTHORITY, {})
    if not isinstance(declared, dict):
        return frozenset()
    if _TYPES not in declared:
        tells_some = any(message["role"] == ACTIVITY_ROLE for message in messages)
        return None if tells_some else frozenset()
    types = declared[_TYPES]
    if types is None:
        return None
    if isinstance(types, list) and all(isinstance(name, str) for name in types):
        return frozenset(types)
    return frozenset()


def snapshot_of(messages: Sequence[Wire], types: frozenset[str] | None) -> Wire:
    """A MESSAGES_SNAPSHOT that is complete for activities of these types; it says so where needed."""
    event: Wire = {"type": "MESSAGES_SNAPSHOT", "messages": messages}
    if complete_types(messages, None) != types:
        event["metadata"] = {_AUTHORITY: {_TYPES: None if types is None else sorted(types)}}
    return event


def _first_doubled(messages: Sequence[Wire]) -> int | None:
    """Where the first message stands whose id another one has too."""
    first: dict[str, int] = {}
    doubled = [at for at, message in enumerate(messages) if first.setdefault(message["id"], at) != at]
    return min((first[messages[at]["id"]] for at in doubled), default=None)
