"""A worker that dies leaves no run open: the sweep or its parent records worker_lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.journeys.invariants import check_invariants
from tests.journeys.stack import LOST_WITHIN, Stack, elapsed


def test_a_killed_pool_child_costs_its_own_run_only(prefork: Stack):
    neighbour = prefork.submit("counts", deltas=60, pause=0.05)
    hit = prefork.submit("waits")
    hit.live.until_type("TEXT_MESSAGE_CONTENT")
    neighbour.live.until_type("TEXT_MESSAGE_CONTENT")
    assert hit.pids() != neighbour.pids()
    begun = time.monotonic()
    os.kill(hit.pids()[0], signal.SIGKILL)
    terminal = hit.live.finish(5)
    assert elapsed(begun) < 5
    assert (terminal["type"], terminal["code"]) == ("RUN_ERROR", "worker_lost")
    check_invariants(prefork, hit)
    following = prefork.submit("counts", thread_id=hit.thread_id, deltas=3)
    assert following.live.finish(5)["outcome"] == {"type": "success"}
    assert neighbour.live.finish()["outcome"] == {"type": "success"}
    check_invariants(prefork, following)
    check_invariants(prefork, neighbour)


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_killed_host_is_noticed_though_no_worker_is_left(make_stack: Callable[..., Stack], pool: str):
    stack = make_stack()
    worker = stack.start(pool=pool, concurrency=4)
    run = stack.submit("waits")
    waiting = stack.submit("counts", thread_id=run.thread_id, deltas=2)
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    reader = run.watch(2)
    begun = time.monotonic()
    worker.signal_group(signal.SIGKILL)
    terminal = run.live.finish(LOST_WITHIN)
    assert (terminal["type"], terminal["code"]) == ("RUN_ERROR", "worker_lost")
    assert elapsed(begun) < LOST_WITHIN
    assert reader.finish(2) == terminal
    check_invariants(stack, run)
    accepted = stack.submit("counts", thread_id=run.thread_id, deltas=2)
    stack.start_worker(pool=pool, concurrency=4)
    for each in (waiting, accepted):
        assert each.live.finish(10)["outcome"] == {"type": "success"}
        check_invariants(stack, each)


def test_a_stalled_worker_that_wakes_up_changes_nothing_any_more(make_stack: Callable[..., Stack]):
    stack = make_stack()
    worker = stack.start(concurrency=4)
    run = stack.submit("never_asks")
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    worker.signal(signal.SIGSTOP)
    assert run.live.finish(LOST_WITHIN)["code"] == "worker_lost"
    before = run.watch(0)
    before.finish()
    worker.signal(signal.SIGCONT)
    fresh = stack.submit("counts", deltas=3)
    assert fresh.live.finish(10)["outcome"] == {"type": "success"}
    check_invariants(stack, run)
    check_invariants(stack, fresh)
