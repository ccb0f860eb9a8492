"""Slots that agents hold without stopping: shown, and given back, or the worker gives itself up."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from shared.runs.lifecycle import Status
from shared.runs.record import RunRecord
from shared.settings import Settings
from shared.store.ending import end_fenced
from shared.store.store import Store
from tests.conftest import wait_for
from tests.worker.stage import accept, in_thread, process_with, record_of
from tests.worker.test_celery import Stage, stage
from tests.worker.test_terminate import listening, speaking, terminate
from worker.condition import complaint
from worker.context import RunContext

__all__ = ["stage"]


def facts(stage: Stage) -> dict[str, Any]:
    (beat,) = stage.store.workers.alive()
    return beat.facts


def deafened(stage: Stage, key: str) -> RunRecord:
    """The record once the agent has said its all and sleeps."""
    wait_for(lambda: speaking(stage.store, key), 20)
    return record_of(stage.store, key)


def force(stage: Stage, key: str) -> None:
    identity = record_of(stage.store, key).identity
    answer = stage.store.runs.terminate(key, by="olga")
    assert answer.fence is not None
    end_fenced(stage.store.runs, stage.store.log, answer.fence, identity)


def test_a_deaf_pool_child_is_killed_and_its_neighbour_is_not(stage: Stage, eventually: Callable[..., Any]):
    worker = stage.start("-P", "prefork", "-c", "2", OUTLAST_LEASE_SECONDS="60")
    deaf, neighbour = stage.submit("deaf"), stage.submit("short", forwardedProps={"seconds": 4})
    pid, other = deafened(stage, deaf).pid, deafened(stage, neighbour).pid
    assert pid is not None
    assert other is not None
    began = time.monotonic()
    force(stage, deaf)
    assert stage.ended(deaf, 1).status is Status.CANCELLED
    eventually(lambda: not _lives(pid), 6)
    assert time.monotonic() - began >= 0.9
    assert _lives(other)
    assert stage.ended(neighbour).status is Status.SUCCEEDED
    assert stage.ended(stage.submit("pid")).status is Status.SUCCEEDED
    assert record_of(stage.store, deaf).status is Status.CANCELLED
    assert worker.popen.poll() is None


def test_a_pool_child_that_stops_by_itself_is_not_killed(stage: Stage, eventually: Callable[..., Any]):
    stage.start("-P", "prefork", "-c", "1", OUTLAST_LEASE_SECONDS="60")
    key = stage.submit("waits")
    pid = deafened(stage, key).pid
    force(stage, key)
    after = [stage.ended(stage.submit("short", forwardedProps={"seconds": 0.5})).pid for _ in range(4)]
    assert after == [pid] * 4


def test_a_deaf_pool_child_past_its_deadline_is_killed_too(stage: Stage, eventually: Callable[..., Any]):
    stage.start("-P", "prefork", "-c", "1", OUTLAST_RUN_DEADLINE_SECONDS="1")
    key = stage.submit("deaf")
    pid = deafened(stage, key).pid
    assert stage.ended(key, 6).texts["code"] == "deadline_exceeded"
    assert stage.ended(stage.submit("pid"), 20).pid != pid


def test_a_worker_with_too_many_deaf_agents_exits_with_1(stage: Stage, eventually: Callable[..., Any]):
    worker = stage.start("-c", "4", OUTLAST_DRAIN_SECONDS="20")
    first = stage.submit("deaf")
    deafened(stage, first)
    force(stage, first)
    eventually(lambda: facts(stage)["abandoned"] == 1, 8)
    assert stage.ended(stage.submit("pid")).status is Status.SUCCEEDED
    goes_on = stage.submit("short", forwardedProps={"seconds": 3})
    second = stage.submit("deaf")
    deafened(stage, goes_on)
    deafened(stage, second)
    force(stage, second)
    # What runs may finish; the deaf ones are not waited for.
    assert worker.popen.wait(12) == 1
    assert record_of(stage.store, goes_on).status is Status.SUCCEEDED
    assert stage.store.workers.alive() == []


def test_a_worker_whose_loop_is_blocked_exits_with_1(stage: Stage, eventually: Callable[..., Any]):
    worker = stage.start(OUTLAST_LOOP_BLOCKED_SECONDS="1.5", OUTLAST_DRAIN_SECONDS="1")
    key = stage.submit("blocks_the_loop")
    deafened(stage, key)
    assert worker.popen.wait(12) == 1
    assert stage.ended(key, 1).texts["code"] == "worker_shutdown"


def test_slots_come_back_when_the_deaf_agent_returns(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    import threading

    release = threading.Event()

    def deaf(ctx: RunContext) -> None:
        ctx.say("deaf")
        release.wait(30)

    run_keys = [accept(store, "deaf") for _ in range(3)]
    with process_with(settings.model_copy(update={"lease_seconds": 60.0}), deaf=deaf) as process:
        eventually(lambda: listening(store, process))
        threads = [in_thread(process, key) for key in run_keys]
        eventually(lambda: all(speaking(store, key) for key in run_keys))
        for key in run_keys:
            terminate(store, key)
        eventually(lambda: process.pulse.abandoned == 3, 5)
        assert complaint(process, settings, 12) is None
        assert complaint(process, settings, 11) == "3 of 11 slots are held by agents that do not stop"
        release.set()
        for thread in threads:
            thread.join(5)
        assert process.pulse.abandoned == 0
        assert complaint(process, settings, 1) is None


def test_a_blocked_loop_is_noticed_and_forgiven(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    limits = settings.model_copy(update={"loop_blocked_seconds": 0.3})
    with process_with(settings) as process:
        assert complaint(process, limits, 1) is None
        process.loop.call_soon_threadsafe(time.sleep, 1.5)
        complained = eventually(lambda: complaint(process, limits, 1), 3)
        assert complained.startswith("the event loop has been blocked for")
        eventually(lambda: complaint(process, limits, 1) is None, 5)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
