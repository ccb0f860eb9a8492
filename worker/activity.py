"""An activity: structured content that a client shows and that changes while the run goes on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from shared.protocol import events as ag
from shared.protocol.events import SerializationError
from shared.protocol.patch import PatchError, apply_patch
from worker.blocks import SCOPE, Host
from worker.failures import ProtocolError
from worker.json_form import fitting, json_text
from worker.publication import Publication

Content = Mapping[str, Any] | BaseModel


class Activity:
    """One activity, shown from the moment it is made; ``id`` names its message, ``content`` is the agent's.

    Change ``content`` freely and ``publish``, or ``replace`` it, or ``patch`` it. An activity has no end.
    """

    def __init__(
        self,
        host: Host,
        activity_type: str,
        content: Content,
        *,
        activity_id: str | None = None,
        replace: bool = True,
    ) -> None:
        self.id = activity_id or host.new_id("act")
        self.type = activity_type
        self.content: Any = content
        self._host = host
        self._owner = SCOPE.get()
        self._publication = Publication()
        self._publishing = threading.RLock()
        with host.room():
            self._show(None if replace else False)

    def publish(self) -> None:
        """Sends what changed in ``content``: the shorter of patch and whole, nothing when nothing did."""
        with self._host.room(), self._publishing:
            change = self._publication.change_to(_object(self.content))
            if change is None:
                return
            if change.whole:
                self._show(None)
                return
            self._host.take(self._patch_event(change.content), self._owner)
            self._publication.text = change.text

    def replace(self, content: Content) -> None:
        """Sends new content in place of the old."""
        with self._host.room(), self._publishing:
            self.content = content
            self._show(None)

    def patch(self, operations: Iterable[Mapping[str, Any]]) -> None:
        """Sends RFC 6902 operations and applies them to ``content``.

        Raises ProtocolError for operations that do not apply, or that the protocol refuses, and
        SerializationError for what is no JSON object then or does not fit its model; nothing is sent.
        """
        with self._host.room(), self._publishing:
            try:
                made = [dict(operation) for operation in operations]
                event = self._patch_event(made)
                patched = apply_patch(_object(self.content), made)
            except (PatchError, ValidationError, KeyError, TypeError, ValueError) as error:
                if isinstance(error, SerializationError):
                    raise
                raise ProtocolError(f"the patch does not apply ({type(error).__name__})") from None
            text = json_text(_object(patched))
            if isinstance(self.content, BaseModel):
                patched = fitting(type(self.content), patched, "the patched content")
            self._host.take(event, self._owner)
            self.content = patched
            self._publication.text = text

    def _show(self, replace: bool | None) -> None:
        content = _object(self.content)
        self._host.take(
            ag.ActivitySnapshotEvent(
                message_id=self.id, activity_type=self.type, content=content, replace=replace
            ),
            self._owner,
        )
        # A client that keeps what it has of an earlier run may hold anything.
        self._publication.text = json_text(content) if replace is None else None

    def _patch_event(self, operations: list[dict[str, Any]]) -> ag.ActivityDeltaEvent:
        event = {"messageId": self.id, "activityType": self.type, "patch": operations}
        return ag.ActivityDeltaEvent.model_validate(event)


def _object(content: Content) -> dict[str, Any]:
    """The content as the JSON object that it must be; a copy, so later changes do not reach what was sent."""
    found = json.loads(json_text(content))
    if not isinstance(found, dict):
        raise SerializationError("an activity's content is an object")
    return found
