"""Snippets that ask a model get one that answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.settings import Settings
from tests.openai_endpoint import Endpoint, complete, finish, text
from worker.agents import chat_agent


@pytest.fixture(scope="session")
def model() -> Iterator[Endpoint]:
    with Endpoint([complete(text("hi"), finish())]) as started:
        yield started


@pytest.fixture(autouse=True)
def _model_settings(model: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    settings = Settings(chat_base_url=model.base_url, chat_model="stub-1")
    # The process-wide settings are read once, before this.
    monkeypatch.setattr(chat_agent, "load", lambda: settings)
