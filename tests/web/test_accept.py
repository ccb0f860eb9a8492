"""POST /agents/{agent}: accepted once, streamed, joined, and what a busy thread does."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask import Flask

from shared.runs.identity import RunIdentity
from shared.runs.lifecycle import Status
from shared.store.store import Store
from tests.web.played_worker import (
    Caller,
    PlayedWorker,
    events_of,
    key_of,
    problem_of,
    run_input,
)


def test_a_posted_run_streams_from_run_started_to_its_terminal_event(caller: Caller, worker: PlayedWorker):
    response = caller.start()
    worker.run(key_of("run"), "hel", "lo")
    events = events_of(response)
    assert [seq for seq, _ in events] == [1, 2, 3, 4]
    assert events[0][1] == {
        "type": "RUN_STARTED",
        "threadId": "thread",
        "runId": "run",
        "protocolVersion": "1.0",
    }
    assert [event.get("delta") for _, event in events[1:3]] == ["hel", "lo"]
    assert events[3][1]["type"] == "RUN_FINISHED"


def test_a_stream_carries_the_headers_that_keep_proxies_from_holding_it_back(caller: Caller):
    response = caller.start()
    assert response.headers["Content-Type"] == "text/event-stream"
    assert response.headers["Cache-Control"] == "no-cache, no-store, no-transform"
    assert response.headers["X-Accel-Buffering"] == "no"
    assert "Accept" in response.headers["Vary"]
    response.close()


def test_every_post_names_the_run_key_and_where_the_record_is(caller: Caller):
    response = caller.start()
    assert response.headers["Outlast-Run-Key"] == key_of("run")
    assert response.headers["Location"] == f"/runs/{key_of('run')}"
    response.close()


def test_the_parent_run_is_named_by_the_first_event(caller: Caller):
    response = caller.start(run_input(parentRunId="before"))
    first = next(part for part in response.response if b"RUN_STARTED" in part)
    assert b'"parentRunId":"before"' in first
    response.close()


def test_respond_async_answers_with_the_record_instead_of_a_stream(caller: Caller, worker: PlayedWorker):
    response = caller.start_in_background()
    assert response.status_code == 202
    assert response.headers["Preference-Applied"] == "respond-async"
    assert response.headers["Location"] == f"/runs/{key_of('run')}"
    assert response.headers["Outlast-Run-Key"] == key_of("run")
    assert response.get_json()["status"] == "queued"
    worker.run(key_of("run"))
    assert caller.get(response.headers["Location"]).get_json()["status"] == "succeeded"


def test_respond_async_is_not_followed_where_accept_admits_streams_only(caller: Caller):
    response = caller.start_in_background(Accept="text/event-stream")
    assert response.status_code == 200
    assert response.content_type == "text/event-stream"
    assert "Preference-Applied" not in response.headers
    response.close()


def test_an_accepted_run_is_sent_to_the_workers_once(caller: Caller, worker: PlayedWorker):
    caller.start_in_background()
    caller.start_in_background()
    assert worker.messages() == 1


def test_the_input_is_stored_with_its_unknown_members(caller: Caller, store: Store):
    caller.start_in_background(run_input(novelty={"kept": True}))
    assert b'"novelty":{"kept":true}' in (store.runs.input_of(key_of("run")) or b"")


def test_twenty_posts_of_one_identity_start_one_run(app: Flask, caller: Caller, worker: PlayedWorker):
    def post(_: int) -> int:
        return Caller(app.test_client()).start_in_background().status_code

    with ThreadPoolExecutor(20) as pool:
        statuses = list(pool.map(post, range(20)))
    assert statuses == [202] * 20
    assert worker.messages() == 1


def test_a_client_that_leaves_cancels_nothing(caller: Caller, worker: PlayedWorker, store: Store):
    response = caller.start()
    claim = worker.claim(key_of("run"))
    response.close()
    worker.say(claim, "still here")
    worker.finish(claim)
    record = store.runs.get(key_of("run"))
    assert record is not None
    assert record.status is Status.SUCCEEDED
    assert "cancel_requested_at" not in record.times


def test_a_stream_whose_client_leaves_gives_its_place_back(app: Flask, caller: Caller, eventually: Any):
    response = caller.start()
    hub = app.extensions["outlast"].get().hub
    assert hub.stats()["open_streams"] == 1
    response.close()
    eventually(lambda: hub.stats()["open_streams"] == 0)


def test_a_refused_post_keeps_no_stream_open(app: Flask, caller: Caller):
    caller.start_in_background()
    problem_of(caller.start(query="?on_busy=reject", body=run_input("second")), 409, "THREAD_BUSY")
    assert app.extensions["outlast"].get().hub.stats()["open_streams"] == 0


# --- the same identity again -------------------------------------------------------------------------


def test_the_same_identity_again_is_answered_and_not_executed(caller: Caller, worker: PlayedWorker):
    caller.start_in_background()
    worker.run(key_of("run"), "hello")
    assert b"RUN_FINISHED" in b"".join(caller.start().response)
    assert worker.messages() == 1


def test_other_answers_to_interrupts_under_the_same_identity_are_a_conflict(caller: Caller):
    answers = [{"interruptId": "i1", "status": "resolved", "payload": {"yes": True}}]
    caller.start_in_background(run_input(resume=answers))
    assert caller.start_in_background(run_input(resume=answers)).status_code == 202
    answers[0]["payload"] = {"yes": False}
    assert problem_of(caller.start(run_input(resume=answers)), 409, "RUN_CONFLICT")["field"] == "resume"


def test_a_client_that_comes_back_with_what_it_has_read_is_let_in(caller: Caller):
    caller.start_in_background()
    returning = run_input()
    returning["messages"].append({"id": "a1", "role": "assistant", "content": "hel"})
    assert caller.start_in_background(returning).status_code == 202


def test_members_in_another_order_or_null_are_the_same_conversation(caller: Caller):
    caller.start_in_background()
    again = run_input()
    again["messages"] = [{"content": "hello", "name": None, "role": "user", "id": "m1"}]
    assert caller.start_in_background(again).status_code == 202


def test_activity_messages_do_not_count_in_the_comparison(caller: Caller):
    activity = {"id": "x", "role": "activity", "activityType": "plan", "content": {"step": 1}}
    first = run_input()
    first["messages"].insert(0, activity)
    caller.start_in_background(first)
    assert caller.start_in_background(run_input()).status_code == 202


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([], id="fewer"),
        pytest.param([{"id": "m1", "role": "user", "content": "other"}], id="another text"),
        pytest.param([{"id": "m2", "role": "user", "content": "hello"}], id="another id"),
        pytest.param(
            [
                {"id": "m0", "role": "user", "content": "first"},
                {"id": "m1", "role": "user", "content": "hello"},
            ],
            id="put in front",
        ),
    ],
)
def test_other_messages_under_the_same_identity_are_a_conflict(caller: Caller, messages: list[Any]):
    caller.start_in_background()
    changed = run_input() | {"messages": messages}
    assert problem_of(caller.start(changed), 409, "RUN_CONFLICT")["field"] == "messages"


def test_another_agent_under_the_same_identity_is_a_conflict(caller: Caller, worker: PlayedWorker):
    worker.offer(other="enqueue")
    caller.start_in_background()
    problem_of(caller.start(agent="other"), 409, "RUN_CONFLICT")


def test_the_run_id_alone_is_not_the_identity(caller: Caller, worker: PlayedWorker):
    caller.start_in_background(run_input(thread_id="one"))
    caller.start_in_background(run_input(thread_id="two"))
    assert worker.messages() == 2


def test_an_expired_identity_is_not_executed_again(
    make_app: Callable[..., Flask], caller: Caller, worker: PlayedWorker, store: Store, eventually: Any
):
    caller.start_in_background()
    worker.run(key_of("run"))
    brief = store.settings.model_copy(update={"retention_seconds": 0.001})
    forgetful = type(store.runs)(store.client, brief)
    eventually(lambda: forgetful.expire(key_of("run")))
    problem_of(caller.start(), 410, "RUN_EXPIRED")


# --- a busy thread -----------------------------------------------------------------------------------


def test_a_second_run_of_a_thread_waits_for_its_turn(caller: Caller, worker: PlayedWorker):
    caller.start_in_background()
    response = caller.start_in_background(run_input("second"))
    assert response.get_json()["status"] == "queued"
    assert worker.messages() == 1


def test_reject_refuses_while_the_thread_is_busy_and_names_the_active_run(caller: Caller):
    caller.start_in_background()
    body = problem_of(caller.start(run_input("second"), query="?on_busy=reject"), 409, "THREAD_BUSY")
    assert body["run_id"] == "run"
    assert body["run"]["status"] == "queued"


def test_a_crowded_thread_refuses(make_app: Callable[..., Flask], worker: PlayedWorker):
    caller = Caller(make_app(max_waiting_per_thread=1).test_client())
    assert caller.start_in_background(run_input("one")).status_code == 202
    assert caller.start_in_background(run_input("two")).status_code == 202
    body = problem_of(caller.start(run_input("three")), 409, "THREAD_BUSY")
    assert body["run_id"] == "one"


def test_the_agents_own_policy_counts_where_the_request_names_none(caller: Caller, worker: PlayedWorker):
    worker.offer(strict="reject")
    caller.start_in_background(agent="strict")
    problem_of(caller.start(run_input("second"), agent="strict"), 409, "THREAD_BUSY")
    second = caller.start_in_background(run_input("second"), agent="strict", query="?on_busy=enqueue")
    assert second.status_code == 202


def test_interrupt_asks_the_active_run_to_stop_and_ends_the_waiting_ones(
    caller: Caller, worker: PlayedWorker, store: Store
):
    caller.start_in_background(run_input("active"))
    claim = worker.claim(key_of("active"))
    caller.start_in_background(run_input("waiting"))
    caller.start_in_background(run_input("newest"), query="?on_busy=interrupt")
    active, waiting, newest = (store.runs.get(key_of(name)) for name in ("active", "waiting", "newest"))
    assert active is not None
    assert waiting is not None
    assert newest is not None
    assert (active.status, active.texts["cancel_cause"]) == (Status.RUNNING, "thread_policy")
    assert waiting.status is Status.CANCELLED
    assert newest.status is Status.QUEUED
    worker.finish(claim)
    worker.run(key_of("newest"))


def test_interrupt_of_a_queued_run_gives_the_turn_to_the_new_one_at_once(
    caller: Caller, worker: PlayedWorker, store: Store
):
    caller.start_in_background(run_input("queued"))
    caller.start_in_background(run_input("newest"), query="?on_busy=interrupt")
    queued = store.runs.get(key_of("queued"))
    assert queued is not None
    assert queued.status is Status.CANCELLED
    assert worker.messages() == 2
    worker.run(key_of("newest"))


def test_an_interrupted_thread_never_gives_a_waiting_run_its_turn(caller: Caller, worker: PlayedWorker):
    for run_id in ("queued", "waiting"):
        caller.start_in_background(run_input(run_id))
    caller.start_in_background(run_input("newest"), query="?on_busy=interrupt")
    assert worker.messages() == 2, "one for the first run, one for the newest"


# --- limits ------------------------------------------------------------------------------------------


def test_an_actor_with_too_many_active_runs_is_told_to_wait(
    make_app: Callable[..., Flask], worker: PlayedWorker
):
    caller = Caller(make_app(max_active_runs_per_actor=2).test_client())
    for number in range(2):
        assert caller.start_in_background(run_input(f"r{number}", f"t{number}")).status_code == 202
    response = caller.start(run_input("r2", "t2"))
    problem_of(response, 429, "TOO_MANY_RUNS")
    assert int(response.headers["Retry-After"]) > 0


def test_a_run_that_ended_makes_room_at_once(make_app: Callable[..., Flask], worker: PlayedWorker):
    caller = Caller(make_app(max_active_runs_per_actor=1).test_client())
    caller.start_in_background(run_input("r0", "t0"))
    problem_of(caller.start(run_input("r1", "t1")), 429, "TOO_MANY_RUNS")
    worker.run(key_of("r0", "t0"))
    assert caller.start_in_background(run_input("r1", "t1")).status_code == 202


def test_an_actor_at_its_limit_still_joins_its_own_runs(make_app: Callable[..., Flask], worker: PlayedWorker):
    caller = Caller(make_app(max_active_runs_per_actor=1).test_client())
    caller.start_in_background()
    assert caller.start_in_background().status_code == 202


def test_a_process_full_of_streams_sends_clients_elsewhere_and_accepts_nothing(
    make_app: Callable[..., Flask], worker: PlayedWorker, store: Store
):
    caller = Caller(make_app(max_streams=1).test_client())
    first = caller.start(run_input("one", "t1"))
    response = caller.start(run_input("two", "t2"))
    problem_of(response, 503, "TOO_MANY_STREAMS")
    assert "Retry-After" in response.headers
    assert store.runs.get(RunIdentity("local", "t2", "two").key) is None
    first.close()
