"""Log lines of one request carry its id and its run."""

from __future__ import annotations

import re

import pytest
import structlog

from shared import logs
from tests.web.played_worker import Caller, key_of


@pytest.fixture
def lines():
    """What is written during one test, with the fields that are bound."""
    written: list[dict] = []

    def keep(logger, name, event):
        written.append(dict(event))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, keep])
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(10))
    yield written
    structlog.configure(**before)


def test_the_callers_id_is_on_the_lines_and_in_the_answer(caller: Caller, lines):
    answer = caller.start(X_Request_Id="from-the-proxy-1")
    accepted = [line for line in lines if line["event"] == "run.accepted"]
    assert [(line["request_id"], line["run"]) for line in accepted] == [("from-the-proxy-1", key_of("run"))]
    assert answer.headers["X-Request-Id"] == "from-the-proxy-1"
    answer.close()


@pytest.mark.parametrize("given", [None, "", "x" * 129, "a\tb", "\u00e9"])
def test_a_request_without_a_usable_id_gets_one(caller: Caller, given: str | None):
    answer = caller.get("/agents", **({"X_Request_Id": given} if given is not None else {}))
    assert re.fullmatch(r"[0-9a-f]{16}", answer.headers["X-Request-Id"])


def test_a_refusal_carries_the_id_too(caller: Caller):
    assert caller.get("/runs/none", X_Request_Id="abc").headers["X-Request-Id"] == "abc"


def test_nothing_of_a_request_is_left_for_the_next_one(caller: Caller, lines):
    caller.start(X_Request_Id="one").close()
    logs.get_logger("test").info("test.asked")
    assert lines[-1].keys() & {"request_id", "run"} == set()
