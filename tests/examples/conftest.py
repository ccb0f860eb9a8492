"""The installation that the examples run on: real processes with the examples' agents."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.local.server import EmbeddedServer
from tests.journeys.failure_logs import pytest_runtest_makereport  # noqa: F401 - a hook of this folder
from tests.journeys.processes import ROOT, free_port
from tests.journeys.stack import Stack

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="session")
def page_port() -> int:
    """Where the browser example's page is served."""
    return free_port()


@pytest.fixture(scope="module")
def start_stack(page_port: int) -> Iterator[Any]:
    """``start_stack(agents)``: Redis, a worker with these agents and gunicorn; they end with the module."""
    with tempfile.TemporaryDirectory(prefix="outlast-examples-") as folder:
        server = EmbeddedServer(Path(folder) / "redis")
        server.start()
        made: list[Stack] = []

        def start(agents: str = "", **environment: str) -> Stack:
            origins = f"http://127.0.0.1:{page_port}"
            environment = {"OUTLAST_AGENTS": agents, "OUTLAST_CORS_ORIGINS": origins, **environment}
            made.append(Stack(Path(folder), server, **environment))
            made[-1].start("gunicorn", concurrency=16)
            return made[-1]

        yield start
        for stack in made:
            stack.close()
        server.stop()
