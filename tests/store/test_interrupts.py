"""What a run asks stays open in its thread until exactly one later run answers it."""

from __future__ import annotations

import json
from threading import Barrier, Thread
from typing import Any

import pytest

from shared.protocol import events, sse
from shared.runs.identity import RunIdentity, short_digest
from shared.runs.interrupts import Answer, expiry_ms, questions_of
from shared.runs.outcome import FailureCode, Outcome
from shared.store import keys
from shared.store.answers import Accepted
from shared.store.ending import end_fenced, end_from_outside
from shared.store.interrupts import end_uncovered, open_questions
from tests.store.conftest import Bench

PAST, FUTURE = "2001-02-03T04:05:06Z", "2999-01-01T00:00:00Z"


class Conversation:
    """One thread of one actor, from run to run."""

    def __init__(self, bench: Bench, thread: str = "t1", actor: str = "ann") -> None:
        self.bench, self.store = bench, bench.store
        self.where = {"thread": thread, "actor": actor}
        self.identity = RunIdentity(actor, thread, "any")

    def asks(self, *ids: str, run: str = "asker", expires_at: str | None = None) -> str:
        """A run that pauses with these questions; its key."""
        claim = self.bench.running(run, **self.where)
        more = {"expiresAt": expires_at} if expires_at else {}
        asked = [{"id": id_, "reason": "approval", **more} for id_ in ids]
        assert self.bench.finish(claim, 2, Outcome.interrupted(asked)).recorded
        return claim.key

    def submits(
        self, run: str, *answered: str, status: str = "resolved", policy: str = "enqueue"
    ) -> Accepted:
        """A run that answers these questions, as it is judged by a web process."""
        identity = RunIdentity(self.identity.actor, self.identity.thread_id, run)
        asked = self.open()
        entries = [{"interruptId": id_, "status": status, "payload": run} for id_ in answered]
        document = {"threadId": identity.thread_id, "runId": run, "messages": [], "resume": entries}
        return self.store.runs.accept(
            identity,
            agent="echo",
            run_input=json.dumps(document, separators=(",", ":")).encode(),
            started_frame=sse.frame(1, events.dump(events.run_started(identity.thread_id, run))),
            policy=policy,
            answers=[
                Answer(id_, status, asked[id_].run if id_ in asked else None)  # type: ignore[arg-type]
                for id_ in answered
            ],
        )

    def open(self) -> dict[str, Any]:
        return open_questions(self.store.client, self.identity)

    def key(self, run: str) -> str:
        return self.bench.key(run, **self.where)

    def claim(self, run: str):
        return self.bench.claim(self.key(run))

    def runs_to_its_end(self, run: str):
        claim = self.claim(run)
        assert claim is not None
        assert self.bench.finish(claim, 2).recorded
        return claim

    def cancels_queued(self, run: str) -> None:
        answer = self.store.runs.request_cancel(self.key(run), by="ann")
        identity = RunIdentity(self.identity.actor, self.identity.thread_id, run)
        assert end_fenced(self.store.runs, self.store.log, answer.fence, identity).recorded


@pytest.fixture
def thread(bench: Bench) -> Conversation:
    return Conversation(bench)


def resume_of(claim) -> list[str]:
    return [entry["interruptId"] for entry in json.loads(claim.input)["resume"]]


# --- coverage ---------------------------------------------------------------------------------------------


def test_the_interrupts_of_a_paused_run_are_open_in_its_thread(thread: Conversation):
    asker = thread.asks("a", "b", expires_at=FUTURE)
    found = thread.open()
    assert sorted(found) == ["a", "b"]
    assert (found["a"].run, found["a"].expires_at, found["a"].reserved_by) == (asker, expiry_ms(FUTURE), None)


def test_a_run_that_answers_all_of_them_is_accepted_and_gets_the_answers(thread: Conversation):
    thread.asks("a", "b")
    assert thread.submits("next", "a", "b").state == "ready"
    assert resume_of(thread.claim("next")) == ["a", "b"]
    assert thread.open() == {}


