"""AG-UI events in the forms in which others hand them over: models, mappings, JSON texts, SSE frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast, get_args

import orjson
from pydantic_core import PydanticSerializationError

from shared.logs import get_logger
from shared.protocol import events as ag
from worker.agents.event_source import EventSource
from worker.failures import ProtocolError

log = get_logger(__name__)

MOST_LOGGED = 20
"""How many unknown types of one stream are logged."""

_MODELS = frozenset(get_args(get_args(ag.Event)[0]))
_TYPES = frozenset(kind.value for kind in ag.EventType)


class WireEvents:
    """Makes events of one stream's items; a frame of text may come in several items."""

    def __init__(self) -> None:
        self._source = EventSource()

    def of(self, item: Any) -> Iterator[ag.Event]:
        """The events that an item completes. Raises ProtocolError for what is none."""
        if type(item) in _MODELS:
            yield item
        elif isinstance(item, ag.BaseEvent | Mapping):
            # Also a framework's own subclass of an event: what travels of it decides.
            yield event_of(_json_of(item))
        elif isinstance(item, str | bytes | bytearray | memoryview):
            yield from self._of_text(item.encode(errors="replace") if isinstance(item, str) else bytes(item))
        else:
            raise ProtocolError(f"the generator yielded a {type(item).__name__}, which is no AG-UI event")

    def finish(self) -> None:
        """Raises ProtocolError if the stream ended inside a frame."""
        if self._source.pending:
            raise ProtocolError("the generator ended inside a frame: a blank line ends each")

    def _of_text(self, text: bytes) -> Iterator[ag.Event]:
        if not self._source.pending and text.lstrip().startswith(b"{"):
            yield event_of(text)
            return
        for data in self._source.feed(text):
            yield event_of(data)


def event_of(data: bytes) -> ag.Event:
    """The event that a JSON text holds. Raises ProtocolError, which names the place but no value."""
    try:
        return ag.parse(data)
    except ag.InvalidEvent as error:
        raise ProtocolError(f"not an AG-UI event: {error}") from None


def known_event_of(data: bytes, logged: set[str]) -> ag.Event | None:
    """As ``event_of``, but None for a type that this protocol version does not have.

    ``logged`` holds the types already logged: each is logged once, because it may come with every token.
    """
    try:
        return event_of(data)
    except ProtocolError:
        try:
            told = orjson.loads(data)
        except orjson.JSONDecodeError:
            told = None
        kind = told.get("type") if isinstance(told, dict) else None
        if not isinstance(kind, str) or kind in _TYPES:
            raise
        kind = kind[:100]
        if kind not in logged and len(logged) < MOST_LOGGED:
            logged.add(kind)
            log.warning("agent.unknown_event_dropped", type=kind)
        return None


def _json_of(item: ag.BaseEvent | Mapping[Any, Any]) -> bytes:
    try:
        if isinstance(item, ag.BaseEvent):
            return item.model_dump_json(by_alias=True).encode()
        return orjson.dumps(cast("Mapping[str, Any]", dict(item)), option=orjson.OPT_SERIALIZE_NUMPY)
    except (TypeError, PydanticSerializationError) as error:
        raise ag.SerializationError(
            f"an event that the generator yielded has no JSON form: {error}"
        ) from None
