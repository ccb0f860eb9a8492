"""The application over a real Redis, with the worker's part played by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from flask import Flask

from shared.settings import Settings
from shared.store.store import Store
from tests.web.played_worker import Caller, PlayedWorker
from web import create_app


@pytest.fixture
def make_app(settings: Settings, store: Store) -> Iterator[Callable[..., Flask]]:
    """``make_app(name=value)`` builds an application whose settings differ by that."""
    made: list[Flask] = []

    def make(**changes: object) -> Flask:
        app = create_app(settings.model_copy(update=changes))
        made.append(app)
        return app

    yield make
    for app in made:
        holder = app.extensions["outlast"]
        held = holder.get()
        holder.close()
        held.sweeper.stop(timeout=5) if held.sweeper._thread.ident else None
        held.store.close()


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    """An application without authentication."""
    return make_app()


@pytest.fixture
def worker(store: Store) -> PlayedWorker:
    """A worker that offers ``echo``."""
    played = PlayedWorker(store)
    played.offer(echo="enqueue")
    return played


@pytest.fixture
def caller(app: Flask, worker: PlayedWorker) -> Caller:
    """A client of ``app``, with a worker in the catalogue."""
    return Caller(app.test_client())
