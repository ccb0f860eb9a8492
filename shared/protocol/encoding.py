"""An event as the JSON that travels: one line, strict, the same members as the official encoder's."""

from math import isfinite
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import orjson
from ag_ui.core import BaseEvent, Event, RunAgentInput
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import from_json, to_json

from shared.protocol.magnitude import fits_doubles
from shared.protocol.nesting import nests_deeper_than

# Above an input's own bound, so that its state and messages fit into an event that repeats them.
MAX_EVENT_DEPTH = 128

_EVENTS: TypeAdapter[Event] = TypeAdapter(Event)
_LAST_TIMESTAMP = 2**53 - 1


class _Shape(NamedTuple):
    """What an event of texts looks like: its type, how many members, and the texts' names on the wire."""

    kind: str
    size: int
    texts: dict[str, str]
    choices: dict[str, tuple[str, ...]]
    needed: frozenset[str]


def _shape(cls: type[BaseEvent]) -> _Shape:
    alternatives = {name: _alternatives(field.annotation) for name, field in cls.model_fields.items()}
    return _Shape(
        cls.model_fields["type"].default.value,
        len(cls.model_fields),
        {name: to_camel(name) for name, found in alternatives.items() if str in found},
        {
            name: get_args(found[0])
            for name, found in alternatives.items()
            if name != "type" and get_origin(found[0]) is Literal
        },
        frozenset(name for name, field in cls.model_fields.items() if field.is_required()),
    )


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in {Union, UnionType} else (annotation,)


# Of events that are nothing but short texts most of the time; not where a null is a value, as in CUSTOM.
_FLAT: dict[type[object], _Shape] = {
    cls: _shape(cls)
    for cls in get_args(get_args(Event)[0])
    if not any(field.is_required() and field.annotation is Any for field in cls.model_fields.values())
}


class SerializationError(ValueError):
    """A value that has no JSON form; the text names the event type and the reason, never the value."""


def dump(event: Event) -> bytes:
    """The event as one line of UTF-8 JSON, optional members without a value left out.

    A lone surrogate in a ``delta`` text becomes U+FFFD, because providers do cut characters in two.
    U+2028, U+2029 and U+0085 are escaped, because some readers of lines break at them. Raises
    SerializationError for NaN, infinities and numbers beyond a double, lone surrogates elsewhere, values of
    unknown types, nesting beyond MAX_EVENT_DEPTH and whatever `parse` would refuse: members can be assigned
    unchecked.
    """
    data = _dump_flat(event)
    if data is None:
        data = _dump_any(event)
    return data if data.isascii() else _without_line_breaks(data)


def dump_input(run_input: RunAgentInput) -> bytes:
    """The input as one line of UTF-8 JSON, unknown members kept. Raises SerializationError as `dump`."""
    return _without_line_breaks(_strict_json(run_input, "RunAgentInput"))


def _dump_flat(event: Event) -> bytes | None:
    """The JSON of a valid event that holds only texts and a timestamp, several times faster; else None."""
    shape = _FLAT.get(type(event))
    if shape is None:
        return None
    kind, size, texts, choices, needed = shape
    found = event.__dict__
    if len(found) != size or event.__pydantic_extra__:
        return None
    members: dict[str, str | int] = {"type": kind}
    for name, value in found.items():
        if value is None:
            if name in needed:
                return None
        elif type(value) is str:
            if name in texts:
                members[texts[name]] = value
            elif value in choices.get(name, ()):
                members[name] = value
            else:
                return None
        elif name == "timestamp" and type(value) is int and 0 <= value <= _LAST_TIMESTAMP:
            members[name] = value
        elif name != "type":
            return None
    try:
        return orjson.dumps(members)
    except TypeError:
        return None


def _dump_any(event: Event) -> bytes:
    name = _name_of(event)
    delta = event.__dict__.get("delta")
    if isinstance(delta, str) and not _is_unicode(delta):
        event = event.model_copy(update={"delta": _mended(delta)})
    data = _strict_json(event, name)
    if not _is_event(data):
        raise SerializationError(f"{name} has no JSON form: a member is missing or not allowed")
    return data


def _is_event(data: bytes) -> bool:
    # Members can be assigned unchecked, and who reads the log later must find events in it.
    try:
        _EVENTS.validate_json(data)
    except ValidationError:
        return False
    return True


def _strict_json(model: BaseModel, name: str) -> bytes:
    try:
        data = model.model_dump_json(by_alias=True, warnings="error").encode()
    except (ValueError, RecursionError) as error:
        reason = _reason(error)
    else:
        if nests_deeper_than(data, MAX_EVENT_DEPTH):
            reason = f"it nests more than {MAX_EVENT_DEPTH} levels"
        elif (b"null" in data or _holds_no_number(model)) and _is_not_finite(model):
            reason = "a number is not finite"
        elif not fits_doubles(data):
            reason = "a number is too large"
        else:
            return data
    # Raised out here, so that the serializer's error, which may quote values, is not its context.
    raise SerializationError(f"{name} has no JSON form: {reason}")


def _is_not_finite(model: BaseModel) -> bool:
    # Asked only where one may be: the models write NaN and infinities as null, or leave the member out.
    try:
        plain = to_json(model.model_dump(by_alias=True, warnings=False), inf_nan_mode="constants")
        if b"NaN" in plain or b"Infinity" in plain:
            from_json(plain, allow_inf_nan=False)
    except ValueError:
        return True
    return False


def _holds_no_number(value: Any) -> bool:
    """Whether a member of the model, or of a model in it, is NaN or infinite as a whole."""
    if isinstance(value, BaseModel):
        return any(_holds_no_number(member) for member in value.__dict__.values())
    if isinstance(value, list):
        return any(_holds_no_number(item) for item in value if isinstance(item, (BaseModel, float)))
    return isinstance(value, float) and not isfinite(value)


def _reason(error: Exception) -> str:
    text = str(error)
    for sign, reason in _REASONS.items():
        if sign in text:
            return reason
    return "a value cannot be written"


_REASONS = {
    "surrogates not allowed": "a text holds a lone surrogate",
    "invalid utf-8": "bytes are not UTF-8",
    "unknown type": "a value is of an unknown type",
    "depth exceeded": "it nests too deeply or contains itself",
    "Circular reference": "it nests too deeply or contains itself",
    "UnexpectedValue": "a member is of a wrong type",
}


def _name_of(event: BaseEvent) -> str:
    kind: Any = event.type
    return str(getattr(kind, "value", kind))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _mended(text: str) -> str:
    # Through UTF-16, where two halves that follow each other become the one character they are.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _without_line_breaks(data: bytes) -> bytes:
    if b"\xe2\x80" in data:
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return data.replace(b"\xc2\x85", b"\\u0085")
