"""The application is built without touching anything and starts serving with its first request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from shared.settings import Settings
from shared.store.store import Store
from tests.web.played_worker import Caller, PlayedWorker, key_of
from web import create_app
from web.memo import Memo
from web.quota import ActiveRuns


def test_building_the_application_starts_no_thread_and_connects_to_nothing():
    before = set(threading.enumerate())
    app = create_app(Settings(redis_url="redis://127.0.0.1:9/0", auth="none"))
    with app.app_context():
        assert app.extensions["outlast"].get().settings.redis_url == "redis://127.0.0.1:9/0"
    assert set(threading.enumerate()) <= before


def test_the_first_request_starts_the_sweep(make_app: Callable[..., Flask]):
    app = make_app()
    sweeping = app.extensions["outlast"].get().sweeper._thread
    assert not sweeping.is_alive()
    app.test_client().get("/health/live")
    assert sweeping.is_alive()


def test_a_web_process_alone_ends_a_run_whose_worker_was_lost(
    caller: Caller, worker: PlayedWorker, eventually: Any
):
    caller.start_in_background()
    worker.claim(key_of("run"))
    path = f"/runs/{key_of('run')}"
    eventually(lambda: caller.get(path).get_json()["status"] == "failed", seconds=20)
    assert caller.get(path).get_json()["code"] == "worker_lost"


def test_a_forked_process_makes_services_of_its_own(app: Flask, monkeypatch: pytest.MonkeyPatch):
    holder = app.extensions["outlast"]
    parents = holder.get()
    with monkeypatch.context() as child:
        child.setattr("web.services.os.getpid", lambda: 1)
        assert holder.get() is not parents
        assert holder.get() is holder.get()


def test_closing_what_never_served_is_harmless():
    create_app(Settings(auth="none")).extensions["outlast"].close()


def test_a_memo_reads_once_and_never_keeps_a_failure():
    memo: Memo[str, int] = Memo(60)
    answers = iter([1, 2])
    assert [memo.get("a", lambda: next(answers)) for _ in range(3)] == [1, 1, 1]
    memo.forget("a")
    assert memo.get("a", lambda: next(answers)) == 2


def test_a_memo_stays_within_its_bound():
    memo: Memo[int, int] = Memo(60, most=3)
    for number in range(10):
        memo.get(number, lambda: 0)
    assert len(memo._kept) == 3


def test_a_quota_far_from_its_limit_asks_redis_once(store: Store):
    quota = ActiveRuns(store, 100)
    assert quota.has_room("ada")
    before = store.server_info("commandstats")["cmdstat_hget"]["calls"]
    for _ in range(50):
        assert quota.has_room("ada")
        quota.note_accepted("ada")
    assert store.server_info("commandstats")["cmdstat_hget"]["calls"] == before


def test_a_quota_counts_its_own_accepts_before_it_reads_again(store: Store):
    quota = ActiveRuns(store, 2)
    assert quota.has_room("ada")
    for _ in range(2):
        quota.note_accepted("ada")
    assert quota._counts["ada"].active == 2
    assert quota.has_room("ada"), "Redis knows of none, and a refusal rests on what it says"
