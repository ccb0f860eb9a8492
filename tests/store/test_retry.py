"""A run whose worker was lost goes back to the queue, if its agent declared that safe."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from threading import Barrier, Thread
from typing import Any

import pytest

from shared.protocol import events, sse
from shared.protocol.verifier import Verifier
from shared.runs.identity import RunIdentity
from shared.runs.interrupts import Answer
from shared.runs.outcome import FailureCode, Outcome
from shared.store import keys
from shared.store.answers import Claim
from shared.store.ending import end_fenced, end_from_outside
from shared.store.interrupts import open_questions
from shared.store.log import Batch, EventLog
from shared.store.retrying import retry_lost
from shared.store.runs import new_execution
from shared.store.sweep import Sweep
from tests.store.conftest import Bench

RETRIES = {"echo": 1}
RESET = ["TEXT_MESSAGE_END", "CUSTOM", "MESSAGES_SNAPSHOT"]


class Trial:
    """One run of an agent that may be retried."""

    def __init__(
        self, bench: Bench, run_id: str = "r1", *, answers: Sequence[Answer] = (), **members: Any
    ) -> None:
        self.bench, self.runs, self.log = bench, bench.store.runs, bench.store.log
        self.identity = RunIdentity("ann", run_id, run_id)
        self.key = self.identity.key
        document = {"threadId": run_id, "runId": run_id, "messages": [], **members}
        self.runs.accept(
            self.identity,
            agent="echo",
            run_input=json.dumps(document).encode(),
            started_frame=sse.frame(1, events.dump(events.run_started(run_id, run_id))),
            answers=answers,
        )

    def claims(self, retries: dict[str, int] | None = RETRIES, execution: str | None = None) -> Claim | None:
        return self.runs.claim(
            self.key, execution or new_execution(), worker="w1", host="h", pid=7, retries=retries or {}
        )

    def executes(self, **more: Any) -> Claim:
        claim = self.claims(**more)
        assert claim is not None
        self.says(claim, claim.last_seq + 1)
        return claim

    def says(self, claim: Claim, first: int) -> str:
        message = f"m{claim.attempt}-{first}"
        opener = sse.frame(
            first, events.dump(events.TextMessageStartEvent(message_id=message, role="assistant"))
        )
        return self.log.append(Batch(claim.key, claim.execution, first, (opener,))).state

    def late(self) -> None:
        self.bench.store.client.zadd(keys.leases(self.key[:2]), {self.key: 1})

    def retried(self, guard: str = "late", worker: str = "", pid: str = "") -> bool:
        return retry_lost(self.runs, self.log, self.key, guard=guard, value=worker, value2=pid)

    def loses(self) -> None:
        self.late()
        assert self.retried()

    def record(self) -> Any:
        return self.runs.get(self.key)

    def types(self) -> list[str]:
        return self.bench.types(self.key)


@pytest.fixture
def trial(bench: Bench) -> Trial:
    return Trial(bench)


@pytest.fixture
def enqueued() -> list[str]:
    return []


@pytest.fixture
def sweep(bench: Bench, enqueued: list[str]) -> Sweep:
    return Sweep(
        bench.store.runs, bench.store.log, enqueue=enqueued.append, queue_depth=lambda: 0, patient=False
    )


def test_the_sweep_puts_it_back_and_the_next_claim_is_the_second_attempt(
    trial: Trial, sweep: Sweep, enqueued: list[str]
):
    trial.executes()
    before = trial.record()
    trial.late()
    swept = sweep.tick()
    assert (swept.retried, swept.ended, enqueued) == (1, 0, [trial.key])
    waiting = trial.record()
    assert (waiting.status, waiting.execution, waiting.pid) == ("queued", None, None)
    assert "worker" not in waiting.public()
    claim = trial.claims()
    assert (claim.attempt, claim.last_seq) == (2, 5)
    after = trial.record()
    assert after.times["started_at"] == before.times["started_at"]
    assert after.times["deadline_at"] == before.times["deadline_at"]
    assert after.times["ready_at"] > before.times["ready_at"]
    assert trial.types() == ["RUN_STARTED", "TEXT_MESSAGE_START", *RESET]


def test_while_it_waits_no_lease_is_judged(trial: Trial, sweep: Sweep):
    trial.executes()
    trial.loses()
    assert sweep.tick().ended == 0
    assert not trial.retried()
    assert trial.record().status == "queued"


def test_a_retry_that_the_server_forgot_is_made_again(trial: Trial, sweep: Sweep):
    trial.executes()
    before = trial.bench.store.client.hgetall(keys.record(trial.key))
    said = trial.types()
    trial.loses()
    forgotten = trial.claims()
    # As a server that lost its last second: record and log of before, and a lease that is over.
    trial.bench.store.client.ltrim(keys.log(trial.key), 0, len(said) - 1)
    trial.bench.store.client.delete(keys.record(trial.key))
    trial.bench.store.client.hset(keys.record(trial.key), mapping=before)
    trial.late()
    assert trial.says(forgotten, len(said) + 1) == "lost"
    assert sweep.tick().retried == 1
    assert trial.claims().attempt == 2
    assert trial.types() == [*said, *RESET]


def test_operators_see_which_attempts_were_lost(trial: Trial):
    claim = trial.executes()
    trial.loses()
    (lost,) = trial.record().operator_view()["lost"]
    assert lost.pop("at") == trial.record().times["ready_at"]
    assert lost == {"attempt": 1, "execution": claim.execution, "worker": "w1", "host": "h", "pid": 7}
    assert "lost" not in trial.record().public()


def test_the_second_attempt_ends_like_any_run(trial: Trial, bench: Bench):
    trial.executes()
    trial.loses()
    claim = trial.claims()
    assert bench.finish(claim, claim.last_seq + 1).recorded
    assert (trial.record().status, trial.record().attempt) == ("succeeded", 2)


@pytest.mark.parametrize("retries", [{}, {"another": 3}])
def test_an_agent_that_did_not_declare_it_is_not_retried(
    trial: Trial, sweep: Sweep, enqueued: list[str], retries: dict[str, int]
):
    trial.executes(retries=retries)
    trial.late()
    swept = sweep.tick()
    assert (swept.retried, swept.ended, enqueued) == (0, 1, [])
    assert trial.record().texts["code"] == FailureCode.WORKER_LOST


def test_when_the_attempts_are_used_up_it_ends(trial: Trial, sweep: Sweep):
    trial.executes()
    trial.loses()
    trial.executes()
    trial.late()
    assert sweep.tick().ended == 1
    assert (trial.record().texts["code"], trial.record().attempt) == (FailureCode.WORKER_LOST, 2)
    assert trial.types()[-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]


def test_a_dead_pool_child_costs_an_attempt(trial: Trial):
    trial.executes()
    assert not trial.retried("child", "w1", "8")
    assert trial.retried("child", "w1", "7")
    assert trial.record().status == "queued"


def test_a_lease_that_is_kept_costs_none(trial: Trial):
    trial.executes()
    assert not trial.retried()
    assert trial.record().status == "running"


def asked_to_stop(trial: Trial) -> None:
    assert trial.runs.request_cancel(trial.key, by="ann").state == "requested"


def forced_to_stop(trial: Trial) -> None:
    assert trial.runs.terminate(trial.key, by="olga").fence is not None


def taken_for_its_ending(trial: Trial) -> None:
    assert trial.runs.fence(trial.key, ending="worker_lost", guard="any") is not None


def past_its_deadline(trial: Trial) -> None:
    trial.bench.store.client.hset(keys.record(trial.key), "deadline_at", 1)


@pytest.mark.parametrize("happened", [asked_to_stop, forced_to_stop, taken_for_its_ending, past_its_deadline])
def test_a_run_that_is_to_end_is_not_retried(trial: Trial, happened: Callable[[Trial], None]):
    trial.executes()
    happened(trial)
    trial.late()
    assert not trial.retried()
    assert trial.record().status == "running"


def test_an_input_that_cannot_be_read_does_not_keep_it_open(bench: Bench, sweep: Sweep):
    bench.accept()
    bench.store.runs.claim(bench.key(), "e1", worker="w1", host="h", pid=7, retries=RETRIES)
    bench.store.client.zadd(keys.leases(bench.key()[:2]), {bench.key(): 1})
    assert sweep.tick().ended == 1


def test_a_lost_execution_that_wakes_up_writes_nothing_any_more(trial: Trial, bench: Bench):
    dead = trial.executes()
    trial.loses()
    length = len(trial.types())
    assert trial.says(dead, length + 1) in {"lost", "unclaimed"}
    assert bench.finish(dead, length + 1).state in {"lost", "unclaimed"}
    assert trial.runs.renew({trial.key: dead.execution})[trial.key] in {"lost", "unclaimed"}
    # What a worker does when its claim seems to be forgotten, and when the answer to its claim was lost.
    for again in (True, False):
        assert trial.runs.claim(trial.key, dead.execution, worker="w1", host="h", pid=7, again=again) is None
    claim = trial.claims()
    assert trial.says(dead, length + 1) == "lost"
    assert bench.finish(dead, length + 1).state == "lost"
    assert trial.says(claim, length + 1) == "ok"


def test_a_forgotten_claim_of_the_second_attempt_is_said_again(trial: Trial):
    trial.executes()
    trial.loses()
    record = trial.bench.store.client.hgetall(keys.record(trial.key))
    claim = trial.claims()
    # As a server that lost its last second: the record of before, and the run ready again.
    trial.bench.store.client.delete(keys.record(trial.key))
    trial.bench.store.client.hset(keys.record(trial.key), mapping=record)
    trial.bench.store.client.zadd(keys.ready(trial.key[:2]), {trial.key: 1})
    assert trial.says(claim, claim.last_seq + 1) == "unclaimed"
    again = trial.runs.claim(trial.key, claim.execution, worker="w1", host="h", pid=7, again=True)
    assert (again.attempt, again.execution) == (2, claim.execution)
    assert trial.says(claim, claim.last_seq + 1) == "ok"


def test_the_second_attempt_can_be_handed_back(trial: Trial):
    first = trial.executes()
    trial.loses()
    claim = trial.claims()
    started = trial.record().times["started_at"]
    assert trial.runs.release(trial.key, claim.execution, most=3, last_seq=claim.last_seq) == "released"
    waiting = trial.record()
    assert (waiting.status, waiting.attempt, waiting.times["started_at"]) == ("queued", 1, started)
    assert trial.claims(execution=first.execution) is None
    assert trial.claims().attempt == 2


def test_a_run_that_has_spoken_is_not_handed_back(trial: Trial):
    claim = trial.executes()
    assert trial.runs.release(trial.key, claim.execution, most=3, last_seq=claim.last_seq) == "lost"


def test_handed_back_before_it_spoke_it_takes_the_promise_of_the_next_worker(trial: Trial):
    claim = trial.claims(retries={"echo": 5})
    assert trial.runs.release(trial.key, claim.execution, most=3, last_seq=1) == "released"
    trial.claims(retries={"echo": 2})
    assert (trial.record().attempt, trial.record().retries) == (1, 2)


def test_cancelled_while_it_waits_for_its_second_attempt(trial: Trial):
    trial.executes()
    trial.loses()
    answer = trial.runs.request_cancel(trial.key, by="ann")
    finish = end_fenced(trial.runs, trial.log, answer.fence, trial.identity)
    assert finish.status == "cancelled"
    assert trial.types()[-2:] == ["MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert trial.claims() is None


def test_nobody_took_the_second_attempt_in_time(trial: Trial):
    trial.executes()
    trial.loses()
    finish = end_from_outside(
        trial.runs, trial.log, trial.key, ending=str(FailureCode.QUEUE_TIMEOUT), guard="queue", value="0"
    )
    assert finish.recorded
    assert trial.record().texts["code"] == FailureCode.QUEUE_TIMEOUT


def test_the_thread_waits_until_the_last_attempt_has_ended(bench: Bench):
    trial = Trial(bench)
    trial.executes()
    bench.accept("next", thread="r1")
    trial.loses()
    assert bench.claim(bench.key("next", thread="r1")) is None
    claim = trial.claims()
    assert bench.finish(claim, claim.last_seq + 1).successor == bench.key("next", thread="r1")


def test_calls_of_unknown_effect_are_told_in_the_log_and_in_the_end(trial: Trial):
    claim = trial.claims()
    call = sse.frame(2, events.dump(events.ToolCallStartEvent(tool_call_id="c1", tool_call_name="pay")))
    trial.log.append(Batch(claim.key, claim.execution, 2, (call,)))
    trial.loses()
    told = [events.parse(sse.data_of(frame)) for frame in trial.log.read_all(trial.key)]
    (attempt,) = [event for event in told if isinstance(event, events.CustomEvent)]
    unknown = [{"id": "c1", "name": "pay"}]
    assert attempt.value == {"attempt": 2, "reason": "worker_lost", "unknownCalls": unknown}
    trial.executes()
    end_from_outside(trial.runs, trial.log, trial.key, ending="worker_lost", guard="any")
    assert trial.record().unknown_calls == unknown


def resumes(bench: Bench) -> Trial:
    """A run that answers what an earlier one asked."""
    asker = bench.running("asker", thread="r1")
    bench.finish(asker, 2, Outcome.interrupted([{"id": "i1", "reason": "approval"}]))
    return Trial(
        bench,
        answers=[Answer("i1", "resolved", asker.key)],
        resume=[{"interruptId": "i1", "status": "resolved"}],
    )


def test_every_attempt_sees_the_answers(bench: Bench):
    trial = resumes(bench)
    first = trial.executes()
    trial.loses()
    assert b"i1" in first.input
    assert trial.claims().input == first.input


@pytest.mark.parametrize("claimed", [False, True])
def test_answers_that_a_lost_attempt_saw_are_not_given_back(bench: Bench, claimed: bool):
    trial = resumes(bench)
    trial.executes()
    trial.loses()
    if claimed:
        claim = trial.claims()
        outcome = Outcome.failed(FailureCode.UNKNOWN_AGENT)
        assert bench.finish(claim, claim.last_seq + 1, outcome).recorded
    else:
        fence = trial.runs.request_cancel(trial.key, by="ann").fence
        end_fenced(trial.runs, trial.log, fence, trial.identity)
    assert open_questions(bench.store.client, trial.identity) == {}


def test_a_hand_back_of_a_later_attempt_gives_no_answer_back(bench: Bench):
    trial = resumes(bench)
    trial.executes()
    trial.loses()
    claim = trial.claims()
    assert trial.runs.release(trial.key, claim.execution, most=3, last_seq=claim.last_seq) == "released"
    assert open_questions(bench.store.client, trial.identity) == {}
    fence = trial.runs.request_cancel(trial.key, by="ann").fence
    end_fenced(trial.runs, trial.log, fence, trial.identity)
    assert open_questions(bench.store.client, trial.identity) == {}


def test_after_a_hand_back_the_next_attempt_sees_the_answers(bench: Bench):
    trial = resumes(bench)
    first = trial.executes()
    trial.loses()
    claim = trial.claims()
    assert trial.runs.release(trial.key, claim.execution, most=3, last_seq=claim.last_seq) == "released"
    again = trial.claims()
    assert (again.input, again.attempt) == (first.input, 2)
    assert bench.finish(again, again.last_seq + 1).recorded


# --- races --------------------------------------------------------------------------------------------


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """What each gave, in their order."""
    gate, given = Barrier(len(acts)), [None] * len(acts)

    def perform(place: int) -> None:
        gate.wait()
        given[place] = acts[place]()

    threads = [Thread(target=perform, args=(place,)) for place in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return given


def in_order(trial: Trial) -> None:
    """The whole log is one that the verifier takes."""
    verifier = Verifier(thread_id=trial.identity.thread_id, run_id=trial.identity.run_id)
    for frame in trial.log.read_all(trial.key):
        verifier.observe(events.parse(sse.data_of(frame)))


class Overtaken(EventLog):
    """A log that somebody writes to just after it was read for the first time."""

    def __init__(self, trial: Trial, act: Callable[[], Any]) -> None:
        super().__init__(trial.bench.store.client)
        self.acts = [act]

    def read_all(self, key: str) -> list[bytes]:
        frames = super().read_all(key)
        while self.acts:
            self.acts.pop()()
        return frames


def test_what_the_lost_worker_says_meanwhile_is_closed_too(trial: Trial):
    dead = trial.executes()
    trial.late()
    trial.log = Overtaken(trial, lambda: trial.says(dead, 3))
    assert trial.retried()
    assert trial.types() == ["RUN_STARTED", *["TEXT_MESSAGE_START"] * 2, "TEXT_MESSAGE_END", *RESET]
    in_order(trial)


def test_a_sweep_that_slept_does_not_take_a_later_attempt_for_the_one_it_saw(trial: Trial):
    trial.executes()
    trial.late()
    log = trial.log

    def overtaken() -> None:
        trial.log = log
        trial.loses()
        trial.executes()
        trial.late()

    trial.log = Overtaken(trial, overtaken)
    assert not trial.retried()
    assert (trial.record().status, trial.record().attempt) == ("running", 2)


def test_two_sweeps_and_one_retry(bench: Bench):
    for number in range(200):
        trial = Trial(bench, f"r{number}")
        trial.executes()
        trial.late()
        assert sorted(at_once(trial.retried, trial.retried)) == [False, True]
        assert trial.types().count("CUSTOM") == 1
        assert trial.claims().attempt == 2
        in_order(trial)


def test_a_retry_and_an_ending_and_never_both(bench: Bench):
    for number in range(200):
        trial = Trial(bench, f"r{number}")
        trial.executes()
        trial.late()

        def end(trial: Trial = trial) -> bool:
            finish = end_from_outside(
                trial.runs, trial.log, trial.key, ending=str(FailureCode.WORKER_LOST), guard="late"
            )
            return finish is not None and finish.recorded

        retried, ended = at_once(trial.retried, end)
        assert retried is not ended
        assert trial.record().status == ("queued" if retried else "failed")
        in_order(trial)


def test_a_retry_and_a_cancel_that_is_never_lost(bench: Bench):
    for number in range(200):
        trial = Trial(bench, f"r{number}")
        trial.executes()
        trial.late()

        def cancel(trial: Trial = trial) -> str:
            answer = trial.runs.request_cancel(trial.key, by="ann")
            if answer.fence is not None:
                end_fenced(trial.runs, trial.log, answer.fence, trial.identity)
            return answer.state

        retried, cancelled = at_once(trial.retried, cancel)
        assert (retried, cancelled) in {(True, "fenced"), (False, "requested")}
        assert trial.record().status == ("cancelled" if retried else "running")
        assert "cancel_requested_at" in trial.record().times
        in_order(trial)


def test_a_retry_and_the_last_words_of_the_lost_worker(bench: Bench):
    for number in range(300):
        trial = Trial(bench, f"r{number}")
        dead = trial.executes()
        trial.late()
        retried, said = at_once(trial.retried, lambda trial=trial, dead=dead: trial.says(dead, 3))
        assert retried
        assert (trial.types()[2] == "TEXT_MESSAGE_START") == (said == "ok")
        in_order(trial)


def test_a_retry_and_the_finish_of_the_lost_worker(bench: Bench):
    for number in range(300):
        trial = Trial(bench, f"r{number}")
        dead = trial.claims()
        trial.late()
        retried, finish = at_once(trial.retried, lambda dead=dead: bench.finish(dead, 2))
        assert retried is not finish.recorded
        assert trial.record().status == ("queued" if retried else "succeeded")
        in_order(trial)


def test_a_retry_and_the_renewal_of_a_worker_that_woke_up(bench: Bench):
    for number in range(200):
        trial = Trial(bench, f"r{number}")
        dead = trial.executes()
        trial.late()
        retried, told = at_once(
            trial.retried, lambda trial=trial, dead=dead: trial.runs.renew({trial.key: dead.execution})
        )
        assert retried is (told[trial.key] != "ok")
        assert trial.record().status == ("queued" if retried else "running")
