"""Request bodies and query values, read within bounds and refused by name."""

from __future__ import annotations

import math
import re
from typing import Any

from flask import request
from pydantic_core import from_json
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from web.problems import Code, Problem

SMALL_BODY_BYTES = 16 * 1024
"""Bound of bodies that hold a few members only."""

MAX_WAIT_SECONDS = 60.0
"""Longest ``?wait=``; longer ones wait this long."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)


def read(limit: int, *, setting: str | None = None) -> bytes:
    """The body; one of more than ``limit`` bytes is refused by its length, or once so much has arrived.

    ``setting`` is the variable by which an operator chooses the limit.

    Raises the 413, and the 400 for a body that is cut or framed wrongly.
    """
    chosen = f" ({setting})" if setting else ""
    too_large = Problem(Code.INVALID_BODY, f"The body is larger than {limit} bytes{chosen}.")
    if (request.content_length or 0) > limit:
        raise too_large
    # Of a body without a length the framework reads this much and says nothing when there is more.
    request.max_content_length = limit + 1
    try:
        body = request.get_data(cache=False)
    except RequestEntityTooLarge:
        raise too_large from None
    except HTTPException:
        raise
    except Exception:  # noqa: BLE001 - every server has exceptions of its own for broken chunks
        raise Problem(Code.INVALID_INPUT, "The body could not be read to its end.") from None
    if len(body) > limit:
        raise too_large
    return body


def read_object() -> dict[str, Any]:
    """A small body that is absent or one JSON object."""
    body = read(SMALL_BODY_BYTES)
    if not body.strip():
        return {}
    try:
        document = from_json(body, allow_inf_nan=False)
    except ValueError:
        raise Problem(Code.INVALID_INPUT, "The body is not strict UTF-8 JSON.") from None
    if not isinstance(document, dict):
        raise Problem(Code.INVALID_INPUT, "The body must be an object.")
    return document


def text_member(document: dict[str, Any], name: str, most: int) -> str | None:
    """A text without control characters; absent when it is null or blank."""
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise Problem(Code.INVALID_INPUT, f"{name} must be a string.", field=name)
    if len(value) > most:
        raise Problem(Code.INVALID_INPUT, f"{name} must have at most {most} characters.", field=name)
    if _CONTROL.search(value):
        raise Problem(Code.INVALID_INPUT, f"{name} must not contain control characters.", field=name)
    return value.strip() or None


def wait_seconds() -> float:
    """The query value ``wait`` in seconds, 0 when absent, at most ``MAX_WAIT_SECONDS``."""
    text = request.args.get("wait")
    if text is None:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not math.isfinite(seconds) or seconds < 0:
        raise Problem(Code.INVALID_INPUT, "wait must be a number of seconds, 0 or more.", field="wait")
    return min(seconds, MAX_WAIT_SECONDS)


def page_size(default: int, most: int) -> int:
    """The query value ``limit``: a whole number from 1; more than ``most`` counts as ``most``."""
    text = request.args.get("limit")
    if text is None:
        return default
    if not _WHOLE.fullmatch(text) or int(text) == 0:
        raise Problem(Code.INVALID_INPUT, f"limit must be a whole number from 1 to {most}.", field="limit")
    return min(int(text), most)