def test_a_run_that_leaves_one_out_is_refused_and_leaves_no_trace(thread: Conversation):
    asker = thread.asks("a", "b")
    refused = thread.submits("next", "a")
    assert (refused.state, refused.front, refused.interrupts) == ("uncovered", (asker,), ("b",))
    assert thread.store.runs.get(thread.key("next")) is None
    assert {question.reserved_by for question in thread.open().values()} == {None}
    assert thread.submits("next", "a", "b").state == "ready"


def test_a_run_without_answers_is_refused_too(thread: Conversation):
    thread.asks("a")
    assert thread.submits("next").state == "uncovered"


def test_answers_that_say_cancelled_count(thread: Conversation):
    thread.asks("a")
    assert thread.submits("next", "a", status="cancelled").state == "ready"
    assert resume_of(thread.claim("next")) == ["a"]


def test_other_threads_and_other_actors_are_not_concerned(bench: Bench, thread: Conversation):
    thread.asks("a")
    for other in (Conversation(bench, "t2"), Conversation(bench, "t1", "bob")):
        accepted = other.submits("next", "a")
        assert (accepted.state, accepted.interrupts) == ("ready", ("a",))
        assert resume_of(other.claim("next")) == []
    assert sorted(thread.open()) == ["a"]


def test_an_answer_to_nothing_is_told_and_kept_from_the_agent(thread: Conversation):
    thread.asks("a")
    accepted = thread.submits("next", "a", "invented")
    assert (accepted.state, accepted.interrupts) == ("ready", ("invented",))
    assert resume_of(thread.claim("next")) == ["a"]


def test_an_accept_whose_answer_was_lost_may_be_asked_again(thread: Conversation, monkeypatch):
    thread.asks("a")
    monkeypatch.setattr("shared.store.runs.new_execution", lambda: "the same")
    assert thread.submits("next", "a").state == "ready"
    assert thread.submits("next", "a").state == "ready"
    assert thread.open()["a"].reserved_by == thread.key("next")


def test_a_pause_that_was_only_the_agents_wish_opens_nothing():
    wire = {"type": "interrupt", "interrupts": [{"id": "a", "reason": "r"}]}
    failed = Outcome.failed(FailureCode.PROTOCOL_VIOLATION)
    assert questions_of(Outcome(failed.status, code=failed.code, wire=wire)) == []


def test_a_claim_names_the_calls_that_its_answers_are_about_and_says_them_again(thread: Conversation):
    claim = thread.bench.running("asker", **thread.where)
    asked = [{"id": "a", "reason": "r", "toolCallId": "call-1"}, {"id": "b", "reason": "r"}]
    assert thread.bench.finish(claim, 2, Outcome.interrupted(asked)).recorded
    assert claim.answered_calls == ()
    thread.submits("next", "a", "b")
    claimed = thread.claim("next")
    assert claimed.answered_calls == ("call-1",)
    again = thread.store.runs.claim(claimed.key, claimed.execution, worker="w", host="h", pid=1)
    assert again.answered_calls == ("call-1",)


# --- redeemed once ----------------------------------------------------------------------------------------


def test_a_reserved_answer_is_not_taken_by_another_run(thread: Conversation):
    thread.asks("a")
    thread.submits("first", "a")
    for status in ("resolved", "cancelled"):
        refused = thread.submits("second", "a", status=status)
        assert (refused.state, refused.front, refused.interrupts) == ("taken", (thread.key("first"),), ("a",))


def test_a_redeemed_answer_is_not_given_again(thread: Conversation):
    thread.asks("a")
    thread.submits("first", "a")
    thread.runs_to_its_end("first")
    refused = thread.submits("second", "a")
    assert (refused.state, refused.front, refused.interrupts) == ("taken", (thread.key("first"),), ("a",))


