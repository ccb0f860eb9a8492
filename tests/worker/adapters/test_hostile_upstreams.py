"""Endpoints that send what no AG-UI server should, or endlessly much of it."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from tests.openai_endpoint import Answer, Endpoint
from tests.worker.adapters.upstream import FINISHED, STARTED, WHOLE, closing, frame
from worker.agents.remote import remote
from worker.agents.testing import record, run_input
from worker.agents.wire_events import MOST_LOGGED


def run(endpoint: Endpoint) -> list[Any]:
    return record(closing(remote(endpoint.base_url, timeout=5)), run_input("hi"))


@pytest.mark.parametrize("status", [200, 500])
def test_a_coding_that_nobody_asked_for_is_not_unpacked(endpoint: Endpoint, status: int):
    body = gzip.compress(b"".join(WHOLE))
    endpoint.answers = [Answer((body,), status=status, headers=(("Content-Encoding", "gzip"),))]
    last = run(endpoint)[-1]
    assert (last.type, last.code) == ("RUN_ERROR", "provider_error")


def test_a_named_identity_is_no_coding(endpoint: Endpoint):
    endpoint.answers = [Answer(WHOLE, headers=(("Content-Encoding", "identity"),))]
    assert run(endpoint)[-1].type == "RUN_FINISHED"


def test_an_unknown_event_type_is_logged_once_however_often_it_comes(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
):
    logged: list[str] = []
    monkeypatch.setattr(
        "worker.agents.wire_events.log.warning", lambda _, **members: logged.append(members["type"])
    )
    types = ["LATER", "LATER", *(f"OTHER_{number}" for number in range(2 * MOST_LOGGED))]
    endpoint.answers = [Answer((STARTED, *map(frame, types), FINISHED))]
    assert run(endpoint)[-1].type == "RUN_FINISHED"
    assert (logged[:2], len(logged)) == (["LATER", "OTHER_0"], MOST_LOGGED)
