"""The sweep: lost workers, lost messages, old runs; one leader, no hasty judgement."""

from __future__ import annotations

import time

import pytest

from shared.protocol import events, sse
from shared.runs.identity import BUCKETS
from shared.runs.outcome import FailureCode
from shared.store import keys
from shared.store.log import Batch
from shared.store.sweep import Sweep


@pytest.fixture
def enqueued() -> list[str]:
    return []


@pytest.fixture
def sweep(bench, enqueued) -> Sweep:
    return Sweep(
        bench.store.runs, bench.store.log, enqueue=enqueued.append, queue_depth=lambda: 0, patient=False
    )


def make_late(bench, key: str) -> None:
    bench.store.client.zadd(keys.leases(key[:2]), {key: 1})


def test_a_run_whose_lease_ran_out_ends_worker_lost_with_its_message_closed(bench, sweep):
    claim = bench.running()
    opener = events.TextMessageStartEvent(message_id="m1", role="assistant")
    bench.store.log.append(Batch(claim.key, claim.execution, 2, (sse.frame(2, events.dump(opener)),)))
    make_late(bench, claim.key)
    assert sweep.tick().ended == 1
    record = bench.store.runs.get(claim.key)
    assert (record.status, record.texts["code"]) == ("failed", FailureCode.WORKER_LOST)
    assert bench.types(claim.key) == ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "RUN_ERROR"]


def test_a_renewed_lease_is_left_alone(bench, sweep):
    claim = bench.running()
    assert sweep.tick().ended == 0
    assert bench.store.runs.get(claim.key).status == "running"


def test_a_late_lease_is_revived_by_its_own_execution(bench, sweep):
    claim = bench.running()
    make_late(bench, claim.key)
    assert bench.store.runs.renew({claim.key: claim.execution}) == {claim.key: "ok"}
    assert sweep.tick().ended == 0


def test_a_patient_sweeper_waits_one_lease_after_redis_was_away(bench, enqueued):
    claim = bench.running()
    make_late(bench, claim.key)
    patient = Sweep(bench.store.runs, bench.store.log, enqueue=enqueued.append, queue_depth=lambda: 0)
    assert patient.tick().ended == 0
    patient._judge_from = time.monotonic()
    assert patient.tick().ended == 0
    bench.long_known(claim.key)
    assert patient.tick().ended == 1


def test_the_successor_of_a_swept_run_is_enqueued(bench, sweep, enqueued):
    claim = bench.running("r1")
    bench.accept("r2")
    make_late(bench, claim.key)
    sweep.tick()
    assert enqueued == [bench.key("r2")]


def test_an_ender_that_died_is_completed_with_its_own_ending(bench, sweep):
    claim = bench.running()
    bench.store.runs.fence(claim.key, ending="cancelled", guard="any")
    make_late(bench, claim.key)
    sweep.tick()
    assert bench.store.runs.get(claim.key).status == "cancelled"


def test_a_cancel_of_a_queued_run_whose_asker_died_is_completed(bench, sweep):
    bench.accept()
    bench.store.runs.request_cancel(bench.key(), by="ann")
    make_late(bench, bench.key())
    sweep.tick()
    assert bench.store.runs.get(bench.key()).status == "cancelled"


def test_a_ready_run_without_a_message_is_enqueued_again_at_doubling_intervals(bench, sweep, enqueued):
    bench.accept()
    key = bench.key()
    sweep.tick()
    assert enqueued == []
    bench.store.client.zadd(keys.ready(key[:2]), {key: bench.store.runs.now_ms() - 2_500})
    sweep.tick()
    assert enqueued == [key]
    bench.store.client.zadd(keys.ready(key[:2]), {key: bench.store.runs.now_ms() - 2_500})
    sweep.tick()
    assert enqueued == [key]
    bench.store.client.zadd(keys.ready(key[:2]), {key: bench.store.runs.now_ms() - 4_500})
    sweep.tick()
    assert enqueued == [key, key]


def test_a_run_that_no_worker_takes_ends_queue_timeout(bench, sweep):
    bench.accept()
    key = bench.key()
    long_ago = bench.store.runs.now_ms() - int(bench.store.settings.queue_timeout_seconds * 1000) - 1
    bench.store.client.hset(keys.record(key), "ready_at", long_ago)
    bench.store.client.zadd(keys.ready(key[:2]), {key: long_ago})
    assert sweep.tick().timed_out == 1
    assert bench.store.runs.get(key).texts["code"] == "queue_timeout"
    assert bench.types(key) == ["RUN_STARTED", "RUN_ERROR"]


def test_a_waiting_run_has_no_queue_timeout(bench, sweep, enqueued):
    bench.running("r1")
    bench.accept("r2")
    long_ago = bench.store.runs.now_ms() - 10**10
    bench.store.client.hset(keys.record(bench.key("r2")), "created_at", long_ago)
    assert sweep.tick().timed_out == 0
    assert enqueued == []


def test_old_runs_leave_nothing_but_a_tombstone(bench, sweep):
    claim = bench.running()
    bench.finish(claim, 2)
    client = bench.store.client
    client.hset(keys.record(claim.key), "finished_at", 1)
    client.zadd(keys.ended(claim.key[:2]), {claim.key: 1})
    assert sweep.tick().expired == 1
    left = {name.decode() for name in client.scan_iter("outlast:{*")}
    counted = {name for name in left if name.endswith((":totals", ":server")) or ":stats:" in name}
    assert left - counted == {keys.tombstone(claim.key)}
    assert client.ttl(keys.tombstone(claim.key)) > 0


def test_one_that_may_not_judge_yet_does_not_keep_the_lead_from_one_that_may(bench, sweep, eventually):
    fresh = Sweep(bench.store.runs, bench.store.log, enqueue=lambda key: None, queue_depth=lambda: 0)
    assert fresh.tick() is not None
    eventually(lambda: not bench.store.client.exists(keys.SWEEPER), 1)
    assert sweep.tick() is not None
    assert fresh.tick() is None


def test_only_one_sweeper_leads(bench, sweep, enqueued):
    other = Sweep(bench.store.runs, bench.store.log, enqueue=enqueued.append, queue_depth=lambda: 0)
    assert sweep.tick() is not None
    assert other.tick() is None
    assert sweep.tick() is not None


def test_every_bucket_is_swept(bench, sweep):
    claims = [bench.running(f"r{number}", thread=f"t{number}") for number in range(60)]
    assert len({claim.key[:2] for claim in claims}) > len(BUCKETS) // 2
    for claim in claims:
        make_late(bench, claim.key)
    assert sweep.tick().ended == 60


def test_after_a_restart_no_lease_is_judged_for_one_lease(bench, enqueued):
    claim = bench.running()
    make_late(bench, claim.key)
    server = keys.prefix(claim.key[:2]) + "server"
    bench.store.client.hset(server, mapping={"run_id": "another", "checked_at": 0})
    assert bench.store.runs.survey(claim.key[:2], hint_seconds=2, patience_seconds=60).late == ()
    assert bench.store.runs.survey(claim.key[:2], hint_seconds=2, patience_seconds=0).late == (claim.key,)
