"""Acceptance: one identity, one run, RUN_STARTED first."""

from __future__ import annotations

from threading import Barrier, Thread

from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.store import keys


def test_an_accepted_run_is_queued_and_its_log_starts_with_run_started(bench):
    assert bench.accept().state == "ready"
    record = bench.store.runs.get(bench.key())
    assert (record.status, record.last_seq, record.attempt) == ("queued", 1, 0)
    assert bench.types(bench.key()) == ["RUN_STARTED"]


def test_the_same_identity_is_known_and_nothing_changes(bench):
    bench.accept()
    before = bench.store.client.hgetall(keys.record(bench.key()))
    assert bench.accept().state == "known"
    assert bench.store.client.hgetall(keys.record(bench.key())) == before


def test_the_same_run_id_on_another_thread_or_of_another_actor_is_another_run(bench):
    assert bench.accept().state == "ready"
    assert bench.accept(thread="t2").state == "ready"
    assert bench.accept(actor="bob").state == "ready"


def test_identities_that_join_to_the_same_text_have_different_keys(bench):
    assert bench.key("c", thread="b", actor="aa") != bench.key("c", thread="ab", actor="a")


def test_a_second_run_of_a_thread_waits_for_its_turn(bench):
    bench.accept("r1")
    accepted = bench.accept("r2")
    assert (accepted.state, accepted.front) == ("waiting", (bench.key("r1"),))
    assert bench.claim(bench.key("r2")) is None


def test_a_busy_thread_refuses_when_the_policy_says_reject(bench):
    bench.accept("r1")
    answer = bench.accept("r2", policy="reject")
    assert (answer.state, answer.front) == ("busy", (bench.key("r1"),))
    assert bench.store.runs.get(bench.key("r2")) is None


def test_only_so_many_runs_may_wait_on_one_thread(bench):
    for number in range(bench.store.settings.max_waiting_per_thread + 1):
        assert bench.accept(f"r{number}").state in {"ready", "waiting"}
    assert bench.accept("one too many").state == "crowded"


def test_the_interrupt_policy_is_told_whom_to_stop(bench):
    bench.accept("r1")
    bench.accept("r2")
    assert bench.accept("r3", policy="interrupt").front == (bench.key("r1"), bench.key("r2"))


def test_an_expired_identity_is_not_executed_again(bench):
    claim = bench.running()
    bench.finish(claim, 2)
    client = bench.store.client
    client.hset(keys.record(claim.key), "finished_at", 1)
    assert bench.store.runs.expire(claim.key)
    assert bench.store.runs.get(claim.key) is None
    assert bench.store.runs.expired(claim.key)
    assert bench.accept().state == "expired"


def test_twenty_threads_accept_one_identity_once(bench):
    for trial in range(100):
        answers: list[str] = []
        gate = Barrier(20)

        def submit(trial: int = trial, gate: Barrier = gate, answers: list[str] = answers) -> None:
            gate.wait()
            answers.append(bench.accept(f"r{trial}", thread=f"t{trial}").state)

        threads = [Thread(target=submit) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == ["known"] * 19 + ["ready"]
        assert bench.types(bench.key(f"r{trial}", thread=f"t{trial}")) == ["RUN_STARTED"]


def test_a_submit_whose_answer_was_lost_is_answered_again_as_accepted(bench, monkeypatch):
    bench.accept("r1")
    script, asked = bench.store.runs.scripts.accept, []

    def lose_the_first_answer(client, *call, run=script.run):
        answer = run(client, *call)
        asked.append(answer)
        if len(asked) == 1:
            raise RedisTimeoutError("lost")
        return answer

    monkeypatch.setattr(script, "run", lose_the_first_answer)
    answers = [bench.accept("r2"), bench.accept("r2", thread="t2")]
    assert [answer.state for answer in answers] == ["waiting", "ready"]
    assert answers[0].front == (bench.key("r1"),)
    assert len(asked) == 3


def test_active_runs_of_an_actor_are_counted_over_all_threads(bench):
    for number in range(8):
        bench.accept(f"r{number}", thread=f"t{number}")
    assert bench.store.active_runs("ann") == 8
    claim = bench.claim(bench.key("r0", thread="t0"))
    bench.finish(claim, 2)
    assert bench.store.active_runs("ann") == 7
