"""Bulk cancels: a frozen list, worked off once, by whoever is there."""

from __future__ import annotations

import threading

import pytest

from shared.store import keys
from shared.store.search import Filter
from shared.store.sweep import Sweep

ECHO = Filter(agent="echo")


def create(bench, count: int, *, running: int = 0):
    for number in range(count):
        bench.accept(f"r{number}", thread=f"t{number}")
    for number in range(running):
        bench.claim(bench.key(f"r{number}", thread=f"t{number}"))
    found = bench.store.search.live_matches(ECHO, 1000)
    return bench.store.bulk.create(ECHO, list(found.keys), matched=len(found.keys), by="olga", reason="flood")


def test_each_run_is_asked_and_told_apart(bench):
    bulk = create(bench, 6, running=2)
    bench.finish(bench.running("r9", thread="t9"), 2)
    bench.store.client.rpush(keys.bulk_todo(bulk.bulk_id), bench.key("r9", thread="t9"), bench.key("never"))
    assert bench.store.bulk.work(bulk.bulk_id, lambda key: None) == 8
    done = bench.store.bulk.get(bulk.bulk_id)
    assert done.state == "done"
    assert done.counts == {"asked": 2, "cancelled": 4, "already_finished": 1, "refused": 1, "failed": 0}
    record = bench.store.runs.get(bench.key("r0", thread="t0"))
    assert (record.texts["cancel_by"], record.texts["cancel_cause"]) == ("olga", "operator")
    assert record.texts["cancel_reason"] == "flood"


def test_what_came_after_the_freeze_is_left_alone(bench):
    bulk = create(bench, 3)
    bench.accept("later", thread="t-later")
    bench.store.bulk.work(bulk.bulk_id, lambda key: None)
    assert bench.store.runs.get(bench.key("later", thread="t-later")).status == "queued"


def test_a_stopped_one_asks_no_further_runs(bench):
    bulk = create(bench, 5)
    assert bench.store.bulk.work(bulk.bulk_id, lambda key: None, most=2) == 2
    assert bench.store.bulk.stop(bulk.bulk_id).state == "stopped"
    assert bench.store.bulk.work(bulk.bulk_id, lambda key: None) == 0
    assert sum(bench.store.bulk.get(bulk.bulk_id).counts.values()) == 2


def test_the_sweep_goes_on_with_what_a_process_left_behind(bench):
    bulk, store = create(bench, 5), bench.store
    store.bulk.work(bulk.bulk_id, lambda key: None, most=2)
    Sweep(store.runs, store.log, enqueue=lambda key: None, queue_depth=lambda: 0, patient=False).tick()
    done = store.bulk.get(bulk.bulk_id)
    assert (done.state, done.counts["cancelled"]) == ("done", 5)


def test_a_run_asked_again_keeps_its_first_answer(bench):
    bulk = create(bench, 2)
    first = bench.store.client.lindex(keys.bulk_todo(bulk.bulk_id), 0)
    bench.store.bulk.work(bulk.bulk_id, lambda key: None, most=1)
    bench.store.client.lpush(keys.bulk_todo(bulk.bulk_id), first)
    bench.store.bulk.work(bulk.bulk_id, lambda key: None)
    assert bench.store.bulk.get(bulk.bulk_id).counts["cancelled"] == 2


def test_two_processes_do_not_work_on_the_same_one(bench):
    bulk = create(bench, 40)
    done: list[int] = []
    threads = [
        threading.Thread(target=lambda: done.append(bench.store.bulk.work(bulk.bulk_id, lambda key: None)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(done) == 40


def test_the_next_run_of_a_thread_is_enqueued(bench):
    bench.accept("first")
    bench.accept("second")
    bulk = bench.store.bulk.create(ECHO, [bench.key("first")], matched=1, by="olga")
    sent: list[str] = []
    bench.store.bulk.work(bulk.bulk_id, sent.append)
    assert sent == [bench.key("second")]


def test_recent_ones_are_listed_newest_first_and_unknown_is_none(bench):
    made = [create(bench, 1).bulk_id for _ in range(2)]
    assert {bulk.bulk_id for bulk in bench.store.bulk.recent()} == set(made)
    assert bench.store.bulk.get("nothing") is None
    assert bench.store.bulk.stop("nothing") is None


@pytest.mark.parametrize("statuses", [{"failed"}, {"succeeded", "cancelled"}])
def test_a_filter_for_ended_runs_matches_no_live_one(bench, statuses: set[str]):
    bench.accept()
    assert bench.store.search.live_matches(Filter(statuses=frozenset(statuses)), 10).keys == ()
