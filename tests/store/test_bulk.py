"""Bulk cancels: a frozen list, worked off once, by whoever is there."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.store import keys
from shared.store.audit import Entry
from shared.store.bulk import BulkCancels
from shared.store.connection import Client
from shared.store.errors import StoreError
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


class Deaf:
    """A client whose transactions are applied, while the answers of the next ``lost`` of them are lost."""

    def __init__(self, client: Client, lost: int) -> None:
        self._client, self.lost = client, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def pipeline(self, transaction: bool) -> Any:
        made = self._client.pipeline(transaction=transaction)
        execute = made.execute

        def answered() -> Any:
            found = execute()
            if transaction and self.lost:
                self.lost -= 1
                raise RedisTimeoutError
            return found

        made.execute = answered
        return made


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_answer_does_not_cost_the_runs_own_entry(bench, lost: int):
    bulk, client = create(bench, 1), bench.store.client
    key = client.lindex(keys.bulk_todo(bulk.bulk_id), 0).decode()
    cancels = BulkCancels(Deaf(client, lost), bench.store.runs, bench.store.log)
    with contextlib.suppress(StoreError):
        cancels.work(bulk.bulk_id, lambda key: None)
    bench.store.bulk.work(bulk.bulk_id, lambda key: None)
    told = [(entry["action"], entry["result"]) for entry in bench.store.bulk.audit.of_run(key)]
    assert told == [("bulk_cancel", "cancelled")]
    assert bench.store.bulk.get(bulk.bulk_id).counts["cancelled"] == 1


def test_an_entry_that_cannot_be_written_leaves_the_run_to_be_asked_again(bench, monkeypatch):
    bulk = create(bench, 1)
    key = bench.store.client.lindex(keys.bulk_todo(bulk.bulk_id), 0).decode()

    def fails(entry: Entry) -> None:
        raise StoreError

    with monkeypatch.context() as broken:
        broken.setattr(bench.store.bulk.audit, "write_to_run", fails)
        with pytest.raises(StoreError):
            bench.store.bulk.work(bulk.bulk_id, lambda key: None)
    assert bench.store.bulk.work(bulk.bulk_id, lambda key: None) == 1
    assert [entry["action"] for entry in bench.store.bulk.audit.of_run(key)] == ["bulk_cancel"]


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


def test_a_text_that_is_no_run_key_holds_up_nobody(bench):
    bulk = create(bench, 1)
    bench.store.client.lpush(keys.bulk_todo(bulk.bulk_id), "no-key")
    assert bench.store.bulk.go_on(lambda key: None) == 2
    done = bench.store.bulk.get(bulk.bulk_id)
    assert (done.state, done.counts["failed"], done.counts["cancelled"]) == ("done", 1, 1)