def test_a_client_may_cancel_what_was_redeemed_and_gets_past_it(thread: Conversation):
    thread.asks("a")
    thread.submits("first", "a")
    claim = thread.claim("first")
    thread.bench.finish(claim, 2, Outcome.failed(FailureCode.AGENT_ERROR))
    accepted = thread.submits("second", "a", status="cancelled")
    assert (accepted.state, accepted.interrupts) == ("ready", ("a",))
    assert resume_of(thread.claim("second")) == []


def test_a_run_that_failed_after_its_claim_has_redeemed_its_answers(thread: Conversation):
    thread.asks("a")
    thread.submits("first", "a")
    thread.bench.finish(thread.claim("first"), 2, Outcome.failed(FailureCode.WORKER_LOST))
    assert thread.open() == {}
    assert thread.submits("second").state == "ready"


def test_the_run_that_asked_says_who_answered(thread: Conversation):
    asker = thread.asks("a")
    thread.submits("next", "a")
    assert "answered_by" not in thread.store.runs.get(asker).public()
    thread.claim("next")
    assert thread.store.runs.get(asker).public()["answered_by"] == "next"


def test_asking_for_the_same_claim_again_redeems_nothing_twice(thread: Conversation):
    thread.asks("a")
    thread.submits("next", "a")
    first = thread.bench.claim(thread.key("next"), "e1")
    again = thread.bench.claim(thread.key("next"), "e1")
    assert resume_of(first) == resume_of(again) == ["a"]


