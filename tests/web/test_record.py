"""GET of one record, by its ids and by its key."""

from __future__ import annotations

import re
import threading
import time
from typing import Any
from urllib.parse import quote

import pytest

from shared.runs.outcome import FailureCode, Outcome
from shared.store.store import Store
from tests.web.played_worker import Caller, PlayedWorker, key_of, problem_of, run_input

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def test_a_queued_run_tells_what_is_known_and_leaves_the_rest_out(caller: Caller):
    caller.start_in_background()
    record = caller.get("/threads/thread/runs/run").get_json()
    assert TIME.fullmatch(record.pop("created_at"))
    assert record == {
        "key": key_of("run"),
        "actor": "local",
        "thread_id": "thread",
        "run_id": "run",
        "agent": "echo",
        "status": "queued",
        "last_seq": 1,
    }


def test_a_failed_run_tells_code_and_sentence_but_no_detail(caller: Caller, worker: PlayedWorker):
    caller.start_in_background()
    failure = Outcome.failed(FailureCode.TRANSPORT_TIMEOUT, detail="the traceback", incident="abc123")
    worker.run(key_of("run"), outcome=failure)
    response = caller.get("/threads/thread/runs/run")
    record = response.get_json()
    assert (record["status"], record["code"], record["incident"]) == ("failed", "transport_timeout", "abc123")
    assert (record["attempt"], record["worker"]) == (1, "played@here")
    assert TIME.fullmatch(record["finished_at"])
    assert b"the traceback" not in response.data


def test_the_run_key_names_the_same_record(caller: Caller):
    caller.start_in_background()
    by_key = caller.get(f"/runs/{key_of('run')}")
    assert by_key.get_json() == caller.get("/threads/thread/runs/run").get_json()
    assert by_key.headers["Outlast-Run-Key"] == key_of("run")


@pytest.mark.parametrize(
    "run_id", ["a b", "ümlaut", "50%", "a.b", "...", "?x=1#y", "a+b", "日本", "a\\b", "'\"<>"]
)
def test_ids_travel_percent_encoded_in_paths(caller: Caller, run_id: str):
    caller.start_in_background(run_input(run_id, thread_id=run_id))
    record = caller.get(f"/threads/{quote(run_id, safe='')}/runs/{quote(run_id, safe='')}").get_json()
    assert (record["thread_id"], record["run_id"]) == (run_id, run_id)


def test_an_id_with_a_slash_travels_by_run_key(caller: Caller):
    response = caller.start_in_background(run_input("a/b", thread_id="/"))
    record = caller.get(response.headers["Location"]).get_json()
    assert (record["thread_id"], record["run_id"]) == ("/", "a/b")


@pytest.mark.parametrize(
    "path",
    [
        "/threads/thread/runs/other",
        "/threads/other/runs/run",
        "/runs/b0" + "a" * 26,
        "/runs/run",
        "/runs/%00",
    ],
)
def test_what_is_not_there_is_a_404(caller: Caller, path: str):
    caller.start_in_background()
    problem_of(caller.get(path), 404, "UNKNOWN_RUN")


def test_an_expired_run_is_gone_by_its_ids_and_unknown_by_its_key(
    caller: Caller, worker: PlayedWorker, store: Store, eventually: Any
):
    caller.start_in_background()
    worker.run(key_of("run"))
    brief = store.settings.model_copy(update={"retention_seconds": 0.001})
    eventually(lambda: type(store.runs)(store.client, brief).expire(key_of("run")))
    problem_of(caller.get("/threads/thread/runs/run"), 410, "RUN_EXPIRED")
    problem_of(caller.get(f"/runs/{key_of('run')}"), 404, "UNKNOWN_RUN")


def test_wait_answers_as_soon_as_the_outcome_is_recorded(caller: Caller, worker: PlayedWorker):
    caller.start_in_background()
    claim = worker.claim(key_of("run"))
    ending = threading.Timer(0.3, worker.finish, (claim,))
    ending.start()
    begun = time.monotonic()
    record = caller.get("/threads/thread/runs/run?wait=30").get_json()
    ending.join()
    assert record["status"] == "succeeded"
    assert time.monotonic() - begun < 5


def test_wait_answers_with_the_record_as_it_stands_when_time_is_up(caller: Caller):
    caller.start_in_background()
    assert caller.get("/threads/thread/runs/run?wait=0.2").get_json()["status"] == "queued"


@pytest.mark.parametrize("wait", ["-1", "soon", "nan", "inf", ""])
def test_wait_takes_seconds_only(caller: Caller, wait: str):
    caller.start_in_background()
    response = caller.get(f"/threads/thread/runs/run?wait={wait}")
    assert problem_of(response, 400, "INVALID_INPUT")["field"] == "wait"
