"""POST .../cancel: exactly this run, and never the wish taken for the outcome."""

from __future__ import annotations

import threading
import time

import pytest

from shared.runs.lifecycle import Status
from shared.runs.outcome import Outcome
from shared.store.store import Store
from tests.web.played_worker import Caller, PlayedWorker, key_of, problem_of, run_input, types_of

PATH = "/threads/thread/runs/run/cancel"


def test_a_queued_run_is_cancelled_on_the_spot(caller: Caller, store: Store):
    stream = caller.start()
    response = caller.post(PATH, json={"reason": "no longer needed"})
    record = response.get_json()
    assert response.status_code == 200
    assert (record["status"], record["cancel_reason"]) == ("cancelled", "no longer needed")
    assert record["outcome"] == {"type": "cancelled"}
    assert types_of(stream) == ["RUN_STARTED", "RUN_FINISHED"]


def test_a_running_run_is_asked_to_stop(caller: Caller, worker: PlayedWorker, store: Store):
    caller.start_in_background()
    worker.claim(key_of("run"))
    response = caller.post(PATH)
    body = response.get_json()
    assert (response.status_code, body["status"]) == (202, "requested")
    assert "cancel_requested_at" in body
    assert response.headers["Location"] == f"/runs/{key_of('run')}"
    record = store.runs.get(key_of("run"))
    assert record is not None
    assert record.status is Status.RUNNING
    assert (record.texts["cancel_by"], record.texts["cancel_cause"]) == ("local", "client")


def test_asked_twice_it_answers_the_same_and_keeps_the_first_reason(caller: Caller, worker: PlayedWorker):
    caller.start_in_background()
    worker.claim(key_of("run"))
    first = caller.post(PATH, json={"reason": "first"})
    second = caller.post(PATH, json={"reason": "second"})
    assert first.status_code == second.status_code == 202
    assert first.get_json() == second.get_json()


def test_wait_answers_with_the_recorded_outcome(caller: Caller, worker: PlayedWorker):
    caller.start_in_background()
    claim = worker.claim(key_of("run"))
    ending = threading.Timer(0.3, worker.finish, (claim, Outcome.cancelled()))
    ending.start()
    response = caller.post(f"{PATH}?wait=30")
    ending.join()
    assert (response.status_code, response.get_json()["status"]) == (200, "cancelled")


def test_wait_tells_when_the_run_ended_otherwise(caller: Caller, worker: PlayedWorker):
    caller.start_in_background()
    claim = worker.claim(key_of("run"))
    ending = threading.Timer(0.3, worker.finish, (claim,))
    ending.start()
    response = caller.post(f"{PATH}?wait=30")
    ending.join()
    record = response.get_json()
    assert (response.status_code, record["status"]) == (200, "succeeded")
    assert "cancel_requested_at" in record


def test_wait_gives_up_when_its_time_is_over(caller: Caller, worker: PlayedWorker):
    caller.start_in_background()
    worker.claim(key_of("run"))
    begun = time.monotonic()
    response = caller.post(f"{PATH}?wait=0.3")
    assert (response.status_code, response.get_json()["status"]) == (202, "requested")
    assert time.monotonic() - begun < 3


def test_an_ended_run_answers_with_its_recorded_outcome(caller: Caller, worker: PlayedWorker):
    caller.start_in_background()
    worker.run(key_of("run"))
    body = problem_of(caller.post(PATH), 409, "RUN_ENDED")
    assert body["run"]["status"] == "succeeded"
    assert "cancel_requested_at" not in body["run"]


def test_a_run_that_was_cancelled_has_ended(caller: Caller):
    caller.start_in_background()
    caller.post(PATH)
    assert problem_of(caller.post(PATH), 409, "RUN_ENDED")["run"]["status"] == "cancelled"


@pytest.mark.parametrize(
    "path", ["/threads/other/runs/run/cancel", "/threads/thread/runs/other/cancel", "/runs/x/cancel"]
)
def test_another_thread_or_run_is_not_stopped(caller: Caller, store: Store, path: str):
    caller.start_in_background()
    problem_of(caller.post(path), 404, "UNKNOWN_RUN")
    record = store.runs.get(key_of("run"))
    assert record is not None
    assert record.status is Status.QUEUED


def test_the_run_key_form_stops_the_same_run(caller: Caller):
    response = caller.start_in_background(run_input("a/b"))
    stopped = caller.post(f"{response.headers['Location']}/cancel")
    assert (stopped.status_code, stopped.get_json()["status"]) == (200, "cancelled")


def test_the_next_run_of_the_thread_gets_its_turn(caller: Caller, worker: PlayedWorker):
    caller.start_in_background()
    caller.start_in_background(run_input("second"))
    caller.post(PATH)
    assert worker.messages() == 2
    worker.run(key_of("second"))


def test_a_waiting_run_is_cancelled_without_touching_the_active_one(
    caller: Caller, worker: PlayedWorker, store: Store
):
    caller.start_in_background()
    claim = worker.claim(key_of("run"))
    caller.start_in_background(run_input("second"))
    stopped = caller.post("/threads/thread/runs/second/cancel")
    assert stopped.get_json()["status"] == "cancelled"
    worker.finish(claim)
    record = store.runs.get(key_of("run"))
    assert record is not None
    assert record.status is Status.SUCCEEDED


@pytest.mark.parametrize("body", [b"", b" ", b"{}", b'{"reason":null}', b'{"reason":"  "}', b'{"other":1}'])
def test_a_reason_is_not_needed(caller: Caller, body: bytes):
    caller.start_in_background()
    response = caller.post(PATH, data=body, content_type="application/json")
    assert response.status_code == 200
    assert "cancel_reason" not in response.get_json()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"[]", None),
        (b"{", None),
        (b'{"reason":NaN}', None),
        (b'{"reason":"\\ud800"}', None),
        (b'{"reason":7}', "reason"),
        (b'{"reason":"a\\u0007b"}', "reason"),
        (b'{"reason":"' + b"x" * 1001 + b'"}', "reason"),
    ],
)
def test_a_body_that_means_nothing_stops_nothing(
    caller: Caller, store: Store, body: bytes, field: str | None
):
    caller.start_in_background()
    response = caller.post(PATH, data=body, content_type="application/json")
    assert problem_of(response, 400, "INVALID_INPUT").get("field") == field
    record = store.runs.get(key_of("run"))
    assert record is not None
    assert record.status is Status.QUEUED


def test_a_large_body_or_a_form_is_refused(caller: Caller):
    caller.start_in_background()
    large = caller.post(PATH, data=b" " * 20_000, content_type="application/json")
    problem_of(large, 413, "INVALID_BODY")
    problem_of(caller.post(PATH, data={"reason": "x"}), 415, "UNSUPPORTED_MEDIA_TYPE")
