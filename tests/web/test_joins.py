"""Joins: a client that has, or has lost, a part of a run gets it by snapshots and then the rest."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from shared.protocol import sse
from shared.runs.outcome import FailureCode, Outcome
from shared.store.answers import Claim
from shared.store.log import Batch
from shared.store.store import Store
from tests.client_rules import Client
from tests.web.played_worker import (
    Body,
    Caller,
    PlayedWorker,
    ends,
    key_of,
    problem_of,
    run_input,
    says,
    starts,
)

EVENTS = "/threads/thread/runs/run/events"
SNAPSHOT = f"{EVENTS}?mode=snapshot"

Frame = tuple[int | None, Body]


def frame_of(text: bytes) -> Frame:
    number = sse.seq_of(text) if text.startswith(b"id: ") else None
    return number, json.loads(sse.data_of(text))


def frames_of(response: TestResponse, most: int | None = None) -> list[Frame]:
    """Events with their ids, to the end or, once ``most`` have come, to the client's leaving."""
    assert (response.status_code, response.content_type) == (200, "text/event-stream"), response.data
    frames: list[Frame] = []
    held = b""
    for piece in response.response:
        *whole, held = (held + piece).split(b"\n\n")
        frames += [frame_of(text + b"\n\n") for text in whole if text and not text.startswith(b":")]
        if most is not None and len(frames) >= most:
            break
    response.close()
    return frames


def types(frames: list[Frame]) -> list[str]:
    return [event["type"] for _, event in frames]


def ids(frames: list[Frame]) -> list[int | None]:
    return [number for number, _ in frames]


def emit(store: Store, claim: Claim, *events: Body) -> None:
    first = store.log.last_seqs([claim.key])[0] + 1
    frames = tuple(
        sse.frame(first + at, json.dumps(event, separators=(",", ":")).encode())
        for at, event in enumerate(events)
    )
    assert store.log.append(Batch(claim.key, claim.execution, first, frames)).state == "ok"


@pytest.fixture
def speaking(caller: Caller, worker: PlayedWorker, store: Store) -> Claim:
    """A run in the middle of a message; five events so far."""
    caller.start_in_background()
    claim = worker.claim(key_of("run"))
    state = {"type": "STATE_SNAPSHOT", "snapshot": {"step": 1}}
    emit(store, claim, state, starts(), says("hel"), says("lo "))
    return claim


@pytest.fixture(params=["posted again", "by snapshot", "connected"])
def rejoin(request: pytest.FixtureRequest, caller: Caller) -> Callable[[], TestResponse]:
    """Every way to come back without a cursor."""
    ways: dict[str, Callable[[], TestResponse]] = {
        "posted again": caller.start,
        "by snapshot": lambda: caller.get(SNAPSHOT),
        "connected": lambda: caller.post("/threads/thread/connect", buffered=False),
    }
    return ways[request.param]


# --- what is told ------------------------------------------------------------------------------------