def test_two_answers_at_once_and_exactly_one_is_accepted(bench: Bench):
    for trial in range(300):
        thread = Conversation(bench, f"t{trial}")
        thread.asks("a", "b")
        gate, states = Barrier(2), []

        def answer(run: str, thread=thread, gate=gate, states=states) -> None:
            gate.wait()
            states.append(thread.submits(run, "a", "b").state)

        racers = [Thread(target=answer, args=(f"run-{number}",)) for number in range(2)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert sorted(states) == ["ready", "taken"]


def test_while_runs_answer_cancel_and_claim_at_once_one_of_them_redeems(bench: Bench):
    for trial in range(100):
        thread = Conversation(bench, f"t{trial}")
        thread.asks("a")
        gate, redeemed = Barrier(3), []

        def answer(run: str, thread=thread, gate=gate, redeemed=redeemed) -> None:
            gate.wait()
            if thread.submits(run, "a").state in {"ready", "waiting"}:
                claim = thread.claim(run)
                if claim is not None and resume_of(claim) == ["a"]:
                    redeemed.append(run)
                    bench.finish(claim, 2)

        def withdraw(thread=thread, gate=gate) -> None:
            gate.wait()
            end_from_outside(
                thread.store.runs, thread.store.log, thread.key("run-0"), ending="cancelled", guard="any"
            )

        racers = [Thread(target=answer, args=(f"run-{number}",)) for number in range(2)]
        racers.append(Thread(target=withdraw))
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert len(redeemed) <= 1
        if not redeemed:
            last = thread.submits("last", "a")
            assert last.state in {"ready", "waiting", "taken"}
            assert last.state != "taken" or last.front != ("",)


# --- released ---------------------------------------------------------------------------------------------


def test_a_run_cancelled_in_the_queue_gives_its_answers_back(thread: Conversation):
    thread.asks("a")
    thread.submits("first", "a")
    thread.cancels_queued("first")
    assert thread.open()["a"].reserved_by is None
    assert thread.submits("second").state == "uncovered"
    assert thread.submits("second", "a").state == "ready"


@pytest.mark.parametrize(
    ("code", "guard", "value"), [("queue_timeout", "queue", "0"), ("worker_lost", "any", "")]
)
def test_a_run_ended_in_the_queue_by_the_sweep_does_so_too(
    thread: Conversation, code: str, guard: str, value: str
):
    thread.asks("a")
    thread.submits("first", "a")
    runs, log = thread.store.runs, thread.store.log
    assert end_from_outside(runs, log, thread.key("first"), ending=code, guard=guard, value=value).recorded
    assert thread.submits("second", "a").state == "ready"


def test_a_run_forced_to_stop_in_the_queue_does_so_too(thread: Conversation):
    thread.asks("a")
    thread.submits("first", "a")
    answer = thread.store.runs.terminate(thread.key("first"), by="olga")
    identity = RunIdentity("ann", "t1", "first")
    end_fenced(thread.store.runs, thread.store.log, answer.fence, identity)
    assert thread.submits("second", "a").state == "ready"


def test_a_run_that_is_handed_back_keeps_its_answers_reserved(thread: Conversation):
    asker = thread.asks("a")
    thread.submits("first", "a")
    claim = thread.claim("first")
    assert thread.store.runs.release(claim.key, claim.execution, most=3) == "released"
    assert thread.open()["a"].reserved_by == claim.key
    assert "answered_by" not in thread.store.runs.get(asker).public()
    assert thread.submits("second", "a").state == "taken"
    assert resume_of(thread.claim("first")) == ["a"]


def test_a_run_that_is_cancelled_after_it_was_handed_back_gives_them_back(thread: Conversation):
    thread.asks("a")
    thread.submits("first", "a")
    claim = thread.claim("first")
    thread.store.runs.release(claim.key, claim.execution, most=3)
    thread.cancels_queued("first")
    assert thread.submits("second", "a").state == "ready"


def test_a_run_whose_agent_no_worker_has_gives_them_back(thread: Conversation):
    thread.asks("a")
    thread.submits("first", "a")
    claim = thread.claim("first")
    thread.bench.finish(claim, 2, Outcome.failed(FailureCode.UNKNOWN_AGENT))
    assert thread.submits("second", "a").state == "ready"


def test_an_ender_that_dies_leaves_the_giving_back_to_the_sweep(thread: Conversation):
    thread.asks("a")
    thread.submits("first", "a")
    thread.store.runs.request_cancel(thread.key("first"), by="ann")
    assert thread.open()["a"].reserved_by == thread.key("first")
    thread.store.client.zadd(keys.leases(thread.key("first")[:2]), {thread.key("first"): 1})
    end_from_outside(
        thread.store.runs, thread.store.log, thread.key("first"), ending="worker_lost", guard="late"
    )
    assert thread.open()["a"].reserved_by is None


def test_a_reservation_of_a_run_that_redis_forgot_binds_nobody(thread: Conversation):
    thread.asks("a")
    thread.submits("first", "a")
    thread.store.client.delete(
        keys.record(thread.key("first")), f"{keys.prefix(thread.identity.bucket)}turn:{digest(thread)}"
    )
    assert thread.submits("second", "a").state == "ready"


def answered_key(thread: Conversation) -> str:
    return f"{keys.prefix(thread.identity.bucket)}answered:{digest(thread)}"


def digest(thread: Conversation) -> str:
    return short_digest(thread.identity.actor, thread.identity.thread_id)


# --- waiting runs -----------------------------------------------------------------------------------------


def uncovered_at_its_turn(thread: Conversation, **waiting: Any):
    """An active run pauses while another one waits; the waiting one is claimed."""
    active = thread.bench.running("active", **thread.where)
    assert thread.submits("waiting", **waiting).state == "waiting"
    outcome = Outcome.interrupted([{"id": "a", "reason": "r"}])
    assert thread.bench.finish(active, 2, outcome).successor == thread.key("waiting")
    assert thread.claim("waiting") is None


def test_a_waiting_run_that_does_not_answer_at_its_turn_ends_failed(thread: Conversation):
    uncovered_at_its_turn(thread)
    assert end_uncovered(thread.store.runs, thread.store.log, thread.key("waiting")) is None
    record = thread.store.runs.get(thread.key("waiting"))
    assert (record.status, record.texts["code"]) == ("failed", "INTERRUPT_OPEN")
    assert thread.bench.types(record.key) == ["RUN_STARTED", "RUN_ERROR"]
    assert sorted(thread.open()) == ["a"]
    assert thread.submits("answer", "a").state == "ready"


def test_its_ending_tells_the_threads_next_run(thread: Conversation):
    active = thread.bench.running("active", **thread.where)
    thread.submits("waiting")
    thread.submits("after it")
    thread.bench.finish(active, 2, Outcome.interrupted([{"id": "a", "reason": "r"}]))
    assert thread.claim("waiting") is None
    successor = end_uncovered(thread.store.runs, thread.store.log, thread.key("waiting"))
    assert successor == thread.key("after it")


def test_without_the_worker_the_sweep_ends_it(thread: Conversation):
    uncovered_at_its_turn(thread)
    key = thread.key("waiting")
    thread.store.client.zadd(keys.leases(key[:2]), {key: 1})
    end_from_outside(thread.store.runs, thread.store.log, key, ending="worker_lost", guard="late")
    assert thread.store.runs.get(key).texts["code"] == "INTERRUPT_OPEN"


def test_other_refused_claims_end_nothing(thread: Conversation):
    thread.bench.running("active", **thread.where)
    thread.submits("waiting")
    for key in (thread.key("active"), thread.key("waiting"), thread.key("never"), "no key"):
        assert end_uncovered(thread.store.runs, thread.store.log, key) is None
    assert thread.store.runs.get(thread.key("active")).status == "running"
    assert thread.store.runs.get(thread.key("waiting")).status == "queued"


def test_an_answer_given_before_the_question_is_none(thread: Conversation):
    active = thread.bench.running("active", **thread.where)
    assert thread.submits("waiting", "a").interrupts == ("a",)
    thread.bench.finish(active, 2, Outcome.interrupted([{"id": "a", "reason": "r"}]))
    assert thread.claim("waiting") is None
    end_uncovered(thread.store.runs, thread.store.log, thread.key("waiting"))
    assert thread.store.runs.get(thread.key("waiting")).texts["code"] == "INTERRUPT_OPEN"


def test_a_waiting_run_without_answers_goes_when_the_one_before_it_has_answered(thread: Conversation):
    thread.asks("a")
    thread.submits("first", "a")
    assert thread.submits("second").state == "waiting"
    thread.runs_to_its_end("first")
    assert thread.claim("second") is not None


def test_a_waiting_run_fails_when_the_answer_before_it_was_withdrawn(thread: Conversation):
    thread.asks("a")
    thread.submits("first", "a")
    thread.submits("second")
    thread.cancels_queued("first")
    assert thread.claim("second") is None
    end_uncovered(thread.store.runs, thread.store.log, thread.key("second"))
    assert thread.store.runs.get(thread.key("second")).texts["code"] == "INTERRUPT_OPEN"


def test_two_workers_refused_at_once_record_one_ending(bench: Bench):
    for trial in range(100):
        thread = Conversation(bench, f"t{trial}")
        uncovered_at_its_turn(thread)
        gate = Barrier(2)

        def end(thread=thread, gate=gate) -> None:
            gate.wait()
            end_uncovered(thread.store.runs, thread.store.log, thread.key("waiting"))

        racers = [Thread(target=end) for _ in range(2)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert bench.types(thread.key("waiting")) == ["RUN_STARTED", "RUN_ERROR"]


def test_the_policy_reject_says_that_the_thread_is_busy_first(thread: Conversation):
    thread.asks("a")
    thread.submits("first", "a")
    assert thread.submits("second", policy="reject").state == "busy"


def test_the_policy_interrupt_needs_no_answers_for_a_run_that_had_them(thread: Conversation):
    thread.asks("a")
    thread.submits("first", "a")
    claim = thread.claim("first")
    accepted = thread.submits("second", policy="interrupt")
    assert (accepted.state, accepted.front) == ("waiting", (claim.key,))
    thread.bench.finish(claim, 2, Outcome.cancelled())
    assert thread.claim("second") is not None


# --- expiry -----------------------------------------------------------------------------------------------


def test_an_expired_question_may_be_left_out(thread: Conversation):
    thread.asks("a", expires_at=PAST)
    assert thread.submits("next").state == "ready"
    assert thread.claim("next") is not None
    assert thread.open() == {}


def test_an_expired_question_may_be_cancelled(thread: Conversation):
    thread.asks("a", expires_at=PAST)
    assert thread.submits("next", "a", status="cancelled").state == "ready"
    assert resume_of(thread.claim("next")) == ["a"]


def test_an_expired_question_is_not_answered(thread: Conversation):
    asker = thread.asks("a", expires_at=PAST)
    refused = thread.submits("next", "a")
    assert (refused.state, refused.front, refused.interrupts) == ("foreclosed", (asker,), ("a",))


def test_an_answer_in_time_counts_when_its_run_starts_late(thread: Conversation):
    thread.asks("a", expires_at=FUTURE)
    thread.submits("next", "a")
    name = keys.open_interrupts(thread.identity.bucket, digest(thread))
    stored = json.loads(thread.store.client.hget(name, "a"))
    thread.store.client.hset(name, "a", json.dumps(stored | {"expires_at": "1"}))
    assert resume_of(thread.claim("next")) == ["a"]


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:01.500+01:00", 1500),
        ("1970-01-01T00:00:02", 2000),
        ("in an hour", None),
        ("", None),
        (None, None),
    ],
)
def test_an_expiry_is_a_moment_or_none(text: str | None, ms: int | None):
    assert expiry_ms(text) == ms


