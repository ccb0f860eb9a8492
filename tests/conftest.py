"""Fixtures over real infrastructure: a private Redis, settings, a store, and waiting with a deadline."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
import pytest

from shared.local.server import EmbeddedServer
from shared.logs import configure
from shared.settings import Settings
from shared.store.store import Store, open_store

Value = TypeVar("Value")

_FOREIGN = {"REDIS_URL", "CELERY_BROKER_URL"}
for _name in [name for name in os.environ if name.startswith("OUTLAST_") or name in _FOREIGN]:
    del os.environ[_name]


# No time limits on a machine that does other things; the same examples each time where nobody can look.
hypothesis.settings.register_profile("outlast", deadline=None, derandomize=os.environ.get("CI") == "true")
hypothesis.settings.load_profile("outlast")


def wait_for(condition: Callable[[], Value], seconds: float = 10.0, pause: float = 0.01) -> Value:
    """Asks ``condition`` until its answer is true, and returns that; fails at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {condition}")
        time.sleep(pause)


@pytest.fixture(scope="session")
def eventually() -> Callable[..., Any]:
    """``eventually(condition, seconds=10)`` polls with a deadline."""
    return wait_for


@pytest.fixture(scope="session")
def session_server() -> Iterator[EmbeddedServer]:
    """One server for all tests that do not stop it."""
    with tempfile.TemporaryDirectory(prefix="outlast-") as folder:
        server = EmbeddedServer(Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture
def redis_server(session_server: EmbeddedServer) -> Iterator[EmbeddedServer]:
    """The session's server, empty."""
    store = open_store(Settings(redis_url=session_server.url))
    store.client.flushall()
    yield session_server
    store.close()


@pytest.fixture
def own_server() -> Iterator[EmbeddedServer]:
    """A server that a test may kill, stop and restart."""
    with tempfile.TemporaryDirectory(prefix="outlast-") as folder:
        server = EmbeddedServer(Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture
def settings(redis_server: EmbeddedServer) -> Settings:
    """Settings for tests: short times, no authentication."""
    return Settings(
        redis_url=redis_server.url,
        auth="none",
        lease_seconds=2,
        sweep_seconds=0.2,
        drain_seconds=2,
        cancel_grace_seconds=0.5,
        heartbeat_seconds=0.5,
        log_level="error",
    )


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    """A store over the empty server."""
    opened = open_store(settings)
    yield opened
    opened.close()


@pytest.fixture(scope="session", autouse=True)
def _quiet_logs() -> None:
    configure("error", "text")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With CI=true a skipped test fails the session: every tool must be there."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") == "true" and reporter and reporter.stats.get("skipped"):
        reporter.write_line("CI=true: skipped tests are failures", red=True)
        session.exitstatus = 1
