"""Refusals: one table of codes, and one form for every HTTP error (RFC 9457 members plus ``code``).

The body travels as ``application/json``: the stock AG-UI client parses no other type of an error answer.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from shared.logs import get_logger
from shared.store.errors import StoreError, StoreFull, StoreUncertain
from web.hub import TooManyStreams

log = get_logger(__name__)


class Code(StrEnum):
    """Stable codes of refusals; the set may grow, spellings never change."""

    INVALID_INPUT = "INVALID_INPUT"
    EMPTY_FILTER = "EMPTY_FILTER"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    FORBIDDEN = "FORBIDDEN"
    NOT_FOUND = "NOT_FOUND"
    UNKNOWN_AGENT = "UNKNOWN_AGENT"
    UNKNOWN_RUN = "UNKNOWN_RUN"
    UNKNOWN_WORKER = "UNKNOWN_WORKER"
    UNKNOWN_BULK = "UNKNOWN_BULK"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    NOT_ACCEPTABLE = "NOT_ACCEPTABLE"
    RUN_CONFLICT = "RUN_CONFLICT"
    RUN_ENDED = "RUN_ENDED"
    THREAD_BUSY = "THREAD_BUSY"
    RUN_ACTIVE = "RUN_ACTIVE"
    GRACE = "GRACE"
    COUNT_CHANGED = "COUNT_CHANGED"
    NOTHING_MATCHES = "NOTHING_MATCHES"
    INTERRUPT_OPEN = "INTERRUPT_OPEN"
    INTERRUPT_ANSWERED = "INTERRUPT_ANSWERED"
    INTERRUPT_EXPIRED = "INTERRUPT_EXPIRED"
    RUN_EXPIRED = "RUN_EXPIRED"
    INVALID_BODY = "INVALID_BODY"
    UNSUPPORTED_MEDIA_TYPE = "UNSUPPORTED_MEDIA_TYPE"
    TOO_MANY_RUNS = "TOO_MANY_RUNS"
    INTERNAL = "INTERNAL"
    NO_WORKER = "NO_WORKER"
    TOO_MANY_STREAMS = "TOO_MANY_STREAMS"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    STORE_UNCERTAIN = "STORE_UNCERTAIN"
    STORE_FULL = "STORE_FULL"
    IDENTITY_UNAVAILABLE = "IDENTITY_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class Kind:
    """What all problems of one code share; ``retry_after`` is in seconds."""

    status: int
    title: str
    retry_after: int | None = None


KINDS: dict[Code, Kind] = {
    Code.INVALID_INPUT: Kind(400, "The request does not say what it must"),
    Code.EMPTY_FILTER: Kind(400, "The filter would take every run"),
    Code.UNAUTHENTICATED: Kind(401, "Who asks is not known"),
    Code.FORBIDDEN: Kind(403, "Not allowed"),
    Code.NOT_FOUND: Kind(404, "Nothing is served here"),
    Code.UNKNOWN_AGENT: Kind(404, "No worker offers this agent"),
    Code.UNKNOWN_RUN: Kind(404, "There is no such run"),
    Code.UNKNOWN_WORKER: Kind(404, "There is no such worker"),
    Code.UNKNOWN_BULK: Kind(404, "There is no such bulk cancel"),
    Code.METHOD_NOT_ALLOWED: Kind(405, "The method is not allowed here"),
    Code.NOT_ACCEPTABLE: Kind(406, "No acceptable form of the answer"),
    Code.RUN_CONFLICT: Kind(409, "The identity belongs to a different run"),
    Code.RUN_ENDED: Kind(409, "The run has ended"),
    Code.THREAD_BUSY: Kind(409, "The thread is busy"),
    Code.RUN_ACTIVE: Kind(409, "The run has not ended"),
    Code.GRACE: Kind(409, "The agent still has its grace"),
    Code.COUNT_CHANGED: Kind(409, "More runs match than were confirmed"),
    Code.NOTHING_MATCHES: Kind(409, "No live run matches"),
    Code.INTERRUPT_OPEN: Kind(409, "The thread waits for answers"),
    Code.INTERRUPT_ANSWERED: Kind(409, "The interrupt is answered by another run"),
    Code.INTERRUPT_EXPIRED: Kind(409, "The interrupt can no longer be answered"),
    Code.RUN_EXPIRED: Kind(410, "The run is past its retention"),
    Code.INVALID_BODY: Kind(413, "The request body is too large"),
    Code.UNSUPPORTED_MEDIA_TYPE: Kind(415, "The media type is not supported"),
    Code.TOO_MANY_RUNS: Kind(429, "Too many active runs", retry_after=2),
    Code.INTERNAL: Kind(500, "The server failed"),
    Code.NO_WORKER: Kind(503, "No worker is there yet", retry_after=2),
    Code.TOO_MANY_STREAMS: Kind(503, "Too many open streams", retry_after=2),
    Code.STORE_UNAVAILABLE: Kind(503, "Redis cannot be reached", retry_after=1),
    Code.STORE_UNCERTAIN: Kind(503, "It is not known whether the request was carried out", retry_after=1),
    Code.STORE_FULL: Kind(503, "Redis is at its memory limit", retry_after=30),
    Code.IDENTITY_UNAVAILABLE: Kind(503, "The token could not be checked", retry_after=1),
}

_CODE_OF_STATUS = {
    kind.status: code
    for code, kind in reversed(KINDS.items())
    if code not in {Code.STORE_FULL, Code.UNKNOWN_AGENT, Code.UNKNOWN_RUN}
}


class Problem(Exception):
    """A refusal: raised anywhere in a view, answered as JSON.

    ``detail`` is for people, ``field`` names the part of the request that is wrong, ``members`` are further
    members of the body, ``headers`` further headers of the answer.
    """

    def __init__(
        self,
        code: Code,
        detail: str,
        *,
        field: str | None = None,
        headers: dict[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.field = field
        self.headers = headers or {}
        self.members = members


def answer(problem: Problem, *, status: int | None = None, instance: str | None = None) -> Response:
    """The HTTP answer of a problem."""
    kind = KINDS[problem.code]
    body: dict[str, Any] = {
        "type": f"urn:outlast:problem:{problem.code.lower().replace('_', '-')}",
        "title": kind.title,
        "status": status or kind.status,
        "detail": problem.detail,
        "instance": instance or request.path,
        "code": str(problem.code),
    }
    if problem.field is not None:
        body["field"] = problem.field
    body |= problem.members
    response = Response(
        json.dumps(body) + "\n", status=status or kind.status, content_type="application/json"
    )
    response.headers["Cache-Control"] = "no-store"
    response.headers["Vary"] = "Accept"
    if kind.retry_after is not None:
        response.headers["Retry-After"] = str(kind.retry_after)
    response.headers.update(problem.headers)
    return response


def register(app: Flask) -> None:
    """Every error of the application leaves in this form, Flask's own included."""
    app.register_error_handler(Problem, answer)
    app.register_error_handler(StoreError, _store_error)
    app.register_error_handler(TooManyStreams, _too_many_streams)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _unexpected)


