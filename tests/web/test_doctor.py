"""The doctor names what is wrong and says what to do."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from flask import Flask
from pydantic import SecretStr

from shared.settings import Settings
from shared.store.store import Store
from web import doctor
from web.doctor import Finding, Level, examine, worker_of_this_host


def _by_topic(findings: list[Finding]) -> dict[str, Finding]:
    found = {finding.topic: finding for finding in findings}
    assert len(found) == len(findings)
    return found


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder without a gunicorn configuration."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def healthy(store: Store) -> Store:
    facts = {"host": socket.gethostname(), "pid": 1, "started_at": int(time.time() * 1000)}
    store.workers.beat("w@h", facts, {"echo": {"policy": "enqueue"}})
    return store


def test_a_healthy_set_up_has_nothing_wrong(healthy: Store, settings: Settings) -> None:
    findings = _by_topic(examine(settings))
    assert [finding for finding in findings.values() if finding.level is Level.WRONG] == []
    assert findings["agents"].sentence == "Agents offered: echo."
    assert set(findings) == {
        "redis",
        "version",
        "persistence",
        "eviction",
        "clock",
        "worker",
        "agents",
        "auth",
    }
    assert all(finding.sentence.endswith(".") for finding in findings.values())


def test_a_redis_that_is_away_is_the_first_finding(settings: Settings) -> None:
    gone = settings.model_copy(update={"redis_url": "redis://:secret@127.0.0.1:1/0"})
    first = examine(gone)[0]
    assert (first.level, first.topic) == (Level.WRONG, "redis")
    assert "OUTLAST_REDIS_URL" in first.sentence
    assert "secret" not in first.sentence


def test_missing_workers_are_wrong(store: Store, settings: Settings) -> None:
    finding = _by_topic(examine(settings))["worker"]
    assert finding.level is Level.WRONG
    assert "celery -A worker worker" in finding.sentence


@pytest.mark.parametrize(
    ("bad", "good", "topic"),
    [
        ("appendonly no", "yes", "persistence"),
        ("maxmemory-policy allkeys-lru", "noeviction", "eviction"),
    ],
)
def test_a_server_that_may_forget_is_found(
    healthy: Store, settings: Settings, bad: str, good: str, topic: str
) -> None:
    healthy.client.config_set("maxmemory", "1gb")
    name, value = bad.split()
    healthy.client.config_set(name, value)
    try:
        assert _by_topic(examine(settings))[topic].level is Level.WRONG
    finally:
        healthy.client.config_set(name, good)
        healthy.client.config_set("maxmemory", "0")


def test_an_old_server_is_refused_and_valkey_is_not() -> None:
    assert doctor._version({"redis_version": "6.2.14"}).level is Level.WRONG
    assert doctor._version({"redis_version": "7.0.15"}).level is Level.OK
    valkey = {"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "8.1.0"}
    assert doctor._version(valkey) == Finding(Level.OK, "version", "The server is Valkey 8.1.0.")


def test_a_clock_that_differs_is_told(
    healthy: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    monkeypatch.setattr(doctor.time, "time", lambda: real() - 60)
    finding = _by_topic(examine(settings))["clock"]
    assert finding.level is Level.WARNING
    assert "60.0 s ahead of" in finding.sentence


def test_keys_without_a_key_are_wrong_until_one_is_made(healthy: Store, settings: Settings) -> None:
    with_keys = settings.model_copy(update={"auth": "keys"})
    finding = _by_topic(examine(with_keys))["auth"]
    assert finding.level is Level.WRONG
    assert "flask keys create" in finding.sentence
    tokens = with_keys.model_copy(update={"jwt_secret": SecretStr("x" * 32)})
    assert _by_topic(examine(tokens))["auth"].level is Level.OK
    healthy.api_keys.create("ada")
    assert _by_topic(examine(with_keys))["auth"].level is Level.OK


@pytest.mark.parametrize(
    ("config", "arguments", "expected"),
    [
        ("bind = '0.0.0.0:80'\n", "", "sync"),
        ("worker_class = 'gevent'\n", "", "gevent"),
        ("worker_class = 'gevent'\n", "--worker-class=sync", "sync"),
        ("threads = 16\n", "", "gthread"),
        (None, "-k gevent -w 2", "gevent"),
        (None, "", None),
    ],
)
def test_the_worker_class_of_gunicorn_is_read_as_gunicorn_does(
    elsewhere: Path, config: str | None, arguments: str, expected: str | None
) -> None:
    path = elsewhere / "gunicorn.conf.py"
    if config is not None:
        path.write_text(config)
    assert doctor._worker_class(path, arguments) == expected


def test_a_sync_gunicorn_is_wrong(elsewhere: Path, healthy: Store, settings: Settings) -> None:
    (elsewhere / "gunicorn.conf.py").write_text("workers = 4\n")
    finding = _by_topic(examine(settings))["web"]
    assert finding.level is Level.WRONG
    assert "gevent" in finding.sentence


def test_only_a_worker_of_this_host_counts_for_a_container(store: Store, settings: Settings) -> None:
    store.workers.beat("w@other", {"host": "other"}, {})
    assert worker_of_this_host(settings).level is Level.WRONG
    store.workers.beat("w@here", {"host": socket.gethostname()}, {})
    assert worker_of_this_host(settings).level is Level.OK


@pytest.fixture
def shell(app: Flask) -> Callable[..., Result]:
    return lambda *words: app.test_cli_runner().invoke(args=words)


def test_the_command_exits_with_1_when_something_is_wrong(store: Store, shell: Callable[..., Any]) -> None:
    result = shell("doctor")
    assert result.exit_code == 1
    assert "WRONG    worker: No worker has a fresh heartbeat" in result.stdout
    assert shell("doctor", "--worker").exit_code == 1


def test_the_command_exits_with_0_when_nothing_is(healthy: Store, shell: Callable[..., Any]) -> None:
    assert shell("doctor").exit_code == 0
    assert shell("doctor", "--worker").exit_code == 0
    lines = [json.loads(line) for line in shell("doctor", "--json").stdout.splitlines()]
    assert lines[0]["topic"] == "redis"


def test_agents_of_workers_that_are_gone_are_told_apart(healthy: Store, settings: Settings) -> None:
    healthy.workers.beat("old@h", {}, {"cashier": {}})
    healthy.workers.leave("old@h")
    sentence = _by_topic(examine(settings))["agents"].sentence
    assert sentence == "Agents offered: echo. Known from workers that are gone: cashier."
