"""Browsers of other origins: only those that the settings name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from flask import Flask

from tests.web.played_worker import Caller, PlayedWorker

ORIGIN = "https://app.example"
PREFLIGHT = {
    "Origin": ORIGIN,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}


@pytest.fixture
def shared_app(make_app: Callable[..., Flask], worker: PlayedWorker) -> Flask:
    """An application that asks for keys and lets one origin in."""
    return make_app(auth="keys", cors_origins=(ORIGIN,))


def test_a_preflight_is_answered_before_anybody_is_asked_for_a_key(shared_app: Flask):
    response = shared_app.test_client().options("/agents/echo", headers=PREFLIGHT)
    assert response.status_code == 204
    assert response.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert "POST" in response.headers["Access-Control-Allow-Methods"]
    allowed = response.headers["Access-Control-Allow-Headers"].lower()
    for name in ("authorization", "content-type", "last-event-id", "prefer", "traceparent"):
        assert name in allowed


def test_an_allowed_origin_may_read_answers_and_our_headers(shared_app: Flask, worker: PlayedWorker):
    secret, _ = worker.store.api_keys.create("ada")
    caller = Caller(shared_app.test_client(), Authorization=f"Bearer {secret}", Origin=ORIGIN)
    response = caller.start()
    assert response.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert {"Location", "Outlast-Run-Key"} <= set(
        response.headers["Access-Control-Expose-Headers"].split(", ")
    )
    assert "Origin" in response.headers["Vary"]
    assert "Accept" in response.headers["Vary"]
    response.close()


def test_refusals_may_be_read_too(shared_app: Flask):
    response = shared_app.test_client().get("/runs", headers={"Origin": ORIGIN})
    assert response.status_code == 401
    assert response.headers["Access-Control-Allow-Origin"] == ORIGIN


def test_another_origin_is_told_nothing(shared_app: Flask):
    client = shared_app.test_client()
    for response in (
        client.options("/agents/echo", headers=PREFLIGHT | {"Origin": "https://evil.example"}),
        client.get("/runs", headers={"Origin": "https://evil.example"}),
    ):
        assert "Access-Control-Allow-Origin" not in response.headers
        assert "Access-Control-Allow-Headers" not in response.headers
        assert "Origin" in response.headers["Vary"]


def test_by_default_no_origin_is_let_in(make_app: Callable[..., Flask]):
    response = make_app(auth="keys").test_client().options("/agents/echo", headers=PREFLIGHT)
    assert "Access-Control-Allow-Origin" not in response.headers


def test_credentials_of_cookies_are_never_let_in(make_app: Callable[..., Flask]):
    response = (
        make_app(auth="keys", cors_origins=("*",)).test_client().options("/agents/echo", headers=PREFLIGHT)
    )
    assert response.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert "Access-Control-Allow-Credentials" not in response.headers
