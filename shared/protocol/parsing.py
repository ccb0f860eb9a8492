"""JSON from outside into the protocol's models, refused with a field and a reason."""

import re
from typing import Any, Final, TypeVar

from ag_ui.core import Event, RunAgentInput
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, from_json

from shared.protocol.magnitude import fits_doubles
from shared.protocol.nesting import nests_deeper_than

MAX_ID_LENGTH: Final = 256

ACCEPTED_DEPTH: Final = 255
"""Levels of nesting in what was accepted once: it is read again, whatever the limit is today."""

_EVENTS: TypeAdapter[Event] = TypeAdapter(Event)
_BOM = b"\xef\xbb\xbf"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PLACE = re.compile(r" at line (\d+) column (\d+)$")
_MOST_MISTAKES: Final = 1000
_REASONS = {
    "missing": "is required",
    "value_error": "is not valid",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "string_type": "must be a string",
    "union_tag_not_found": "is required",
}


_I = TypeVar("_I", "InvalidInput", "InvalidEvent")


class _Invalid(ValueError):
    """What was wrong where: ``field`` is a dotted path ("" is the whole text), ``reason`` a phrase."""

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"{field or 'the text'} {reason}")


class InvalidInput(_Invalid):
    """A body that is not a RunAgentInput. Neither attribute repeats a value of the body."""


class InvalidEvent(_Invalid):
    """A text that is not one of the protocol's events. Neither attribute repeats a value of it."""


def parse(data: bytes | str) -> Event:
    """The event that a JSON text holds; unknown members are kept. Raises InvalidEvent."""
    try:
        return _EVENTS.validate_json(data)
    except ValidationError as error:
        try:
            document = from_json(data)
        except (ValueError, TypeError):
            raise InvalidEvent("", "is not UTF-8 JSON") from None
        raise _located(InvalidEvent, error, document) from None


def parse_input(body: bytes, max_depth: int = 100) -> RunAgentInput:
    """The run input that a request body holds; unknown members are kept, a byte order mark is skipped.

    Only threadId, runId and messages are required. The ids of the thread, the run and the parent
    run are 1 to MAX_ID_LENGTH characters without control characters. Of a member that is named
    twice the last counts. Raises InvalidInput, also for numbers that do not fit a double, lone
    surrogates and more than ``max_depth`` levels of nesting.
    """
    text = body.removeprefix(_BOM)
    if nests_deeper_than(text, max_depth):
        raise InvalidInput("", f"nests more than {max_depth} levels")
    try:
        document = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        # Of the parser's own sentence the numbers alone: it may quote the body.
        place = _PLACE.search(str(error))
        where = f" (line {place[1]}, column {place[2]})" if place else ""
        raise InvalidInput("", f"is not strict UTF-8 JSON{where}") from None
    if not fits_doubles(text):  # the parser itself turns what overflows into an infinity
        raise InvalidInput("", "is not strict UTF-8 JSON")
    if not isinstance(document, dict):
        raise InvalidInput("", "must be an object")
    try:
        run_input = RunAgentInput.model_validate(document)
    except ValidationError as error:
        raise _located(InvalidInput, error, document) from None
    _check_id("threadId", run_input.thread_id)
    _check_id("runId", run_input.run_id)
    if run_input.parent_run_id is not None:
        _check_id("parentRunId", run_input.parent_run_id)
    return run_input


def _check_id(field: str, value: str) -> None:
    if not 1 <= len(value) <= MAX_ID_LENGTH:
        raise InvalidInput(field, f"must have 1 to {MAX_ID_LENGTH} characters")
    if _CONTROL.search(value):
        raise InvalidInput(field, "must not contain control characters")


def _located(kind: type[_I], error: ValidationError, document: Any) -> _I:
    # Describing a million mistakes takes many seconds, in which a web process serves nobody.
    if error.error_count() > _MOST_MISTAKES:
        return kind("", f"is not valid in {error.error_count()} places")
    found = error.errors(include_url=False, include_context=True, include_input=False)
    paths = [_path(details, document) for details in found]
    # Of the alternatives of a union the one that came furthest is the one that was meant.
    meant = max(
        (index for index, path in enumerate(paths) if path[: len(paths[0])] == paths[0]),
        key=lambda index: len(paths[index]),
    )
    return kind(".".join(paths[meant]), _reason(found[meant]))


def _path(details: ErrorDetails, document: Any) -> list[str]:
    """The error's place as the text spells it: pydantic's location without the names of union members."""
    path: list[str] = []
    here = document
    location = details["loc"]
    for index, part in enumerate(location):
        if isinstance(here, dict):
            tags = (here.get("role"), here.get("type"), here.get("op"))
            if part in here and part not in tags:
                path.append(str(part))
                here = here[part]
            elif details["type"] == "missing" and index == len(location) - 1:
                path.append(str(part))
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            path.append(str(part))
            here = here[part]
    if "discriminator" in details.get("ctx", {}):
        path.append(details["ctx"]["discriminator"].strip("'"))
    return path


def _reason(details: ErrorDetails) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "union_tag_invalid":
        return f"must be one of {context['expected_tags']}"
    if kind == "literal_error":
        return f"must be {context['expected']}"
    return _REASONS.get(kind, f"is not valid ({kind})")
