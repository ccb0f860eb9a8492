"""Pause and drain: no run starts where none may, and everything goes on afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shared.runs.lifecycle import Status
from shared.settings import Settings
from shared.store.store import Store
from tests.worker.stage import accept, in_thread, process_with, record_of
from tests.worker.test_celery import Stage, stage

__all__ = ["stage"]


def test_a_paused_intake_grants_no_claim_and_leaves_the_run_queued(settings: Settings, store: Store):
    key = accept(store, "agent")
    store.controls.pause(by="olga")
    with process_with(settings, agent=lambda ctx: ctx.say("here")) as process:
        in_thread(process, key).join(5)
        assert record_of(store, key).status is Status.QUEUED
        store.controls.resume()
        in_thread(process, key).join(5)
    assert record_of(store, key).status is Status.SUCCEEDED


def test_what_came_while_paused_runs_after_the_pause(stage: Stage, eventually: Callable[..., Any]):
    stage.start()
    stage.store.controls.pause(by="olga")
    running = [stage.submit("pid") for _ in range(5)]
    eventually(lambda: stage.queue.depth() == 0, 10)
    assert {record_of(stage.store, key).status for key in running} == {Status.QUEUED}
    stage.store.controls.resume()
    for key in running:
        assert stage.ended(key, 10).status is Status.SUCCEEDED


POOLS = {"threads": (), "prefork": ("-P", "prefork", "-c", "2"), "solo": ("-P", "solo")}


@pytest.mark.parametrize("pool", POOLS)
def test_a_drained_worker_takes_no_runs_until_it_is_undrained(
    stage: Stage, eventually: Callable[..., Any], pool: str
):
    stage.start(*POOLS[pool])
    (beat,) = stage.store.workers.alive()
    assert stage.ended(stage.submit("pid")).status is Status.SUCCEEDED
    stage.store.controls.drain(beat.name, by="olga")
    eventually(lambda: stage.store.workers.alive()[0].facts["draining"], 8)
    key = stage.submit("pid")
    # The message stays in the queue for others; one under way may come back once.
    eventually(lambda: stage.queue.depth() == 1, 8)
    assert record_of(stage.store, key).status is Status.QUEUED
    stage.store.controls.undrain(beat.name)
    assert stage.ended(key, 10).status is Status.SUCCEEDED
    assert not stage.store.workers.alive()[0].facts["draining"]


def test_a_drained_worker_leaves_the_runs_to_another(stage: Stage, eventually: Callable[..., Any]):
    first = stage.start()
    (beat,) = stage.store.workers.alive()
    stage.store.controls.drain(beat.name, by="olga")
    eventually(lambda: stage.store.workers.alive()[0].facts["draining"], 8)
    running = [stage.submit("pid") for _ in range(3)]
    second = stage.start()
    for key in running:
        assert stage.ended(key, 10).pid == second.popen.pid
    assert first.popen.poll() is None
