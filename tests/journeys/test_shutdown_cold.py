"""A worker that must stop now: Celery's cold shutdown ends the drain time, and every run is recorded."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.conftest import wait_for
from tests.journeys.invariants import check_invariants
from tests.journeys.processes import Process
from tests.journeys.stack import Stack, elapsed

LONG_DRAIN = "30"
STOPPED_WITHIN = 2.0 + 3.0


def started(make_stack: Callable[..., Stack], pool: str) -> tuple[Stack, Process]:
    stack = make_stack(OUTLAST_DRAIN_SECONDS=LONG_DRAIN)
    return stack, stack.start(pool=pool, concurrency=1 if pool == "solo" else 2)


def is_draining(stack: Stack) -> bool:
    return any(beat.facts.get("draining") for beat in stack.store.workers.alive())


@pytest.mark.parametrize("pool", ["threads", "prefork", "solo"])
def test_a_quit_records_what_runs_and_leaves_what_waits_to_the_next_worker(
    make_stack: Callable[..., Stack], pool: str
):
    stack, worker = started(make_stack, pool)
    running = [stack.submit(agent) for agent in (["waits"] if pool == "solo" else ["waits", "says_nothing"])]
    for run in running:
        run.live.until_type("TEXT_MESSAGE_CONTENT")
    queued = stack.submit("counts", deltas=2)
    begun = time.monotonic()
    worker.signal(signal.SIGQUIT)
    for run in running:
        terminal = run.live.finish(STOPPED_WITHIN)
        assert (terminal["type"], terminal["code"]) == ("RUN_ERROR", "worker_shutdown")
    worker.wait(STOPPED_WITHIN)
    assert elapsed(begun) < STOPPED_WITHIN
    assert worker.children() == []
    assert queued.effects() == []
    stack.start_worker()
    assert queued.live.finish(10)["outcome"] == {"type": "success"}
    for run in (*running, queued):
        check_invariants(stack, run)


def test_a_drain_goes_on_until_a_second_interrupt_and_hears_cancels(make_stack: Callable[..., Stack]):
    stack, worker = started(make_stack, "prefork")
    run, cancelled = stack.submit("waits"), stack.submit("waits")
    for each in (run, cancelled):
        each.live.until_type("TEXT_MESSAGE_CONTENT")
    # A terminal's Ctrl-C goes to the whole group.
    worker.signal_group(signal.SIGINT)
    wait_for(lambda: is_draining(stack), 5)
    assert cancelled.cancel(wait=5).json()["status"] == "cancelled"
    assert run.record()["status"] == "running"
    begun = time.monotonic()
    worker.signal_group(signal.SIGINT)
    assert run.live.finish(STOPPED_WITHIN)["code"] == "worker_shutdown"
    worker.wait(STOPPED_WITHIN)
    assert elapsed(begun) < STOPPED_WITHIN
    for each in (run, cancelled):
        check_invariants(stack, each)


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_hangup_drains_and_starts_the_worker_anew_in_place(make_stack: Callable[..., Stack], pool: str):
    stack = make_stack(OUTLAST_DRAIN_SECONDS="1")
    worker = stack.start(pool=pool, concurrency=3)
    short = stack.submit("counts", deltas=5, pause=0.1)
    long, deaf = stack.submit("waits"), stack.submit("sync_counts", deltas=2, pause=20)
    for run in (short, long, deaf):
        run.live.until_type("TEXT_MESSAGE_CONTENT")
    before = {beat.facts["started_at"] for beat in stack.store.workers.alive()}
    worker.signal(signal.SIGHUP)
    assert short.live.finish(5)["outcome"] == {"type": "success"}
    for run in (long, deaf):
        assert run.live.finish(1 + STOPPED_WITHIN)["code"] == "worker_shutdown"
    wait_for(lambda: {beat.facts["started_at"] for beat in stack.store.workers.alive()} - before, 20)
    assert worker.alive
    assert stack.submit("counts", deltas=2).live.finish(10)["outcome"] == {"type": "success"}
    for run in (short, long, deaf):
        check_invariants(stack, run)


@pytest.mark.parametrize("deaf", [False, True])
def test_a_worker_told_to_stop_after_a_hangup_does_not_start_anew(
    make_stack: Callable[..., Stack], deaf: bool
):
    stack = make_stack(OUTLAST_DRAIN_SECONDS="4")
    worker = stack.start(concurrency=3)
    run = stack.submit("sync_counts", deltas=2, pause=20) if deaf else stack.submit("waits")
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    worker.signal(signal.SIGHUP)
    wait_for(lambda: is_draining(stack), 4)
    worker.signal(signal.SIGTERM)
    assert run.live.finish(4 + STOPPED_WITHIN)["code"] == "worker_shutdown"
    assert worker.wait(STOPPED_WITHIN) == 0
    check_invariants(stack, run)
