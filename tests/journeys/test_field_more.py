"""More field reports: cancels that race their submit, deadlines in pools, a Redis that dies with a queue."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import wait_for
from tests.journeys.invariants import check_invariants
from tests.journeys.stack import Run, Stack

RACES = 25


def race(run: Run, seconds: float) -> tuple[int, int]:
    """Submits, and cancels so many seconds after the submit was sent; the status of both answers."""
    with ThreadPoolExecutor(1) as pool:
        submitted = pool.submit(
            run.stack.request,
            "POST",
            f"/agents/{run.agent}",
            body=run.body,
            headers={"Prefer": "respond-async"},
        )
        threading.Event().wait(seconds)
        cancelled = run.cancel()
        return submitted.result().status_code, cancelled.status_code


@pytest.mark.parametrize("seconds", [0.001, 0.05, 0.5])
def test_a_cancel_that_was_accepted_wins_however_soon_it_came(field: Stack, seconds: float):
    runs = [field.prepare("waits", seconds=0.9) for _ in range(RACES)]
    with ThreadPoolExecutor(RACES) as pool:
        answers = list(pool.map(lambda run: race(run, seconds), runs))
    for run, (submitted, cancelled) in zip(runs, answers, strict=True):
        assert submitted == 202
        # 200: ended while queued. 404: the run was not known yet. 409: it had ended by itself.
        assert cancelled in {200, 202, 404, 409}
        assert run.recorded()["status"] == ("cancelled" if cancelled in {200, 202} else "succeeded")
        assert ("END" in run.effects()) == (cancelled not in {200, 202})
    for run in runs[:3]:
        check_invariants(field, run)


@pytest.mark.parametrize("pool", ["prefork"])
def test_a_deadline_ends_whatever_an_agent_does(make_stack: Callable[..., Stack], pool: str):
    stack = make_stack(
        OUTLAST_AGENTS="agents_under_test:AGENTS,agents_of_the_field:AGENTS", OUTLAST_RUN_DEADLINE_SECONDS="1"
    )
    stack.start(pool=pool, concurrency=4)
    runs = [
        stack.submit("waits"),
        stack.submit("sync_on_cancel"),
        stack.submit("swallows"),
        stack.submit("sync_counts", deltas=2, pause=30),
    ]
    for run in runs:
        terminal = run.live.finish(10)
        assert (terminal["type"], terminal["code"]) == ("RUN_ERROR", "deadline_exceeded")
        check_invariants(stack, run)
    wait_for(lambda: stack.submit("counts", deltas=1).live.finish(5)["type"] == "RUN_FINISHED", 10)


def test_a_redis_killed_with_a_queue_loses_none_of_it(make_stack: Callable[..., Stack]):
    stack = make_stack(OUTLAST_LEASE_SECONDS="5")
    stack.start(concurrency=1)
    running = stack.submit("counts", deltas=40, pause=0.05)
    running.live.until(lambda stream: len(stream.deltas) >= 5)
    queued = [stack.submit("counts", deltas=3) for _ in range(3)]
    stack.server.kill()
    stack.server.restart()
    for run in (running, *queued):
        assert run.live.finish(30)["outcome"] == {"type": "success"}
        check_invariants(stack, run)


def test_nothing_keeps_a_copy_of_a_hint_that_could_be_handed_out_again(field: Stack):
    run = field.submit("waits", seconds=0.5)
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    assert list(field.store.client.scan_iter("unacked*")) == []
    assert run.live.finish()["outcome"] == {"type": "success"}
    assert run.effects() == ["START", "END"]
