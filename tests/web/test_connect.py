"""POST /threads/{thread}/connect: a client that knows only the thread gets it as it stands."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from shared.protocol import sse
from shared.store.store import Store
from tests.web.played_worker import Body, Caller, PlayedWorker, key_of, problem_of, run_input

CONNECT = "/threads/thread/connect"


def first_of(response: TestResponse) -> Body:
    """The first event; then the client leaves."""
    assert (response.status_code, response.content_type) == (200, "text/event-stream"), response.data
    came = b""
    while b"RUN_STARTED" not in came:
        came += next(response.response)
    response.close()
    text = next(part for part in came.split(b"\n\n") if b"RUN_STARTED" in part)
    return dict(json.loads(sse.data_of(text + b"\n\n")))


def joined(caller: Caller) -> str:
    """The run that a client is connected to."""
    return str(first_of(caller.post(CONNECT, buffered=False))["runId"])


def test_a_thread_without_runs_is_a_404(caller: Caller):
    problem_of(caller.post(CONNECT), 404, "UNKNOWN_RUN")


def test_the_running_run_is_joined_whatever_waits_behind_it(caller: Caller, worker: PlayedWorker):
    for run_id in ("first", "second", "third"):
        caller.start_in_background(run_input(run_id))
    worker.run(key_of("first"))
    worker.claim(key_of("second"))
    assert joined(caller) == "second"


def test_of_queued_runs_the_one_whose_turn_it_is_is_joined_though_another_has_ended(
    caller: Caller, worker: PlayedWorker
):
    caller.start_in_background(run_input("ended"))
    worker.run(key_of("ended"))
    for run_id in ("next", "last"):
        caller.start_in_background(run_input(run_id))
    assert joined(caller) == "next"


def test_without_an_active_run_the_last_one_is_told(caller: Caller, worker: PlayedWorker):
    for run_id in ("old", "new"):
        caller.start_in_background(run_input(run_id))
        worker.run(key_of(run_id))
    assert joined(caller) == "new"


def test_runs_cancelled_while_they_waited_hide_nothing(caller: Caller, worker: PlayedWorker):
    for run_id in ("running", "waiting"):
        caller.start_in_background(run_input(run_id))
    worker.claim(key_of("running"))
    caller.post("/threads/thread/runs/waiting/cancel")
    assert joined(caller) == "running"


def test_the_answer_names_the_run_that_was_joined(caller: Caller):
    caller.start_in_background()
    response = caller.post(CONNECT, buffered=False)
    assert response.headers["Outlast-Run-Key"] == key_of("run")
    assert response.headers["Location"] == f"/runs/{key_of('run')}"
    assert response.headers["Cache-Control"] == "no-cache, no-store, no-transform"
    assert response.headers["X-Accel-Buffering"] == "no"
    response.close()


@pytest.mark.parametrize(
    "body", [None, {}, run_input("a run of the client's own", messages=[]), {"runId": 7}], ids=repr
)
def test_what_the_client_sends_along_changes_nothing(caller: Caller, worker: PlayedWorker, body: Body | None):
    caller.start_in_background()
    before = worker.messages()
    assert first_of(caller.post(CONNECT, json=body, buffered=False))["runId"] == "run"
    assert worker.messages() == before


def test_a_body_of_another_type_or_size_is_refused(make_app: Callable[..., Flask], worker: PlayedWorker):
    caller = Caller(make_app(max_bytes_per_request=1000).test_client())
    caller.start_in_background()
    problem_of(caller.post(CONNECT, data=b"x", content_type="text/plain"), 415, "UNSUPPORTED_MEDIA_TYPE")
    problem_of(caller.post(CONNECT, json={"x": "x" * 1000}), 413, "INVALID_BODY")


def test_only_a_stream_can_be_had(caller: Caller):
    caller.start_in_background()
    refused = caller.post(CONNECT, headers={"Accept": "application/json"})
    problem_of(refused, 406, "NOT_ACCEPTABLE")


def test_other_methods_are_refused(caller: Caller):
    problem_of(caller.get(CONNECT), 405, "METHOD_NOT_ALLOWED")


def test_another_threads_and_another_actors_runs_are_not_found(
    make_app: Callable[..., Flask], worker: PlayedWorker, store: Store
):
    app = make_app(auth="keys")
    ada, bob = (
        Caller(app.test_client(), Authorization=f"Bearer {store.api_keys.create(name)[0]}")
        for name in ("ada", "bob")
    )
    ada.start_in_background()
    problem_of(bob.post(CONNECT), 404, "UNKNOWN_RUN")
    problem_of(ada.post("/threads/other/connect"), 404, "UNKNOWN_RUN")
    problem_of(Caller(app.test_client()).post(CONNECT), 401, "UNAUTHENTICATED")
    assert joined(ada) == "run"
