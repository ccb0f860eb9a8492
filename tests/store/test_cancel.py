"""Cancel requests: exactly one run, idempotent, never confused with the outcome."""

from __future__ import annotations

from threading import Barrier, Thread

from shared.runs.outcome import Outcome
from shared.store import keys
from shared.store.ending import end_fenced
from shared.store.log import Batch


def stop_queued(bench, run_id: str, **where: str):
    key = bench.key(run_id, **where)
    answer = bench.store.runs.request_cancel(key, by="ann")
    assert answer.state == "fenced"
    identity = bench.store.runs.get(key).identity
    return end_fenced(bench.store.runs, bench.store.log, answer.fence, identity)


def test_an_unknown_run_is_unknown(bench):
    assert bench.store.runs.request_cancel(bench.key("nobody"), by="ann").state == "unknown"
    assert list(bench.store.client.scan_iter(f"*{bench.key('nobody')}*")) == []


def test_a_queued_run_ends_cancelled_at_once(bench):
    bench.accept()
    assert stop_queued(bench, "r1").state == "finished"
    assert bench.types(bench.key()) == ["RUN_STARTED", "RUN_FINISHED"]
    record = bench.store.runs.get(bench.key())
    assert (record.status, record.outcome) == ("cancelled", {"type": "cancelled"})
    assert bench.claim(bench.key()) is None


def test_a_waiting_run_that_is_cancelled_leaves_the_line(bench):
    claim = bench.running("r1")
    bench.accept("r2")
    bench.accept("r3")
    assert stop_queued(bench, "r2").successor is None
    assert bench.finish(claim, 2).successor == bench.key("r3")


def test_the_ready_run_that_is_cancelled_lets_the_next_one_in(bench):
    bench.accept("r1")
    bench.accept("r2")
    assert stop_queued(bench, "r1").successor == bench.key("r2")
    assert bench.claim(bench.key("r2")) is not None


def test_a_run_between_fence_and_ending_cannot_be_claimed_and_the_second_asker_may_end_it(bench):
    bench.accept()
    first = bench.store.runs.request_cancel(bench.key(), by="ann")
    assert bench.claim(bench.key()) is None
    second = bench.store.runs.request_cancel(bench.key(), by="ann")
    assert (second.state, second.fence) == ("fenced", first.fence)


def test_a_running_run_keeps_its_status_and_the_worker_is_told(bench, eventually):
    claim = bench.running()
    listener = bench.store.client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(keys.worker_channel("w1"))
    eventually(lambda: bench.store.client.pubsub_numsub(keys.worker_channel("w1"))[0][1])
    assert bench.store.runs.request_cancel(claim.key, by="ann", reason="enough").state == "requested"
    record = bench.store.runs.get(claim.key)
    assert (record.status, record.texts["cancel_reason"]) == ("running", "enough")
    message = eventually(lambda: listener.get_message(timeout=1))
    assert message["data"].decode() == f"cancel {claim.key} client"


def test_asking_again_keeps_the_first_request(bench):
    claim = bench.running()
    bench.store.runs.request_cancel(claim.key, by="ann", reason="first")
    before = bench.store.runs.get(claim.key)
    assert bench.store.runs.request_cancel(claim.key, by="op", reason="second").state == "requested"
    assert bench.store.runs.get(claim.key) == before


def test_an_ended_run_keeps_its_ending(bench):
    claim = bench.running()
    bench.finish(claim, 2)
    before = bench.store.client.hgetall(keys.record(claim.key))
    assert bench.store.runs.request_cancel(claim.key, by="ann").state == "ended"
    assert bench.store.client.hgetall(keys.record(claim.key)) == before


def test_a_cancel_does_not_reach_the_next_run_of_the_thread(bench):
    claim = bench.running("r1")
    bench.store.runs.request_cancel(claim.key, by="ann")
    bench.accept("r2")
    bench.finish(claim, 2, Outcome.cancelled())
    second = bench.claim(bench.key("r2"))
    assert bench.store.log.append(bench.batch(second, 2, ["a"])).cancel is None


def test_cancel_against_finish_has_one_winner(bench):
    for trial in range(300):
        run = f"r{trial}"
        claim = bench.running(run, thread=run)
        answers: dict[str, str] = {}
        gate = Barrier(2)

        def cancel(claim=claim, gate=gate, answers=answers) -> None:
            gate.wait()
            answers["cancel"] = bench.store.runs.request_cancel(claim.key, by="ann").state

        def finish(claim=claim, gate=gate, answers=answers) -> None:
            gate.wait()
            answers["finish"] = bench.finish(claim, 2).state

        threads = [Thread(target=cancel), Thread(target=finish)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        record = bench.store.runs.get(claim.key)
        assert answers["finish"] == "finished"
        assert record.status == "succeeded"
        assert (answers["cancel"] == "requested") == ("cancel_requested_at" in record.times)
        assert bench.types(claim.key) == ["RUN_STARTED", "RUN_FINISHED"]


def test_cancel_against_claim_has_one_winner(bench):
    for trial in range(300):
        run = f"r{trial}"
        bench.accept(run, thread=run)
        key = bench.key(run, thread=run)
        answers: dict[str, object] = {}
        gate = Barrier(2)

        def cancel(key=key, gate=gate, answers=answers) -> None:
            gate.wait()
            answers["cancel"] = bench.store.runs.request_cancel(key, by="ann").state

        def take(key=key, gate=gate, answers=answers) -> None:
            gate.wait()
            answers["claim"] = bench.claim(key)

        threads = [Thread(target=cancel), Thread(target=take)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (answers["cancel"] == "fenced") == (answers["claim"] is None)


def test_a_fenced_run_ignores_appends_of_an_old_execution(bench):
    claim = bench.running()
    fence = bench.store.runs.fence(claim.key, ending="cancelled", guard="any")
    frame = bench.batch(claim, 2, ["late"]).frames
    assert bench.store.log.append(Batch(claim.key, claim.execution, 2, frame)).state == "lost"
    assert end_fenced(bench.store.runs, bench.store.log, fence, claim.identity).recorded
