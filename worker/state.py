"""The state that an agent shares with its client: the request's, changed silently, published on demand."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from shared.protocol.events import Event, StateDeltaEvent, StateSnapshotEvent
from worker.json_form import fitting, from_json
from worker.publication import Publication


class SharedState:
    """One run's state: any JSON value, or an instance of ``model``. Changing it sends nothing."""

    def __init__(self, initial: Any, model: type[BaseModel] | None = None) -> None:
        self._initial = initial
        self._model = model
        self._loaded = False
        self._value: Any = None
        self._publication = Publication()
        self._publishing = threading.RLock()

    def load(self) -> None:
        """Takes the request's state; absent, null and an empty object give the model's default.

        Raises SerializationError for a state that does not fit the model.
        """
        if self._loaded:
            return
        if self._model is None:
            self._value = {} if self._initial is None else copy.deepcopy(self._initial)
        elif self._initial is None or self._initial == {}:
            self._value = from_json("{}", "the agent's default state", self._model)
        else:
            self._value = fitting(self._model, self._initial, "the request's state")
        self._loaded = True

    @property
    def value(self) -> Any:
        """The state itself."""
        self.load()
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value = value if self._model is None else fitting(self._model, value, "the new state")
        self._loaded = True

    def assign(self, members: Mapping[str, Any]) -> None:
        """Sets members of the state: keys of a mapping, attributes of a model."""
        for name, member in members.items():
            if isinstance(self.value, BaseModel):
                setattr(self.value, name, member)
            else:
                self.value[name] = member

    def publish(self, put: Callable[[Event], None]) -> bool:
        """Sends what changed through ``put``, first a snapshot; says whether there was anything to send.

        Raises SerializationError for a state that has no JSON form, and what ``put`` raises; then clients
        still have what they had.
        """
        with self._publishing:
            change = self._publication.change_to(self.value)
            if change is None:
                return False
            before, self._publication.text = self._publication.text, change.text
            try:
                # Noted before it is sent: whoever sends another state in its place resets.
                put(
                    StateSnapshotEvent(snapshot=change.content)
                    if change.whole
                    else StateDeltaEvent.model_validate({"delta": change.content})
                )
            except BaseException:
                self._publication.text = before
                raise
            return True

    def reset(self) -> None:
        """Forgets what clients have, so that the next publishing is a snapshot."""
        with self._publishing:
            self._publication.text = None
