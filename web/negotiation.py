"""What a client accepts and sends: Accept (RFC 9110, 12.5.1), media types, Prefer (RFC 7240)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flask import Response, request

from web.problems import Code, Problem

SSE = "text/event-stream"
JSON = "application/json"

_QVALUE = re.compile(r"0(\.\d{0,3})?|1(\.0{0,3})?", re.ASCII)
# Possessive and with an optional closing quote, so that a header of nothing but quotes stays linear.
_QUOTED = re.compile(r'"(?:[^"\\]++|\\.?)*+"?')


def best(accept: str | None, offers: Sequence[str]) -> str | None:
    """The offer that the header likes most, or None when it refuses all; a tie goes to the earlier offer.

    An absent or blank header accepts everything; for each offer the most specific range decides; ``q=0``
    refuses.
    """
    if accept is None or not accept.strip():
        return offers[0]
    ranges = list(_ranges(accept))
    chosen, chosen_quality = None, 0.0
    for offer in offers:
        quality = max((fit for fit in _fits(ranges, offer)), default=(0, 0.0))[1]
        if quality > chosen_quality:
            chosen, chosen_quality = offer, quality
    return chosen


def choose(offers: Sequence[str]) -> str:
    """The form of the answer to the current request; raises the 406 that lists what could be sent."""
    found = best(request.headers.get("Accept"), offers)
    if found is None:
        detail = "The header Accept refuses everything that can be sent here: " + ", ".join(offers) + "."
        raise Problem(Code.NOT_ACCEPTABLE, detail, offers=list(offers))
    return found


def accepts(media_type: str) -> bool:
    """Whether the current request's Accept admits the type."""
    return best(request.headers.get("Accept"), [media_type]) is not None


def require_json_body() -> None:
    """Raises the 415 for a body that says it is something other than JSON.

    ``application/json``, ``text/json`` and ``*+json`` pass in any case, parameters are ignored, an absent
    header passes. Forms of other sites can only send types that fail here.
    """
    declared = request.headers.get("Content-Type", "").split(";", 1)[0].strip().lower()
    if declared and not is_json(declared):
        raise Problem(
            Code.UNSUPPORTED_MEDIA_TYPE,
            "Send JSON: Content-Type application/json, text/json or a type that ends in +json.",
            field="Content-Type",
        )
    coding = request.headers.get("Content-Encoding", "").strip().lower()
    if coding not in {"", "identity"}:
        raise Problem(
            Code.UNSUPPORTED_MEDIA_TYPE, "Send the body without a content coding.", field="Content-Encoding"
        )


def is_json(media_type: str) -> bool:
    """Whether a lower-case media type without parameters is JSON (RFC 6839 for the suffix)."""
    kind, slash, subtype = media_type.partition("/")
    if not (slash and kind and subtype):
        return False
    return media_type in {"application/json", "text/json"} or (
        subtype.endswith("+json") and subtype != "+json"
    )


def prefers(preference: str) -> bool:
    """Whether the current request names a preference that has no value, such as ``respond-async``."""
    header = _QUOTED.sub("", request.headers.get("Prefer", ""))
    return any(part.split(";", 1)[0].strip().lower() == preference for part in header.split(","))


def vary_on_accept(response: Response) -> Response:
    """Marks an answer whose form depends on the header Accept."""
    response.vary.add("Accept")
    return response


def _ranges(header: str) -> Iterator[tuple[str, str, int, float]]:
    """Type, subtype, number of parameters and quality of each range; a malformed quality counts as 1."""
    for part in _QUOTED.sub("", header).split(","):
        media_range, *parameters = [piece.strip().lower() for piece in part.split(";")]
        kind, _, subtype = media_range.partition("/")
        if kind == "*" and not subtype:
            subtype = "*"
        if not (kind and subtype):
            continue
        quality, count = 1.0, 0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                text = value.strip()
                quality = float(text) if _QVALUE.fullmatch(text) else 1.0
                break
            count += bool(parameter)
        yield kind.strip(), subtype.strip(), count, quality


def _fits(ranges: list[tuple[str, str, int, float]], offer: str) -> Iterator[tuple[int, float]]:
    """How specific each range that covers the offer is, with its quality."""
    offered_kind, _, offered_subtype = offer.partition("/")
    for kind, subtype, parameters, quality in ranges:
        if (kind, subtype) == (offered_kind, offered_subtype):
            yield 3 + parameters, quality
        elif kind == offered_kind and subtype == "*":
            yield 2, quality
        elif kind == "*" and subtype == "*":
            yield 1, quality
