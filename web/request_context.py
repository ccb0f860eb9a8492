"""What every log line of a request says: the request's id, and the run that it concerns once that is known.

The actor is not among it: a run's record names it, and a name may be personal. Lines about what an operator
did are the exception, because who did it is their point.
"""

from __future__ import annotations

import secrets

from flask import Flask, Response, request

from shared import logs, tracing

HEADER = "X-Request-Id"
_ENVIRON = "HTTP_X_REQUEST_ID"
_LONGEST = 128


def register(app: Flask) -> None:
    """Register it before everything that may refuse."""
    app.before_request(_bind)
    app.after_request(_tell)
    app.teardown_request(_unbind)


def request_id() -> str:
    """The id that a proxy or the caller gave the current request, else a new one."""
    given: str = request.environ.get(_ENVIRON, "")
    return given


def concerns(key: str) -> None:
    """The current request is about this run: its log lines and its span say so."""
    logs.bind(run=key)
    tracing.current().set({"outlast.run": key})


def _bind() -> None:
    given = request_id()
    if not (0 < len(given) <= _LONGEST and given.isascii() and given.isprintable()):
        # Whoever reads the header later gets the same one.
        request.environ[_ENVIRON] = given = secrets.token_hex(8)
    logs.bind(request_id=given)


def _tell(response: Response) -> Response:
    response.headers[HEADER] = request_id()
    return response


def _unbind(_: BaseException | None) -> None:
    logs.unbind("request_id", "run")
