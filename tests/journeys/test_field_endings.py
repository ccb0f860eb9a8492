"""Runs end when Redis is full, when a frame cannot be read, and whatever text an agent is given."""

from __future__ import annotations

import signal
from collections.abc import Callable

from shared.protocol import sse
from tests.conftest import wait_for
from tests.journeys.invariants import check_invariants
from tests.journeys.stack import LOST_WITHIN, Stack


def test_a_run_with_unwritten_events_ends_although_redis_is_full(field: Stack):
    run = field.submit("never_asks")
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    client = field.store.client
    client.config_set("maxmemory", 1)
    try:
        wait_for(lambda: "writer.store_unavailable" in field.processes[0].log.read_text(), 5)
        assert run.cancel(wait=8).json()["status"] == "cancelled"
    finally:
        client.config_set("maxmemory", 0)
    check_invariants(field, run)


def test_a_killed_workers_run_ends_although_redis_is_full(make_stack: Callable[..., Stack]):
    stack = make_stack()
    worker = stack.start(concurrency=4)
    run = stack.submit("waits")
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    stack.store.client.config_set("maxmemory", 1)
    worker.signal_group(signal.SIGKILL)
    assert run.live.finish(LOST_WITHIN + 3)["code"] == "worker_lost"


def test_blanks_do_not_hold_the_workers_lock(field: Stack):
    neighbour = field.submit("counts", deltas=40, pause=0.05)
    blanks = field.submit("echo", text=" " * 100_000)
    assert neighbour.live.finish(10).get("outcome") == {"type": "success"}
    assert blanks.live.finish(10).get("outcome") == {"type": "success"}


def test_a_frame_that_cannot_be_read_does_not_keep_a_run_from_ending(make_stack: Callable[..., Stack]):
    stack = make_stack()
    worker = stack.start(concurrency=4)
    run = stack.submit("waits")
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    log = f"outlast:{{{run.key[:2]}}}:log:{run.key}"
    stack.store.client.rpush(log, sse.frame(4, b'{"type":"CUSTOM","name":"n","value":' + b"9" * 5000 + b"}"))
    worker.signal_group(signal.SIGKILL)
    assert run.recorded(LOST_WITHIN + 5)["code"] == "worker_lost"
