"""Numbers: counted once, by the scripts, summed over the buckets at reading."""

from __future__ import annotations

import re
from pathlib import Path

from shared.runs.outcome import FailureCode, Outcome
from shared.store import keys, stats
from shared.store.stats import BOUNDS_MS, Histogram


def test_the_script_has_the_same_bounds():
    text = (Path(stats.__file__).parent / "lua" / "_tally.lua").read_text()
    listed = re.search(r"bounds = \{([^}]*)\}", text)
    assert listed
    assert tuple(map(int, listed[1].split(","))) == BOUNDS_MS


def test_a_run_is_counted_at_each_of_its_steps(bench):
    claim = bench.running()
    bench.store.log.append(bench.batch(claim, 2, ["a"]))
    bench.store.log.append(bench.batch(claim, 3, ["b"]))
    bench.store.runs.request_cancel(claim.key, by="ann")
    bench.finish(claim, 4, Outcome.cancelled())
    total = bench.store.stats.overview(2).total
    assert total.accepted == 1
    assert total.endings == {("echo", "cancelled", ""): 1}
    assert {name: found.count for name, found in total.histograms.items()} == dict.fromkeys(
        ("queue_wait", "first_event", "duration", "cancel_latency"), 1
    )


def test_repeated_steps_are_counted_once(bench):
    claim = bench.running()
    bench.claim(claim.key, claim.execution)
    batch = bench.batch(claim, 2, ["a"])
    for _ in range(2):
        bench.store.log.append(batch)
    for _ in range(2):
        bench.finish(claim, 3)
    total = bench.store.stats.totals()
    assert (total.accepted, total.endings) == (1, {("echo", "succeeded", ""): 1})
    assert {found.count for name, found in total.histograms.items() if name != "cancel_latency"} == {1}


def test_a_run_whose_first_events_come_with_its_ending_has_a_first_event(bench):
    bench.finish(bench.running(), 2)
    assert bench.store.stats.totals().histograms["first_event"].count == 1


def test_a_run_that_never_ran_has_no_duration(bench):
    bench.accept()
    bench.store.runs.terminate(bench.key(), by="olga")
    fence = bench.store.runs.fence(bench.key(), ending="cancelled", guard="any")
    bench.finish(bench_claim(bench, fence), 2, Outcome.cancelled())
    found = bench.store.stats.totals().histograms
    assert (found["duration"].count, found["first_event"].count, found["cancel_latency"].count) == (0, 0, 1)


def bench_claim(bench, fence):
    """The fence in the shape that the bench finishes with."""
    from shared.runs.identity import RunIdentity
    from shared.store.answers import Claim

    return Claim(fence.key, fence.execution, RunIdentity("ann", "t1", "r1"), "echo", 0, b"", 1, 0)


def test_codes_are_counted_apart_and_buckets_are_summed(bench):
    for number in range(12):
        claim = bench.running(f"r{number}", thread=f"t{number}")
        bench.finish(claim, 2, Outcome.failed(FailureCode.TRANSPORT_TIMEOUT))
    assert bench.store.stats.overview(2).total.endings == {("echo", "failed", "transport_timeout"): 12}


def test_minutes_that_are_over_are_read_once_and_numbers_expire(bench):
    store = bench.store
    minute = int(store.client.time()[0]) // 60
    old = keys.stats("b0", minute - 5)
    store.client.hset(old, "accepted", 3)
    assert store.stats.overview(10).total.accepted == 3
    store.client.hset(old, "accepted", 4)
    assert store.stats.overview(10).total.accepted == 3
    bench.accept()
    assert (
        store.client.ttl(keys.stats(bench.key()[:2], minute)) > 100_000
        or store.client.ttl(keys.stats(bench.key()[:2], minute + 1)) > 100_000
    )


def test_a_slow_observation_falls_into_the_right_slot(bench):
    bench.accept()
    bench.long_known(bench.key())
    bench.store.client.hset(keys.record(bench.key()), "ready_at", bench.store.runs.now_ms() - 7000)
    bench.claim(bench.key())
    found = bench.store.stats.totals().histograms["queue_wait"]
    assert found.counts[BOUNDS_MS.index(10_000)] == 1
    assert 7000 <= found.sum_ms < 8000


def test_percentiles_lie_within_their_slot():
    found = Histogram()
    found.counts[3], found.counts[8] = 90, 10
    assert 25 <= found.quantile_ms(0.5) <= 50
    assert 1000 <= found.quantile_ms(0.95) <= 2500
    assert Histogram().quantile_ms(0.5) is None


def test_the_sweep_notes_depth_age_and_its_own_passes(bench):
    from shared.store.sweep import Sweep

    store = bench.store
    bench.accept()
    store.client.hset(keys.record(bench.key()), "ready_at", store.runs.now_ms() - 5000)
    sweep = Sweep(store.runs, store.log, enqueue=lambda key: None, queue_depth=lambda: 0, patient=False)
    sweep.tick()
    noted = [minute for minute in store.stats.overview(2).minutes if minute.depth is not None]
    assert noted[-1].depth == 1
    assert 5000 <= noted[-1].oldest_ms < 15_000
    assert store.stats.sweeps()["passes"] == 1
