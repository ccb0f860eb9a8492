"""RUN_STARTED carries the request for agents that want it, live and in the log alike."""

from __future__ import annotations

import json

from flask import Flask

from shared.protocol import sse
from shared.store.store import Store
from tests.web.played_worker import Caller, PlayedWorker, events_of, key_of, problem_of, run_input


def offer(store: Store) -> None:
    store.workers.beat("played@here", {"pid": 1}, {"echoing": {"echo_input": True}, "echo": {}})


def test_an_agent_that_wants_the_echo_gets_the_request_into_its_first_event(
    caller: Caller, worker: PlayedWorker, store: Store
):
    offer(store)
    stream = caller.start(run_input(forwardedProps={"a": 1}), agent="echoing")
    worker.run(key_of("run"))
    (_, live), *_ = events_of(stream)
    assert (live["type"], live["input"]["forwardedProps"]) == ("RUN_STARTED", {"a": 1})
    assert live["input"]["messages"] == run_input()["messages"]
    assert json.loads(sse.data_of(store.log.read_all(key_of("run"))[0])) == live


def test_other_agents_do_not(caller: Caller, worker: PlayedWorker, store: Store):
    offer(store)
    stream = caller.start(agent="echo")
    worker.run(key_of("run"))
    assert "input" not in events_of(stream)[0][1]


def test_a_request_that_cannot_be_written_is_refused_before_anything_is_stored(caller: Caller, store: Store):
    offer(store)
    body = json.dumps(run_input()).replace("hello", "\\ud800")
    response = caller.client.post("/agents/echoing", data=body, content_type="application/json")
    problem_of(response, 400, "INVALID_INPUT")
    assert store.runs.get(key_of("run")) is None


def test_a_request_larger_than_an_event_may_be_is_not_echoed(app: Flask, store: Store):
    offer(store)
    small = store.settings.model_copy(update={"max_bytes_per_event": 500})
    app.extensions["outlast"].settings = small
    caller = Caller(app.test_client())
    for run, size in (("small", 10), ("large", 1000)):
        assert caller.start_in_background(run_input(run, run, "x" * size), agent="echoing").status_code == 202
    echoed = [
        "input" in json.loads(sse.data_of(store.log.read_all(key_of(run, run))[0]))
        for run in ("small", "large")
    ]
    assert echoed == [True, False]
