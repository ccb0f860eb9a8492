"""Stacks of real processes: one shared by all journeys that end nothing, and fresh ones for the others."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shared.local.server import EmbeddedServer
from tests.journeys.failure_logs import pytest_runtest_makereport  # noqa: F401 - a hook of this folder
from tests.journeys.stack import Stack
from tests.openai_endpoint import Endpoint, complete, text


@pytest.fixture(scope="session")
def provider() -> Iterator[Endpoint]:
    """The model provider of the shared stack's `chat`; a test sets its answers."""
    with Endpoint([complete(text("Hello "), text("from the model."))]) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def stack(provider: Endpoint) -> Iterator[Stack]:
    """One worker (threads) and one web process for everything that ends none of them."""
    with tempfile.TemporaryDirectory(prefix="outlast-journeys-") as folder:
        server = EmbeddedServer(Path(folder) / "redis")
        server.start()
        shared = Stack(
            Path(folder),
            server,
            OUTLAST_CHAT_BASE_URL=provider.base_url,
            OUTLAST_CHAT_MODEL="stub-1",
            OUTLAST_CHAT_API_KEY="key-of-the-provider",
            OUTLAST_CHAT_TIMEOUT_SECONDS="0.5",
        )
        try:
            shared.start(concurrency=24)
            yield shared
        finally:
            shared.close()
            server.stop()


@pytest.fixture
def make_stack(own_server: EmbeddedServer, tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    """``make_stack(**environment)``: an installation of its own on a server that the test may end."""
    made: list[Stack] = []

    def make(**environment: str) -> Stack:
        made.append(Stack(tmp_path, own_server, **environment))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="session")
def prefork() -> Iterator[Stack]:
    """The same with pool children, for journeys that end one of them."""
    with tempfile.TemporaryDirectory(prefix="outlast-journeys-") as folder:
        server = EmbeddedServer(Path(folder) / "redis")
        server.start()
        shared = Stack(Path(folder), server)
        try:
            shared.start(pool="prefork", concurrency=3)
            yield shared
        finally:
            shared.close()
            server.stop()


@pytest.fixture(scope="session")
def field() -> Iterator[Stack]:
    """A production stack with the agents of the field reports, whose faults it survives."""
    with tempfile.TemporaryDirectory(prefix="outlast-journeys-") as folder:
        server = EmbeddedServer(Path(folder) / "redis")
        server.start()
        agents = "agents_under_test:AGENTS,agents_of_the_field:AGENTS"
        shared = Stack(Path(folder), server, OUTLAST_AGENTS=agents)
        try:
            shared.start("gunicorn", concurrency=24)
            yield shared
        finally:
            shared.close()
            server.stop()
