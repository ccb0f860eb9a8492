"""A cancel ends exactly the run that it names, queued or running, whatever kind of agent it is."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import wait_for
from tests.journeys.invariants import check_invariants
from tests.journeys.stack import Stack, elapsed

CANCELLED = {"type": "cancelled"}

STOPPED = {200, 202}
"""202 when the run was told, 200 when its outcome was recorded before the answer left."""


def test_a_run_that_waits_for_its_turn_ends_at_once_and_the_next_one_gets_it(stack: Stack):
    front = stack.submit("waits", seconds=30)
    waiting = stack.submit("waits", thread_id=front.thread_id)
    behind = stack.submit("counts", thread_id=front.thread_id)
    assert waiting.cancel().status_code == 200
    assert waiting.live.finish(2)["outcome"] == CANCELLED
    assert front.running().record()["status"] == "running"
    front.cancel()
    assert behind.live.finish()["outcome"] == {"type": "success"}
    assert waiting.effects() == []
    for run in (front, waiting, behind):
        check_invariants(stack, run)


@pytest.mark.parametrize(
    ("agent", "within"),
    [
        ("waits", 1.0),
        ("never_asks", 1.0),
        ("says_nothing", 3.0),
        ("sync_on_cancel", 1.0),
        ("sync_emits", 1.0),
        ("async_generator", 3.0),
        ("sync_generator", 1.0),
    ],
)
def test_a_running_agent_of_each_kind_is_stopped_and_closed_in_order(stack: Stack, agent: str, within: float):
    run = stack.submit(agent)
    run.live.until(lambda stream: len(stream.items) > 2)
    begun = time.monotonic()
    assert run.cancel(reason="changed my mind").status_code in STOPPED
    assert run.live.finish()["outcome"] == CANCELLED
    assert elapsed(begun) < within + 0.5
    record = run.recorded()
    assert record["cancel_reason"] == "changed my mind"
    assert record["cancel_requested_at"] <= record["finished_at"]
    check_invariants(stack, run)
    assert "END" not in run.effects()


def test_a_cancel_that_waits_answers_with_the_recorded_outcome(stack: Stack):
    run = stack.submit("waits")
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    answer = run.cancel(wait=5)
    assert answer.status_code == 200
    assert answer.json()["status"] == "cancelled"
    check_invariants(stack, run)


def test_twenty_cancels_at_once_have_one_effect(stack: Stack):
    run = stack.submit("never_asks")
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    with ThreadPoolExecutor(20) as pool:
        codes = list(pool.map(lambda _: run.cancel().status_code, range(20)))
    assert set(codes) <= {*STOPPED, 409}
    assert STOPPED & set(codes)
    assert run.live.finish()["outcome"] == CANCELLED
    check_invariants(stack, run)


@pytest.mark.parametrize("delay", [0.0, 0.002, 0.01, 0.05])
def test_a_cancel_right_after_the_start_wins(stack: Stack, delay: float):
    run = stack.submit("waits")
    begun = time.monotonic()
    wait_for(lambda: elapsed(begun) >= delay, pause=0.001)
    assert run.cancel().status_code in STOPPED
    assert run.live.finish(3)["outcome"] == CANCELLED
    check_invariants(stack, run)


def test_the_neighbour_of_a_cancelled_run_goes_on(stack: Stack):
    neighbour = stack.submit("counts", deltas=20, pause=0.05)
    run = stack.submit("waits")
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    run.cancel()
    assert neighbour.live.finish()["outcome"] == {"type": "success"}
    check_invariants(stack, run)
    check_invariants(stack, neighbour)