# --- retention --------------------------------------------------------------------------------------------


def expire(thread: Conversation, run: str) -> None:
    thread.store.client.hset(keys.record(thread.key(run)), "finished_at", 1)
    assert thread.store.runs.expire(thread.key(run))


def test_open_questions_go_with_the_run_that_asked(thread: Conversation):
    thread.asks("a", "b")
    expire(thread, "asker")
    assert thread.open() == {}
    assert thread.submits("next").state == "ready"


def test_answered_ones_do_so_too(thread: Conversation):
    thread.asks("a")
    thread.submits("next", "a")
    thread.claim("next")
    name = answered_key(thread)
    assert thread.store.client.exists(name)
    expire(thread, "asker")
    assert not thread.store.client.exists(name)


def test_no_question_is_kept_for_ever_when_no_sweep_is_there(thread: Conversation):
    thread.asks("a")
    record = keys.record(thread.key("asker"))
    open_ = keys.open_interrupts(thread.identity.bucket, digest(thread))
    assert 0 < thread.store.client.pttl(open_) <= thread.store.client.pttl(record) + 1000
    thread.submits("next", "a")
    thread.claim("next")
    answered = answered_key(thread)
    assert 0 < thread.store.client.pttl(answered) <= thread.store.client.pttl(record) + 1000


def test_an_id_that_is_asked_again_is_open_again(thread: Conversation):
    thread.asks("a")
    thread.submits("next", "a")
    second = thread.claim("next")
    thread.bench.finish(second, 2, Outcome.interrupted([{"id": "a", "reason": "r"}]))
    assert thread.open()["a"].run == second.key
    expire(thread, "asker")
    assert sorted(thread.open()) == ["a"]
    assert thread.submits("third", "a").state == "ready"


def test_an_answer_that_was_checked_against_an_older_question_is_checked_anew(thread: Conversation):
    thread.asks("a")
    identity = RunIdentity("ann", "t1", "next")
    accepted = thread.store.runs.accept(
        identity,
        agent="echo",
        run_input=b"{}",
        started_frame=sse.frame(1, b"{}"),
        answers=[Answer("a", "resolved", None)],
    )
    assert accepted.state == "changed"
    assert thread.store.runs.get(identity.key) is None