def test_a_join_tells_how_the_run_stands_and_then_only_what_follows(
    rejoin: Callable[[], TestResponse], speaking: Claim, worker: PlayedWorker, store: Store
):
    response = rejoin()
    emit(store, speaking, says("you"), ends())
    worker.finish(speaking)
    frames = frames_of(response)
    opening = ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "TEXT_MESSAGE_START"]
    assert types(frames) == [*opening, "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert ids(frames) == [None, None, None, 5, 6, 7, 8]
    user, assistant = frames[1][1]["messages"]
    assert (user["id"], assistant["id"], assistant["content"]) == ("m1", "m", "hello ")
    assert frames[2][1]["snapshot"] == {"step": 1}
    assert frames[4][1]["delta"] == "you"


def test_a_join_of_an_ended_run_is_its_last_state_and_its_terminal_event(
    rejoin: Callable[[], TestResponse], speaking: Claim, worker: PlayedWorker, store: Store
):
    emit(store, speaking, ends())
    worker.finish(speaking)
    frames = frames_of(rejoin())
    assert types(frames) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_FINISHED"]
    assert ids(frames) == [None, None, None, 7]


def test_a_client_that_joins_ends_like_one_that_never_left(
    caller: Caller, speaking: Claim, worker: PlayedWorker, store: Store
):
    body = run_input()
    stayed, left = Client(body["messages"]), Client(body["messages"])
    left.run(event for _, event in frames_of(caller.get(EVENTS), 4)[:4])
    assert left.messages[-1]["content"] == "hel"
    response = caller.start(body | {"messages": left.messages})
    emit(store, speaking, says("you"), ends())
    worker.finish(speaking)
    left.run(event for _, event in frames_of(response))
    stayed.run(event for _, event in frames_of(caller.get(EVENTS)))
    assert (left.messages, left.state) == (stayed.messages, stayed.state)


def test_a_join_of_a_queued_run_begins_at_once_and_follows_it(
    rejoin: Callable[[], TestResponse], caller: Caller, worker: PlayedWorker
):
    caller.start_in_background()
    response = rejoin()
    assert b"RUN_STARTED" in next(response.response) + next(response.response)
    worker.run(key_of("run"))
    assert types(frames_of(response)) == ["RUN_FINISHED"]


def test_a_queued_run_is_told_with_the_messages_that_it_was_accepted_with(
    rejoin: Callable[[], TestResponse], caller: Caller
):
    caller.start_in_background()
    frames = frames_of(rejoin(), 2)
    assert types(frames) == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
    assert ids(frames) == [None, 1]
    assert [message["id"] for message in frames[1][1]["messages"]] == ["m1"]


@pytest.mark.parametrize("way", ["post", "snapshot"])
def test_a_run_that_waits_for_its_turn_is_joined_like_a_queued_one(
    caller: Caller, worker: PlayedWorker, way: str
):
    caller.start_in_background(run_input("front"))
    caller.start_in_background()
    response = caller.start() if way == "post" else caller.get(SNAPSHOT)
    worker.run(key_of("front"))
    worker.run(key_of("run"))
    frames = frames_of(response)
    assert types(frames) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert frames[0][1]["runId"] == "run"


def test_a_run_cancelled_in_the_queue_is_told_as_cancelled(
    rejoin: Callable[[], TestResponse], caller: Caller
):
    caller.start_in_background()
    assert caller.post("/threads/thread/runs/run/cancel").status_code == 200
    frames = frames_of(rejoin())
    assert types(frames) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert frames[-1][1]["outcome"] == {"type": "cancelled"}
    assert ids(frames) == [None, None, 2]


def test_a_failed_run_is_told_with_its_code_and_with_what_it_had_said(
    rejoin: Callable[[], TestResponse], speaking: Claim, worker: PlayedWorker
):
    worker.finish(speaking, Outcome.failed(FailureCode.TRANSPORT_TIMEOUT))
    frames = frames_of(rejoin())
    assert types(frames) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_ERROR"]
    assert frames[-1][1]["code"] == "transport_timeout"
    assert frames[1][1]["messages"][-1]["content"] == "hello "


def test_an_interrupted_run_is_told_with_its_questions(
    rejoin: Callable[[], TestResponse], speaking: Claim, worker: PlayedWorker, store: Store
):
    emit(store, speaking, ends())
    worker.finish(speaking, Outcome.interrupted([{"id": "i1", "reason": "ask"}]))
    frames = frames_of(rejoin())
    assert frames[-1][1]["outcome"] == {"type": "interrupt", "interrupts": [{"id": "i1", "reason": "ask"}]}
    assert frames[-1][0] == 7


def test_a_run_of_five_thousand_deltas_is_joined_at_once(
    rejoin: Callable[[], TestResponse], speaking: Claim, worker: PlayedWorker, store: Store
):
    for _ in range(10):
        worker.say(speaking, *["x"] * 500)
    begun = time.monotonic()
    frames = frames_of(rejoin(), 4)
    assert time.monotonic() - begun < 2
    assert ids(frames)[-1] == 5005
    assert frames[1][1]["messages"][-1]["content"] == "hello " + "x" * 5000


# --- breaks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [1, 2, 3])
def test_a_join_that_breaks_before_the_preludes_end_has_given_no_number_and_is_made_anew(
    caller: Caller, speaking: Claim, worker: PlayedWorker, read: int
):
    broken = frames_of(caller.start(), 4)[:read]
    assert ids(broken) == [None] * read
    again = caller.start()
    worker.finish(speaking)
    assert types(frames_of(again))[:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]


def test_the_preludes_number_resumes_to_exactly_the_rest(
    rejoin: Callable[[], TestResponse], caller: Caller, speaking: Claim, worker: PlayedWorker, store: Store
):
    last = ids(frames_of(rejoin(), 4))[-1]
    assert last == 5
    emit(store, speaking, says("you"), ends())
    worker.finish(speaking)
    rest = frames_of(caller.get(EVENTS, Last_Event_ID=str(last)))
    assert ids(rest) == [6, 7, 8]
    assert types(rest) == ["TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert frames_of(caller.get(f"{EVENTS}?after={last}")) == rest


def test_an_ended_runs_prelude_leaves_a_cursor_behind_which_nothing_is(
    rejoin: Callable[[], TestResponse], caller: Caller, speaking: Claim, worker: PlayedWorker
):
    worker.finish(speaking)
    last = ids(frames_of(rejoin()))[-1]
    assert caller.get(EVENTS, Last_Event_ID=str(last)).status_code == 204


def test_with_a_cursor_a_reader_by_snapshot_resumes_instead(
    caller: Caller, speaking: Claim, worker: PlayedWorker
):
    worker.finish(speaking)
    assert ids(frames_of(caller.get(SNAPSHOT, Last_Event_ID="4"))) == [5, 6]
    assert ids(frames_of(caller.get(f"{SNAPSHOT}&after=4"))) == [5, 6]


def test_two_that_join_at_once_get_the_same(
    rejoin: Callable[[], TestResponse], speaking: Claim, worker: PlayedWorker, store: Store
):
    responses = [rejoin(), rejoin()]
    emit(store, speaking, says("you"), ends())
    worker.finish(speaking)
    first, second = (frames_of(response) for response in responses)
    assert first == second
    assert ids(first) == [None, None, None, 5, 6, 7, 8]


# --- what it costs -----------------------------------------------------------------------------------


def test_a_join_holds_one_stream_and_gives_it_back(
    rejoin: Callable[[], TestResponse], app: Flask, speaking: Claim, eventually: Any
):
    hub = app.extensions["outlast"].get().hub
    response = rejoin()
    assert hub.stats()["open_streams"] == 1
    response.close()
    eventually(lambda: hub.stats()["open_streams"] == 0)


def test_a_join_of_an_ended_run_holds_no_stream(
    rejoin: Callable[[], TestResponse], app: Flask, speaking: Claim, worker: PlayedWorker
):
    worker.finish(speaking)
    response = rejoin()
    assert app.extensions["outlast"].get().hub.stats()["open_streams"] == 0
    response.close()


def test_joins_send_nothing_to_the_workers(
    rejoin: Callable[[], TestResponse], speaking: Claim, worker: PlayedWorker
):
    before = worker.messages()
    rejoin().close()
    worker.finish(speaking)
    rejoin().close()
    assert worker.messages() == before


def test_a_process_full_of_streams_sends_a_client_elsewhere(make_app: Callable[..., Flask], speaking: Claim):
    caller = Caller(make_app(max_streams=1).test_client())
    holding = caller.get(EVENTS)
    for refused in (caller.get(SNAPSHOT), caller.post("/threads/thread/connect"), caller.start()):
        problem_of(refused, 503, "TOO_MANY_STREAMS")
    holding.close()


def test_asking_for_the_headers_of_a_join_alone_opens_no_stream(app: Flask, caller: Caller, speaking: Claim):
    response = caller.client.head(SNAPSHOT)
    assert (response.status_code, response.content_type) == (200, "text/event-stream")
    assert app.extensions["outlast"].get().hub.stats()["open_streams"] == 0


# --- refusals ----------------------------------------------------------------------------------------


def test_another_mode_is_refused_by_name(caller: Caller, speaking: Claim):
    assert problem_of(caller.get(f"{EVENTS}?mode=replay"), 400, "INVALID_INPUT")["field"] == "mode"


def test_snapshots_are_streams_only(caller: Caller, speaking: Claim):
    problem_of(caller.get(SNAPSHOT, Accept="application/json"), 406, "NOT_ACCEPTABLE")


def test_a_join_of_an_expired_run_is_a_410(
    caller: Caller, speaking: Claim, worker: PlayedWorker, store: Store, eventually: Any
):
    worker.finish(speaking)
    brief = store.settings.model_copy(update={"retention_seconds": 0.001})
    forgetful = type(store.runs)(store.client, brief)
    eventually(lambda: forgetful.expire(key_of("run")))
    problem_of(caller.start(), 410, "RUN_EXPIRED")
    problem_of(caller.get(SNAPSHOT), 410, "RUN_EXPIRED")
    problem_of(caller.post("/threads/thread/connect"), 404, "UNKNOWN_RUN")


def test_the_same_ids_of_another_actor_are_another_run(
    make_app: Callable[..., Flask], worker: PlayedWorker, store: Store
):
    app = make_app(auth="keys")
    ada, bob = (
        Caller(app.test_client(), Authorization=f"Bearer {store.api_keys.create(name)[0]}")
        for name in ("ada", "bob")
    )
    ada.start_in_background(run_input(text="ada's secret"))
    problem_of(bob.get(SNAPSHOT), 404, "UNKNOWN_RUN")
    problem_of(bob.get(f"/runs/{key_of('run', actor='ada')}/events?mode=snapshot"), 404, "UNKNOWN_RUN")
    problem_of(bob.post("/threads/thread/connect"), 404, "UNKNOWN_RUN")
    assert bob.start_in_background(run_input(text="bob's own")).status_code == 202
    told = frames_of(bob.start(run_input(text="bob's own")), 2)
    assert [message["content"] for message in told[1][1]["messages"]] == ["bob's own"]
    assert worker.messages() == 2


@pytest.mark.parametrize("field", ["runId", "messages", "resume"])
def test_a_changed_agent_conversation_or_answer_joins_nothing(
    app: Flask, caller: Caller, speaking: Claim, worker: PlayedWorker, field: str
):
    worker.offer(echo="enqueue", other="enqueue")
    answers = {"resume": [{"interruptId": "i", "status": "resolved"}]}
    agent = "other" if field == "runId" else "echo"
    body = run_input(
        text="other" if field == "messages" else "hello", **(answers if field == "resume" else {})
    )
    assert problem_of(caller.start(body, agent=agent), 409, "RUN_CONFLICT")["field"] == field
    assert app.extensions["outlast"].get().hub.stats()["open_streams"] == 0
