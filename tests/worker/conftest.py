"""An endpoint on this machine for agents that ask one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.openai_endpoint import Endpoint


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy of this machine's stands between."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An endpoint whose answers a test sets."""
    with Endpoint() as started:
        yield started
