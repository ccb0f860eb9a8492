"""One span per request, in the caller's trace if it names one, and one of its own per event stream.

The request's span ends with its headers, so a trace shows the run's beginning at once and does not lose it
with a stream that is open for an hour; the stream's span is its child and covers the body to its last byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager

from flask import Flask, Response, g, request

from shared import tracing
from web.negotiation import SSE
from web.request_context import request_id

SILENT = frozenset({"health", "metrics"})
"""Blueprints whose requests come every few seconds and tell nothing."""

_RUN_KEY = "Outlast-Run-Key"
_TERMINALS = (b'\ndata: {"type":"RUN_FINISHED"', b'\ndata: {"type":"RUN_ERROR"')
"""How the event that ends a run looks in a stream; inside of events there are no line breaks."""


def register(app: Flask) -> None:
    """Register it first, so that refusals have their span too; without tracing nothing is registered."""
    if not tracing.serve_as("outlast-web"):
        return
    app.before_request(_open)
    app.after_request(_answered)
    app.teardown_request(_close)


def _open() -> None:
    if request.blueprint in SILENT:
        return
    route = request.url_rule.rule if request.url_rule else None
    scope = tracing.span(
        f"{request.method} {route}" if route else request.method,
        parent=request.headers.get("traceparent"),
        kind="server",
    )
    g.span_scope = scope
    scope.__enter__().set(
        {
            "http.request.method": request.method,
            "http.route": route,
            "url.scheme": request.scheme,
            "outlast.request_id": request_id(),
        }
    )


def _answered(response: Response) -> Response:
    if "span_scope" not in g:
        return response
    span, run = tracing.current(), response.headers.get(_RUN_KEY)
    span.set({"http.response.status_code": response.status_code, "outlast.run": run})
    if response.status_code >= 500:
        span.fail(str(response.status_code))
    if response.mimetype == SSE and response.is_streamed:
        frames = response.response
        response.response = StreamSpan(frames, tracing.begin("outlast.stream", run=run))  # type: ignore[arg-type] # bytes
    return response


def _close(_: BaseException | None) -> None:
    scope: AbstractContextManager[tracing.Span] | None = g.pop("span_scope", None)
    if scope is not None:
        scope.__exit__(None, None, None)


class StreamSpan:
    """A stream's body inside its span: how many bytes it sent, and whether the run's ending was in them."""

    def __init__(self, frames: Iterable[bytes], span: tracing.Span) -> None:
        self._frames = frames
        self._pieces = iter(frames)
        self._span = span
        self._bytes = 0
        self._whole = False
        self._over = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            piece = next(self._pieces)
        except BaseException as ending:
            if not isinstance(ending, StopIteration):
                self._span.fail(type(ending))
            self._end()
            raise
        if not self._bytes:
            self._span.event("outlast.first_bytes")
        self._bytes += len(piece)
        self._whole |= any(mark in piece for mark in _TERMINALS)
        return piece

    def close(self) -> None:
        """Closes what it covers; a client that left comes here before the end."""
        close = getattr(self._frames, "close", None)
        if close is not None:
            close()
        self._end()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._span.set({"outlast.bytes": self._bytes, "outlast.terminal_sent": self._whole})
            self._span.end()
