"""Forced stop: one step says who and why, takes the run away and tells the worker."""

from __future__ import annotations

import itertools
from threading import Barrier, Thread

from shared.store import keys
from shared.store.answers import Claim
from shared.store.channel import Confirmed, Message, Subscription
from shared.store.ending import end_fenced, end_from_outside


def terminate(bench, key: str, **options):
    return bench.store.runs.terminate(key, by="olga", reason="stuck", **options)


def end(bench, claim: Claim, fence):
    return end_fenced(bench.store.runs, bench.store.log, fence, claim.identity)


def test_a_forced_stop_ends_the_run_cancelled_and_says_who_and_why(bench):
    claim = bench.running()
    answer = terminate(bench, claim.key)
    assert end(bench, claim, answer.fence).recorded
    record = bench.store.runs.get(claim.key)
    assert record.status == "cancelled"
    assert record.texts["terminated_by"] == record.texts["cancel_by"] == "olga"
    assert record.texts["terminate_reason"] == record.texts["cancel_reason"] == "stuck"
    assert record.texts["cancel_cause"] == "operator"
    assert record.times["terminated_at"] == record.times["cancel_requested_at"]
    assert bench.types(claim.key) == ["RUN_STARTED", "RUN_FINISHED"]


def test_an_earlier_cancel_keeps_its_own_words(bench):
    claim = bench.running()
    bench.store.runs.request_cancel(claim.key, by="ann", reason="enough")
    terminate(bench, claim.key)
    record = bench.store.runs.get(claim.key)
    assert (record.texts["cancel_by"], record.texts["cancel_reason"]) == ("ann", "enough")
    assert record.texts["terminated_by"] == "olga"


def test_what_the_execution_still_writes_is_refused(bench):
    claim = bench.running()
    answer = terminate(bench, claim.key)
    assert bench.store.log.append(bench.batch(claim, 2, ["late"])).state == "lost"
    assert bench.finish(claim, 2).state == "lost"
    end(bench, claim, answer.fence)
    assert bench.finish(claim, 2).state == "ended"
    assert bench.store.runs.renew({claim.key: claim.execution}) == {claim.key: "lost"}


def test_before_a_cancel_the_whole_grace_is_left(bench):
    claim = bench.running()
    answer = terminate(bench, claim.key, grace_seconds=10)
    assert (answer.state, answer.seconds_left) == ("grace", 10)
    assert "cancel_requested_at" not in bench.store.runs.get(claim.key).times


def test_within_the_grace_the_run_is_left_alone(bench, eventually):
    claim = bench.running()
    bench.store.runs.request_cancel(claim.key, by="ann")
    answer = terminate(bench, claim.key, grace_seconds=0.3)
    assert answer.state == "grace"
    assert 0 < answer.seconds_left <= 0.3
    assert bench.store.log.append(bench.batch(claim, 2, ["on"])).state == "ok"
    eventually(lambda: terminate(bench, claim.key, grace_seconds=0.3).state == "fenced")


def test_a_queued_run_needs_no_grace(bench):
    bench.accept()
    answer = terminate(bench, bench.key(), grace_seconds=60)
    assert answer.state == "fenced"
    assert bench.claim(bench.key()) is None


def test_an_ended_and_an_unknown_run_are_told_apart(bench):
    claim = bench.running()
    bench.finish(claim, 2)
    assert terminate(bench, claim.key).state == "ended"
    assert terminate(bench, bench.key("never")).state == "unknown"


def test_worker_and_parent_are_told_of_exactly_this_execution(bench, settings):
    bench.accept()
    claim = bench.claim(bench.key(), worker="host:41:fam", pid=41)
    heard = Subscription(settings.redis_url)
    channels = (keys.worker_channel("host:41:fam"), keys.family_channel("host:41:fam"))
    heard.subscribe(*channels)
    happenings = (heard.get(5) for _ in itertools.count())
    assert [type(next(happenings)) for _ in channels] == [Confirmed, Confirmed]
    terminate(bench, claim.key)
    assert next(happenings) == Message(
        "outlast:worker-channel:host:41:fam", f"terminate {claim.key} {claim.execution}".encode()
    )
    assert next(happenings) == Message(
        "outlast:worker-family:fam", f"child {claim.key} {claim.execution} host:41:fam 41".encode()
    )
    heard.close()


def test_a_dead_child_does_not_take_the_run_from_the_one_who_ends_it(bench):
    claim = bench.running()
    answer = terminate(bench, claim.key)
    runs, log = bench.store.runs, bench.store.log
    late = end_from_outside(runs, log, claim.key, ending="worker_lost", guard="child", value="w1", value2="7")
    assert late is None
    assert end(bench, claim, answer.fence).recorded


def test_an_ender_that_dies_is_completed_by_the_sweep_as_cancelled(bench):
    claim = bench.running()
    terminate(bench, claim.key)
    bench.store.client.zadd(keys.leases(claim.key[:2]), {claim.key: 1})
    late = end_from_outside(bench.store.runs, bench.store.log, claim.key, ending="worker_lost", guard="late")
    assert late.recorded
    assert bench.store.runs.get(claim.key).status == "cancelled"


def test_a_forced_stop_races_the_own_ending_and_one_of_them_is_recorded(bench):
    for trial in range(200):
        run = f"r{trial}"
        claim = bench.running(run, thread=run)
        gate, own = Barrier(2), []

        def finish(claim=claim, gate=gate, own=own) -> None:
            gate.wait()
            own.append(bench.finish(claim, 2).state)

        thread = Thread(target=finish)
        thread.start()
        gate.wait()
        answer = terminate(bench, claim.key)
        stopped = answer.fence is not None and end(bench, claim, answer.fence).recorded
        thread.join()
        assert (own[0] == "finished") != stopped
        assert len(bench.types(claim.key)) == 2
