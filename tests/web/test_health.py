"""Health answers: alive without asking anybody, ready while Redis answers."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import structlog
from flask import Flask

from shared.store.store import Store
from web.ops import health

NOWHERE = "redis://127.0.0.1:1/0"
SYNC = {"SERVER_SOFTWARE": "gunicorn/25.1.0"}


def test_live_asks_nobody(make_app: Callable[..., Flask]) -> None:
    app = make_app(redis_url=NOWHERE)
    answer = app.test_client().get("/health/live")
    assert (answer.status_code, answer.json) == (200, {"status": "live"})
    assert answer.headers["Cache-Control"] == "no-store"


def test_ready_is_200_and_tells_what_is_missing(app: Flask, store: Store) -> None:
    answer = app.test_client().get("/health/ready")
    assert answer.status_code == 200
    assert [warning["topic"] for warning in answer.json["warnings"]] == ["worker"]
    store.workers.beat("w@h", {"host": "h"}, {})
    assert app.test_client().get("/health/ready").json == {"status": "ready"}


def test_ready_tells_of_a_server_that_may_forget(app: Flask, store: Store) -> None:
    store.client.config_set("appendonly", "no")
    try:
        answer = app.test_client().get("/health/ready")
    finally:
        store.client.config_set("appendonly", "yes")
    assert answer.status_code == 200
    assert "persistence" in {warning["topic"] for warning in answer.json["warnings"]}


def test_ready_is_503_soon_when_redis_is_away(make_app: Callable[..., Flask]) -> None:
    app = make_app(redis_url=NOWHERE)
    started = time.monotonic()
    answer = app.test_client().get("/health/ready")
    assert answer.status_code == 503
    assert answer.json["status"] == "unavailable"
    assert answer.headers["Retry-After"] == "1"
    assert time.monotonic() - started < 5


def test_health_needs_no_token(make_app: Callable[..., Flask]) -> None:
    app = make_app(auth="keys")
    for path in ("/health/live", "/health/ready"):
        assert app.test_client().get(path).status_code == 200


def test_a_sync_gunicorn_is_told_once_in_the_log_and_always_by_ready(
    app: Flask, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_server_looked_at", health._Once())
    environ = SYNC | {"wsgi.multithread": False}
    with structlog.testing.capture_logs() as lines:
        answers = [app.test_client().get("/health/ready", environ_overrides=environ) for _ in range(2)]
    assert [line["event"] for line in lines] == ["web.worker_class_unfit"]
    assert all("web" in {warning["topic"] for warning in answer.json["warnings"]} for answer in answers)


def test_other_servers_are_not_taken_for_a_sync_gunicorn() -> None:
    assert not health.is_sync_server(SYNC | {"wsgi.multithread": True})
    assert not health.is_sync_server({"SERVER_SOFTWARE": "Werkzeug/3.1", "wsgi.multithread": False})