def _store_error(error: StoreError) -> Response:
    log.warning(
        "http.store_unavailable", error=type(error).__name__, path=request.path, method=request.method
    )
    if isinstance(error, StoreFull):
        detail = "Redis takes no new runs until some have expired. Try again later."
        return answer(Problem(Code.STORE_FULL, detail))
    if isinstance(error, StoreUncertain) and request.method not in {"GET", "HEAD"}:
        detail = "The answer of Redis was lost. Send the same request with the same ids again."
        return answer(Problem(Code.STORE_UNCERTAIN, detail))
    return answer(Problem(Code.STORE_UNAVAILABLE, "Redis did not answer. Try again in a moment."))


def _too_many_streams(_error: TooManyStreams) -> Response:
    detail = "This server holds as many streams as it may. Try again in a moment."
    return answer(Problem(Code.TOO_MANY_STREAMS, detail))


_DETAILS = {
    400: "The request could not be read.",
    404: "The path is not one of this server's; /openapi.json lists them.",
    405: "See the header Allow for the methods that are allowed.",
    413: "The body is larger than this server accepts.",
}


def _http_error(error: HTTPException) -> Response | HTTPException:
    status = error.code or 500
    if status < 400:
        return error
    if status >= 500 and status not in _CODE_OF_STATUS:
        return _unexpected(error)
    code = _CODE_OF_STATUS.get(status, Code.INVALID_INPUT)
    headers = {
        name: value
        for name, value in error.get_headers()
        if name not in {"Content-Type", "Content-Length", "Vary", "Cache-Control"}
    }
    detail = _DETAILS.get(status, KINDS[code].title + ".")
    return answer(Problem(code, detail, headers=headers), status=status)


def _unexpected(error: Exception) -> Response:
    incident = secrets.token_hex(6)
    log.error("http.failed", incident=incident, path=request.path, method=request.method, exc_info=error)
    problem = Problem(
        Code.INTERNAL,
        f"Something went wrong here. Name the incident {incident} when you report it.",
        incident=incident,
    )
    return answer(problem, instance=f"urn:outlast:incident:{incident}")
