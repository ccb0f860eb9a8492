"""An installation with API keys, and callers who hold each role."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from shared.runs.access import Role
from shared.store.store import Store
from tests.web.played_worker import Caller, PlayedWorker, run_input

Body = dict[str, Any]


class Desk:
    """Owner ``ann``, and one caller per role."""

    def __init__(self, app: Flask, store: Store, worker: PlayedWorker) -> None:
        self.store = store
        self.worker = worker
        self.app = app
        self.ann = self._caller("ann")
        self.viewer = self._caller("vera", Role.VIEWER)
        self.operator = self._caller("olga", Role.OPERATOR)
        self.admin = self._caller("adam", Role.ADMIN)
        self.reader = self._caller("rita", Role.VIEWER, Role.PAYLOADS)

    def _caller(self, name: str, *roles: Role) -> Caller:
        secret, _ = self.store.api_keys.create(name, frozenset(roles))
        return Caller(self.app.test_client(), Authorization=f"Bearer {secret}")

    def submit(self, run_id: str = "run", thread_id: str = "thread", **members: Any) -> str:
        """A queued run of ann's."""
        answer = self.ann.start_in_background(run_input(run_id, thread_id, **members))
        assert answer.status_code == 202
        return str(answer.headers["Outlast-Run-Key"])

    def audit(self) -> list[Body]:
        """Newest first."""
        return list(self.viewer.get("/ops/api/audit").get_json()["entries"])


@pytest.fixture
def desk(make_app: Callable[..., Flask], store: Store, worker: PlayedWorker) -> Desk:
    return Desk(make_app(auth="keys"), store, worker)
