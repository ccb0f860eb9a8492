"""Answers to interrupts over HTTP: what is refused before the stream, by which code, and what it names."""

from __future__ import annotations

import json
from threading import Barrier, Thread
from typing import Any

import pytest
from werkzeug.test import TestResponse

from shared.runs.outcome import FailureCode, Outcome
from shared.store.store import Store
from tests.web.played_worker import Body, Caller, PlayedWorker, events_of, key_of, problem_of, run_input

YES_OR_NO = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}},
    "required": ["approved"],
    "additionalProperties": False,
}


def question(id_: str = "q", **members: Any) -> Body:
    return {"id": id_, "reason": "approval", **members}


def answer(id_: str = "q", payload: Any = None, status: str = "resolved") -> Body:
    return {"interruptId": id_, "status": status, **({"payload": payload} if payload is not None else {})}


def next_run(*answers: Body, run_id: str = "next", **members: Any) -> Body:
    return run_input(run_id, resume=list(answers), **members)


def joined(response: TestResponse) -> list[Body]:
    """The events of a join, whose prelude has no ids."""
    frames = b"".join(response.response).split(b"\n\n")
    return [json.loads(frame.partition(b"data: ")[2]) for frame in frames if b"data: " in frame]


@pytest.fixture
def pause(caller: Caller, worker: PlayedWorker):
    """``pause(question, ...)``: a run of the thread asks these and pauses."""

    def ask(*asked: Body, run_id: str = "asker") -> None:
        assert caller.start_in_background(run_input(run_id)).status_code == 202
        worker.run(key_of(run_id), outcome=Outcome.interrupted(list(asked)))

    return ask


def test_a_run_that_answers_is_accepted(caller: Caller, worker: PlayedWorker, pause):
    pause(question())
    response = caller.start(next_run(answer(payload="yes")))
    worker.run(key_of("next"))
    assert [event["type"] for _, event in events_of(response)] == ["RUN_STARTED", "RUN_FINISHED"]


def test_a_run_that_does_not_is_told_what_is_asked_and_by_which_run(caller: Caller, pause):
    pause(question("q1", message="Really?"), question("q2"))
    problem = problem_of(caller.start(next_run(answer("q1", "yes"))), 409, "INTERRUPT_OPEN")
    assert problem["interrupts"] == [question("q2")]
    assert problem["field"] == "resume"
    assert (problem["run"]["run_id"], problem["run"]["status"]) == ("asker", "interrupted")
    assert "'q2'" in problem["detail"]
    assert problem_of(caller.start(run_input("next")), 409, "INTERRUPT_OPEN")["interrupts"] == [
        question("q1", message="Really?"),
        question("q2"),
    ]


def test_a_refused_run_leaves_its_id_free(caller: Caller, pause):
    pause(question())
    problem_of(caller.start(run_input("next")), 409, "INTERRUPT_OPEN")
    problem_of(caller.get("/threads/thread/runs/next"), 404, "UNKNOWN_RUN")
    assert caller.start_in_background(next_run(answer())).status_code == 202


def test_the_answers_of_another_actor_do_not_count(make_app, store: Store, worker: PlayedWorker):
    app = make_app(auth="api_keys")
    tokens = [store.api_keys.create(name)[0] for name in ("ann", "bob")]
    ann, bob = (Caller(app.test_client(), Authorization=f"Bearer {token}") for token in tokens)
    assert ann.start_in_background(run_input("asker")).status_code == 202
    worker.run(key_of("asker", actor="ann"), outcome=Outcome.interrupted([question()]))
    assert bob.start_in_background(next_run(answer())).status_code == 202
    assert b'"resume": []' in worker.claim(key_of("next", actor="bob")).input
    problem_of(ann.start(run_input("next")), 409, "INTERRUPT_OPEN")


def test_an_answer_to_nothing_is_ignored_and_logged(caller: Caller, worker: PlayedWorker, pause, monkeypatch):
    warned: list[tuple[str, Any]] = []
    monkeypatch.setattr(
        "web.api.accept.log.warning", lambda event, **more: warned.append((event, more.get("interrupts")))
    )
    pause(question())
    response = caller.start_in_background(next_run(answer(), answer("invented", {"admin": True})))
    assert response.status_code == 202
    assert warned == [("resume.unknown", ["invented"])]
    assert b"invented" not in worker.claim(key_of("next")).input


