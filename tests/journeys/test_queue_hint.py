"""The queue's message is only a hint: a run waits without a worker; lost or doubled, it is executed once."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.local.server import EmbeddedServer
from shared.queue import Queue
from shared.settings import Settings
from tests.journeys.invariants import check_invariants
from tests.journeys.stack import Run, Stack, elapsed

ENQUEUED_AGAIN_WITHIN = 2 + 0.3 + 4


@dataclass
class Waiting:
    """Runs that were accepted while no worker was there, and what was done to them."""

    stack: Stack
    cancelled: Run
    cancel_seconds: float
    lost: Run
    told: Run
    worker_ready: float


@pytest.fixture(scope="module")
def waiting() -> Iterator[Waiting]:
    """One run cancelled while queued, one whose message was lost, one left alone; then a worker comes."""
    with tempfile.TemporaryDirectory(prefix="outlast-journeys-") as folder:
        server = EmbeddedServer(Path(folder) / "redis")
        server.start()
        stack = Stack(Path(folder), server)
        try:
            stack.start_web()
            stack.announce("counts")
            lost = stack.submit("counts", deltas=3)
            assert stack.store.client.delete("outlast") == 1
            cancelled, told = stack.submit("counts", deltas=3), stack.submit("counts", deltas=3)
            assert cancelled.live.until_type("RUN_STARTED").types == ["RUN_STARTED"]
            begun = time.monotonic()
            answer = cancelled.cancel()
            assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
            cancelled.live.finish(5)
            seconds = elapsed(begun)
            stack.start_worker()
            yield Waiting(stack, cancelled, seconds, lost, told, time.monotonic())
        finally:
            stack.close()
            server.stop()


def test_a_queued_run_ends_cancelled_at_once_and_never_starts(waiting: Waiting):
    assert waiting.cancel_seconds < 2
    assert waiting.told.live.finish()["outcome"] == {"type": "success"}
    terminal = check_invariants(waiting.stack, waiting.cancelled)
    assert terminal["outcome"] == {"type": "cancelled"}
    assert waiting.cancelled.live.types == ["RUN_STARTED", "RUN_FINISHED"]
    assert waiting.cancelled.effects() == []


def test_a_run_that_waited_for_a_worker_is_served(waiting: Waiting):
    assert waiting.told.live.finish()["outcome"] == {"type": "success"}
    check_invariants(waiting.stack, waiting.told)


def test_a_lost_message_is_sent_again_within_seconds(waiting: Waiting):
    assert waiting.lost.live.finish(ENQUEUED_AGAIN_WITHIN)["outcome"] == {"type": "success"}
    assert waiting.lost.live.arrived[-1] - waiting.worker_ready < ENQUEUED_AGAIN_WITHIN
    check_invariants(waiting.stack, waiting.lost)


def test_a_message_that_comes_five_times_starts_once(stack: Stack):
    run = stack.submit("counts", deltas=10, pause=0.05)
    queue = Queue(Settings(redis_url=stack.server.url), stack.store)
    for _ in range(5):
        queue.enqueue(run.key)
    assert run.live.finish()["outcome"] == {"type": "success"}
    queue.enqueue(run.key)
    stack.submit("counts", deltas=1).live.finish()
    assert run.effects() == ["START", "END"]
    check_invariants(stack, run)
