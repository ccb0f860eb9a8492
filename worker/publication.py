"""What a client has of a value, and the shorter way to bring it up to date: all of it, or a patch."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from shared.protocol.patch import PatchError, apply_patch
from worker.difference import canonical, difference
from worker.json_form import json_text


class Change(NamedTuple):
    """What is to be sent: ``content`` is the ``whole`` value, or an RFC 6902 patch that leads to ``text``."""

    whole: bool
    content: Any
    text: str


class Publication:
    """One value as its readers know it. ``text`` is what they have, None while that is not known."""

    def __init__(self) -> None:
        self.text: str | None = None

    def change_to(self, value: Any) -> Change | None:
        """How to bring readers to ``value``, None if they have it; nothing is noted.

        The whole value if it is not known what they have, else a patch where that is strictly shorter.
        Raises SerializationError for a value without JSON form.
        """
        text = json_text(value)
        now = json.loads(text)
        if self.text is None:
            return Change(True, now, text)
        before = json.loads(self.text)
        if canonical(before) == canonical(now):
            return None
        patch = _patch(before, now, len(text.encode()))
        return Change(True, now, text) if patch is None else Change(False, patch, text)


def _patch(before: Any, now: Any, most: int) -> list[dict[str, Any]] | None:
    """The operations from one value to the other if they are shorter than ``most`` bytes, else None."""
    if not isinstance(before, (dict, list)) or type(before) is not type(now):
        return None
    try:
        found = difference(before, now)
        if len(json_text(found).encode()) >= most:
            return None
        arrived = apply_patch(before, found)
    except (PatchError, RecursionError):
        # A place that the client's library does not patch.
        return None
    return found if canonical(arrived) == canonical(now) else None
