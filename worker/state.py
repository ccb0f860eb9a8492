"""The state that an agent shares with its client: what was published, and how to tell what changed."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonpatch

from shared.protocol.events import Event, StateDeltaEvent, StateSnapshotEvent
from worker.blocks import json_text


class SharedState:
    """One run's state. ``value`` is any JSON value; changing it sends nothing until it is published."""

    def __init__(self, initial: Any) -> None:
        self.value: Any = {} if initial is None else copy.deepcopy(initial)
        self._published: str | None = None

    def changes(self) -> tuple[Event | None, str]:
        """The event that brings a client up to date, None if it is, and the text to remember once sent.

        The first is a snapshot; later ones are an RFC 6902 patch where that is strictly shorter.
        Raises SerializationError for a state that has no JSON form.
        """
        text = json_text(self.value)
        now = json.loads(text)
        if self._published is None:
            return StateSnapshotEvent(snapshot=now), text
        before = json.loads(self._published)
        if _canonical(before) == _canonical(now):
            return None, text
        patch = _patch(before, now)
        if patch is not None and len(json_text(patch).encode()) < len(text.encode()):
            return StateDeltaEvent.model_validate({"delta": patch}), text
        return StateSnapshotEvent(snapshot=now), text

    def remember(self, text: str) -> None:
        """Notes what clients have now."""
        self._published = text

    def reset(self) -> None:
        """Forgets what clients have, so that the next publishing is a snapshot."""
        self._published = None


def _patch(before: Any, now: Any) -> list[dict[str, Any]] | None:
    """The operations from one value to the other, None where the library finds none that do it."""
    if not isinstance(before, (dict, list)) or type(before) is not type(now):
        return None
    try:
        found = jsonpatch.make_patch(before, now)
        arrived = found.apply(before)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, ValueError, KeyError):
        return None
    operations: list[dict[str, Any]] = found.patch
    return operations if _canonical(arrived) == _canonical(now) else None


def _canonical(value: Any) -> str:
    # As text, because True == 1 == 1.0 for Python but not for a client.
    return json.dumps(value, sort_keys=True)
