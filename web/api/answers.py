"""How views answer: JSON resources and event streams, with the headers that both need."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from flask import Response, request

from web.negotiation import JSON, SSE
from web.reader import hang_up_of
from web.services import FreshReader, services

RUN_KEY_HEADER = "Outlast-Run-Key"


def json_answer(body: Any, *, status: int = 200) -> Response:
    """A JSON resource that nobody may store; one line, so that several in a terminal stay apart."""
    data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    response = Response(data + b"\n", status=status, content_type=JSON)
    response.headers["Cache-Control"] = "no-store"
    return response


def stream_answer(frames: Iterable[bytes]) -> Response:
    """An event stream; proxies are told neither to keep, nor to change, nor to hold it back.

    ``frames`` is closed by the server when the client leaves, which cancels nothing.
    """
    response = Response(frames, content_type=SSE)
    response.headers["Cache-Control"] = "no-cache, no-store, no-transform"
    response.headers["X-Accel-Buffering"] = "no"
    response.headers["Vary"] = "Accept"
    return response


def follow(key: str, after: int = 0) -> FreshReader:
    """A stream of a run for the current request; raises ``TooManyStreams``."""
    return services().hub.open(key, after, hang_up=hang_up_of(request.environ))


def name_run(response: Response, key: str, *, location: bool = False) -> Response:
    """Says which run the answer is about; ``location`` also says where its record is."""
    response.headers[RUN_KEY_HEADER] = key
    if location:
        response.headers["Location"] = f"{request.script_root}/runs/{key}"
    return response
