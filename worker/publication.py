"""What a client has of a value, and the shorter way to bring it up to date: all of it, or a patch."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import jsonpatch

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
        if _canonical(before) == _canonical(now):
            return None
        patch = _patch(before, now)
        if patch is not None and len(json_text(patch).encode()) < len(text.encode()):
            return Change(False, patch, text)
        return Change(True, now, text)


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
