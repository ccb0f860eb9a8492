"""Whether this web process lives, and whether it can serve."""

from __future__ import annotations

import threading
from typing import Any

from flask import Blueprint, Response, jsonify, request

from shared.logs import get_logger
from shared.store.errors import StoreError
from shared.store.store import Store
from web.doctor import Level, redis_findings
from web.negotiation import JSON
from web.openapi import Answer, Operation, operation
from web.services import services

NO_STORE = "no-store"

SYNC_WARNING = (
    "gunicorn runs its sync worker class: it serves one stream at a time and kills it after its time-out; "
    "use --worker-class gevent"
)

blueprint = Blueprint("health", __name__)
log = get_logger(__name__)


class _Once:
    """Says something once per process."""

    def __init__(self) -> None:
        self._said = False
        self._lock = threading.Lock()

    def first(self) -> bool:
        if self._said:
            return False
        with self._lock:
            said, self._said = self._said, True
        return not said


_server_looked_at = _Once()


def is_sync_server(environ: dict[str, Any]) -> bool:
    """Whether the request came through gunicorn's sync worker class."""
    software = str(environ.get("SERVER_SOFTWARE", ""))
    return software.startswith("gunicorn") and not environ.get("wsgi.multithread", True)


@blueprint.before_app_request
def look_at_server() -> None:
    """Logs a sync server with the first request, before the first stream is cut."""
    if _server_looked_at.first() and is_sync_server(request.environ):
        log.error("web.worker_class_unfit", hint=SYNC_WARNING)


@blueprint.get("/health/live")
@operation(
    Operation(
        "Whether the process lives",
        "operations",
        answers={200: Answer("It does.", {JSON: {"type": "object"}})},
        public=True,
    )
)
def live() -> Response:
    """The process answers; nothing else is asked."""
    return _uncached(jsonify(status="live"))


@blueprint.get("/health/ready")
@operation(
    Operation(
        "Whether the process can serve",
        "operations",
        answers={
            200: Answer("It can; what is not as it should be is listed.", {JSON: {"type": "object"}}),
            503: Answer("Redis does not serve it.", {JSON: {"type": "object"}}, ("Retry-After",)),
        },
        public=True,
    )
)
def ready() -> Response:
    """200 while Redis answers, 503 otherwise; what else is not as it should be is listed as warnings."""
    store = services().store
    try:
        store.ping()
        warnings = list(_warnings(store))
    except StoreError as error:
        answer = jsonify(status="unavailable", reason=f"Redis does not serve us: {error}.")
        answer.status_code = 503
        answer.headers["Retry-After"] = "1"
        return _uncached(answer)
    if is_sync_server(request.environ):
        warnings.append({"topic": "web", "sentence": SYNC_WARNING})
    body: dict[str, Any] = {"status": "ready"}
    if warnings:
        body["warnings"] = warnings
    return _uncached(jsonify(body))


def _warnings(store: Store) -> list[dict[str, str]]:
    found = [
        {"topic": finding.topic, "sentence": finding.sentence}
        for finding in redis_findings(store)
        if finding.level is not Level.OK
    ]
    if not store.workers.alive():
        found.append({"topic": "worker", "sentence": "No worker has a fresh heartbeat; accepted runs wait."})
    return found


def _uncached(answer: Response) -> Response:
    answer.headers["Cache-Control"] = NO_STORE
    return answer