def test_an_interrupt_that_another_run_answers_is_refused(caller: Caller, worker: PlayedWorker, pause):
    pause(question())
    caller.start_in_background(next_run(answer(payload="yes"), run_id="first"))
    for _ in range(2):
        problem = problem_of(caller.start(next_run(answer(payload="no"))), 409, "INTERRUPT_ANSWERED")
        assert (problem["interrupts"], problem["run"]["run_id"]) == ([{"id": "q"}], "first")
        record = caller.get("/threads/thread/runs/first").get_json()
        if record["status"] == "queued":
            worker.run(key_of("first"))


def test_the_same_answer_again_joins_its_run_and_redeems_nothing(
    caller: Caller, worker: PlayedWorker, store: Store, pause
):
    pause(question(responseSchema=YES_OR_NO))
    body = next_run(answer(payload={"approved": True}))
    assert caller.start_in_background(body).status_code == 202
    assert caller.start_in_background(body).status_code == 202
    worker.run(key_of("next"))
    shown = joined(caller.start(body))
    assert (shown[0]["type"], shown[-1]["type"]) == ("RUN_STARTED", "RUN_FINISHED")
    assert store.runs.get(key_of("next")).attempt == 1


@pytest.mark.parametrize("when", ["reserved", "redeemed"])
@pytest.mark.parametrize("payload", [{"approved": False}, {"approved": "no"}])
def test_the_same_run_id_with_another_answer_is_another_run(
    caller: Caller, worker: PlayedWorker, pause, when: str, payload: Body
):
    pause(question(responseSchema=YES_OR_NO))
    caller.start_in_background(next_run(answer(payload={"approved": True})))
    if when == "redeemed":
        worker.run(key_of("next"))
    problem = problem_of(caller.start(next_run(answer(payload=payload))), 409, "RUN_CONFLICT")
    assert problem["field"] == "resume"


def test_a_declined_run_is_a_normal_run(caller: Caller, worker: PlayedWorker, pause):
    pause(question(responseSchema=YES_OR_NO))
    assert caller.start_in_background(next_run(answer(status="cancelled"))).status_code == 202
    worker.run(key_of("next"))
    assert caller.get("/threads/thread/runs/next").get_json()["status"] == "succeeded"


def test_after_an_answer_the_thread_goes_on_without(caller: Caller, worker: PlayedWorker, pause):
    pause(question())
    caller.start_in_background(next_run(answer()))
    worker.run(key_of("next"))
    assert caller.start_in_background(run_input("another")).status_code == 202
    assert caller.get("/threads/thread/runs/asker").get_json()["answered_by"] == "next"


def test_a_cancelled_queued_run_gives_the_answer_back(caller: Caller, pause):
    pause(question())
    caller.start_in_background(next_run(answer()))
    caller.post("/threads/thread/runs/next/cancel")
    problem_of(caller.start(run_input("another")), 409, "INTERRUPT_OPEN")
    assert caller.start_in_background(next_run(answer(), run_id="another")).status_code == 202


def test_an_expired_interrupt_is_only_abandoned(caller: Caller, worker: PlayedWorker, pause):
    pause(question(expiresAt="2001-01-01T00:00:00Z"))
    problem = problem_of(caller.start(next_run(answer())), 409, "INTERRUPT_EXPIRED")
    assert problem["interrupts"] == [question(expiresAt="2001-01-01T00:00:00Z")]
    assert caller.start_in_background(next_run(answer(status="cancelled"))).status_code == 202
    worker.run(key_of("next"))
    pause(question("q2", expiresAt="2001-01-01T00:00:00Z"), run_id="asker2")
    assert caller.start_in_background(run_input("another")).status_code == 202


def test_one_interrupt_is_answered_once_per_run(caller: Caller, pause):
    pause(question())
    problem = problem_of(caller.start(next_run(answer(), answer(status="cancelled"))), 400, "INVALID_INPUT")
    assert problem["field"] == "resume.1.interruptId"


