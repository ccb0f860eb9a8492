"""Who tells the workers of an accepted run: acceptance itself, or Celery's client for a broker elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from flask import Flask

from shared import tracing
from shared.queue import TASK
from shared.settings import Settings
from shared.store.store import Store, open_store
from tests.web.played_worker import Caller, PlayedWorker, key_of


def _sent(store: Store, queue: str) -> list[str]:
    messages = map(json.loads, store.client.lrange(queue, 0, -1))
    return [message["headers"]["id"] for message in messages if message["headers"]["task"] == TASK]


def test_a_posted_run_is_told_once_and_again_posted_not_again(
    caller: Caller, store: Store, settings: Settings
):
    caller.start().close()
    caller.start().close()
    assert _sent(store, settings.queue) == [key_of("run")]


def test_the_message_of_a_traced_request_carries_its_traceparent(
    caller: Caller, store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    monkeypatch.setattr(tracing, "current_traceparent", lambda: traceparent)
    caller.start().close()
    assert json.loads(store.client.lpop(settings.queue))["headers"]["traceparent"] == traceparent


def test_a_broker_in_another_database_is_told_by_celerys_client(
    make_app: Callable[..., Flask], worker: PlayedWorker, store: Store, settings: Settings
):
    elsewhere = settings.redis_url.partition("?")[0] + "?db=5"
    caller = Caller(make_app(broker_url=elsewhere).test_client())
    caller.start().close()
    broker = open_store(settings.model_copy(update={"redis_url": elsewhere}))
    try:
        assert _sent(broker, settings.queue) == [key_of("run")]
    finally:
        broker.close()
    assert _sent(store, settings.queue) == []


def test_a_broker_that_is_away_refuses_no_run(
    make_app: Callable[..., Flask], worker: PlayedWorker, store: Store
):
    caller = Caller(make_app(broker_url="redis://127.0.0.1:1/0").test_client())
    response = caller.start()
    assert response.status_code == 200
    response.close()
    record = store.runs.get(key_of("run"))
    assert record is not None
    assert record.status == "queued"
