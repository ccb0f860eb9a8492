"""Values as JSON text and back, strictly: what has no JSON form is refused, and no error quotes a value."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from shared.protocol.events import SerializationError

T = TypeVar("T")


def json_text(value: Any) -> str:
    """The JSON of a value, pydantic models included. Raises SerializationError for what has none."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationError(f"a value has no JSON form ({type(error).__name__})") from None
    return text


def from_json(text: str, noun: str, kind: Any = Any) -> Any:
    """The value that a JSON text stands for, as ``kind``: any type that pydantic validates.

    Raises SerializationError, which calls the text ``noun``.
    """
    try:
        value = json.loads(text, parse_constant=_no_number)
        return value if kind is Any else TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        places = ", ".join(sorted({".".join(map(str, one["loc"])) or "all of it" for one in error.errors()}))
        reason = f"{noun} does not fit: {places}"
    except (ValueError, RecursionError) as error:
        reason = f"{noun} is not JSON ({type(error).__name__})"
    # Raised out here, so that an error that quotes values is not its context.
    raise SerializationError(reason)


def fitting(model: type[T], value: Any, noun: str) -> T:
    """The value as an instance of a pydantic model. Raises SerializationError, which calls it ``noun``."""
    if isinstance(value, model):
        return value
    fitted: T = from_json(json_text(value), noun, model)
    return fitted


def _no_number(name: str) -> Any:
    raise ValueError(name)


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):
        # Its warnings quote the values of members that were set to another type.
        return value.model_dump(mode="json", by_alias=True, warnings=False)
    raise TypeError(type(value).__name__)