# --- response schemas -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        ({"approved": "yes"}, "resume.1.payload.approved"),
        ({}, "resume.1.payload"),
        ({"approved": True, "more": 1}, "resume.1.payload"),
        ("yes", "resume.1.payload"),
        (None, "resume.1.payload"),
    ],
)
def test_an_answer_that_does_not_fit_the_schema_names_the_entry_and_the_place(
    caller: Caller, pause, payload: Any, place: str
):
    pause(question("free"), question("q", responseSchema=YES_OR_NO))
    body = next_run(answer("free", "anything"), answer("q", payload))
    problem = problem_of(caller.start(body), 400, "INVALID_INPUT")
    assert problem["field"] == "resume.1.payload"
    assert problem["detail"].startswith(f"{place} does not fit")


def test_members_that_an_answer_lacks_are_named(caller: Caller, pause):
    pause(question("q", responseSchema=YES_OR_NO))
    problem = problem_of(caller.start(next_run(answer("q", {}))), 400, "INVALID_INPUT")
    assert problem["detail"] == (
        "resume.0.payload does not fit the interrupt's response schema: approved is missing."
    )


def test_after_a_refused_answer_the_interrupt_is_open_still(caller: Caller, pause):
    pause(question(responseSchema=YES_OR_NO))
    problem_of(caller.start(next_run(answer(payload={}))), 400, "INVALID_INPUT")
    assert caller.start_in_background(next_run(answer(payload={"approved": False}))).status_code == 202


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no such type"},
        {"$ref": "https://schemas.invalid/answer.json"},
        {"$ref": "#"},
        {"type": "string", "pattern": "("},
        {"$ref": "#/$defs/nowhere"},
    ],
)
def test_a_schema_that_is_none_lets_every_answer_pass(caller: Caller, pause, schema: Body):
    pause(question(responseSchema=schema))
    assert caller.start_in_background(next_run(answer(payload="anything"))).status_code == 202


# --- turns ------------------------------------------------------------------------------------------------


def test_a_waiting_run_is_judged_at_its_turn(caller: Caller, worker: PlayedWorker, store: Store):
    caller.start_in_background(run_input("asker"))
    claim = worker.claim(key_of("asker"))
    stream = caller.start(run_input("next"))
    worker.finish(claim, Outcome.interrupted([question()]))
    assert store.runs.claim(key_of("next"), "e", worker="w", host="h", pid=1) is None
    shown = [event for _, event in events_of(stream)]
    assert (shown[-1]["type"], shown[-1]["code"]) == ("RUN_ERROR", str(FailureCode.INTERRUPT_OPEN))
    assert caller.start_in_background(next_run(answer(), run_id="another")).status_code == 202


def test_the_policy_interrupt_takes_the_place_of_a_resumed_run(caller: Caller, worker: PlayedWorker, pause):
    pause(question())
    caller.start_in_background(next_run(answer(), run_id="resumed"))
    claim = worker.claim(key_of("resumed"))
    assert caller.start_in_background(run_input("newer"), query="?on_busy=interrupt").status_code == 202
    worker.finish(claim, Outcome.cancelled())
    worker.run(key_of("newer"))
    assert caller.get("/threads/thread/runs/newer").get_json()["status"] == "succeeded"


def test_the_thread_shows_its_open_interrupts_to_a_client_that_connects(caller: Caller, pause):
    pause(question())
    last = joined(caller.post("/threads/thread/connect", json={}))[-1]
    assert last["outcome"] == {"type": "interrupt", "interrupts": [question()]}


def test_two_answers_at_once_over_http_and_exactly_one_is_accepted(
    app, worker: PlayedWorker, store: Store, caller: Caller
):
    for trial in range(150):
        thread = f"t{trial}"
        caller.start_in_background(run_input("asker", thread))
        worker.run(key_of("asker", thread), outcome=Outcome.interrupted([question()]))
        gate, answers = Barrier(2), []

        def post(run_id: str, thread: str = thread, gate: Barrier = gate, answers: list = answers) -> None:
            client = Caller(app.test_client())
            gate.wait()
            body = run_input(run_id, thread, resume=[answer(payload=run_id)])
            answers.append((client.start_in_background(body).status_code, run_id))

        racers = [Thread(target=post, args=(f"r{number}",)) for number in range(2)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert sorted(status for status, _ in answers) == [202, 409]
        worker.run(key_of(next(run_id for status, run_id in answers if status == 202), thread))
