"""Claims: only from queued, one winner, the lost answer may be asked for again."""

from __future__ import annotations

from threading import Barrier, Thread

from shared.store import keys
from shared.store.runs import new_execution


def test_a_claim_carries_the_input_and_the_identity(bench):
    claim = bench.running()
    assert (claim.identity.run_id, claim.agent, claim.input, claim.attempt, claim.last_seq) == (
        "r1",
        "echo",
        b"{}",
        1,
        1,
    )
    assert 3590 < claim.seconds_left <= 3600


def test_a_claimed_run_is_not_claimed_again(bench):
    claim = bench.running()
    assert bench.claim(claim.key) is None


def test_a_claim_whose_answer_was_lost_is_answered_again_and_counts_once(bench):
    bench.accept()
    execution = new_execution()
    first = bench.claim(bench.key(), execution)
    second = bench.claim(bench.key(), execution)
    assert second is not None
    assert (first.attempt, second.attempt) == (1, 1)


def test_an_unknown_run_is_not_claimed(bench):
    assert bench.claim(bench.key("nobody")) is None


def test_two_workers_claim_one_run_and_one_gets_it(bench):
    for trial in range(300):
        run = f"r{trial}"
        bench.accept(run, thread=run)
        won = []
        gate = Barrier(2)

        def take(run: str = run, gate: Barrier = gate, won: list = won) -> None:
            gate.wait()
            if bench.claim(bench.key(run, thread=run)):
                won.append(run)

        threads = [Thread(target=take) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1


def test_a_released_run_is_queued_again_as_if_never_claimed(bench):
    claim = bench.running()
    assert bench.store.runs.release(claim.key, claim.execution, most=3) == "released"
    record = bench.store.runs.get(claim.key)
    assert (record.status, record.attempt, record.execution) == ("queued", 0, None)
    assert bench.claim(claim.key) is not None


def test_a_run_is_handed_back_only_so_often(bench):
    bench.accept()
    for _ in range(3):
        claim = bench.claim(bench.key())
        assert bench.store.runs.release(claim.key, claim.execution, most=3) == "released"
    claim = bench.claim(bench.key())
    assert bench.store.runs.release(claim.key, claim.execution, most=3) == "exhausted"


def test_a_run_that_has_spoken_is_not_handed_back(bench):
    claim = bench.running()
    bench.store.log.append(bench.batch(claim, 2, ["a"]))
    assert bench.store.runs.release(claim.key, claim.execution, most=3) == "lost"


def test_leases_are_renewed_and_tell_the_cancel_flag(bench):
    claim, other = bench.running("r1"), bench.running("r2", thread="t2")
    bench.store.runs.request_cancel(other.key, by="ann")
    told = bench.store.runs.renew(
        {claim.key: claim.execution, other.key: other.execution, "b0" + "a" * 26: "x"}
    )
    assert told == {claim.key: "ok", other.key: "cancel client", "b0" + "a" * 26: "gone"}
    assert bench.store.runs.renew({claim.key: "somebody else"}) == {claim.key: "lost"}


def restart_seen(bench, run_key: str) -> None:
    """As if the next script were the first one that meets a restarted server."""
    server = keys.prefix(run_key[:2]) + "server"
    bench.store.client.hset(server, mapping={"run_id": "another", "checked_at": 0})


def test_after_a_restart_older_runs_are_held_for_one_lease_and_fresh_ones_are_not(bench, eventually):
    bench.accept("old")
    eventually(lambda: bench.store.runs.now_ms() > bench.store.runs.get(bench.key("old")).times["ready_at"])
    restart_seen(bench, bench.key("old"))
    assert bench.claim(bench.key("old")) is None
    bench.accept("fresh", thread="t1-fresh")
    assert bench.claim(bench.key("fresh", thread="t1-fresh")) is not None
    assert bench.claim(bench.key("old")) is None
    assert eventually(lambda: bench.claim(bench.key("old")), bench.store.settings.lease_seconds + 2)


def test_the_execution_whose_claim_was_forgotten_claims_again_at_once(bench, eventually):
    bench.accept()
    eventually(lambda: bench.store.runs.now_ms() > bench.store.runs.get(bench.key()).times["ready_at"])
    restart_seen(bench, bench.key())
    again = bench.store.runs.claim(bench.key(), "mine", worker="w1", host="h", pid=7, again=True)
    assert again.execution == "mine"
