"""A deploy: workers drain, web processes let go, and clients go on where they were."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.journeys.invariants import check_invariants
from tests.journeys.stack import Stack, elapsed

DRAIN = 2.0
EXIT_SLACK = 2.0 + 2.5


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_worker_told_to_stop_drains_short_runs_and_records_long_ones(
    make_stack: Callable[..., Stack], pool: str
):
    stack = make_stack()
    worker = stack.start(pool=pool, concurrency=4)
    short = stack.submit("counts", deltas=10, pause=0.1)
    long = stack.submit("waits")
    for run in (short, long):
        run.live.until_type("TEXT_MESSAGE_CONTENT")
    begun = time.monotonic()
    # A shell, systemd or Ctrl-C tells the whole group.
    (worker.signal_group if pool == "prefork" else worker.signal)(signal.SIGTERM)
    assert short.live.finish(DRAIN)["outcome"] == {"type": "success"}
    late = stack.submit("counts", deltas=2)
    terminal = long.live.finish(DRAIN + EXIT_SLACK)
    assert (terminal["type"], terminal["code"]) == ("RUN_ERROR", "worker_shutdown")
    worker.wait(DRAIN + EXIT_SLACK)
    assert elapsed(begun) < DRAIN + EXIT_SLACK
    assert worker.children() == []
    stack.start_worker(pool=pool, concurrency=4)
    assert late.live.finish()["outcome"] == {"type": "success"}
    for run in (short, long, late):
        check_invariants(stack, run)


def test_an_idle_worker_stops_at_once(make_stack: Callable[..., Stack]):
    stack = make_stack(OUTLAST_DRAIN_SECONDS="60")
    worker = stack.start_worker()
    worker.signal(signal.SIGTERM)
    assert worker.wait(30) == 0
    assert stack.store.workers.alive() == []


@pytest.mark.parametrize("kind", ["flask", "gunicorn"])
def test_streams_end_at_once_and_go_on_at_the_next_web_process(make_stack: Callable[..., Stack], kind: str):
    stack = make_stack()
    stack.start(kind, concurrency=4)
    web = stack.web
    assert web is not None
    run = stack.submit("counts", deltas=100, pause=0.05)
    streams = [run.live, run.watch(), run.watch(3)]
    for stream in streams:
        stream.until(lambda each: len(each.deltas) >= 5)
    begun = time.monotonic()
    web.signal(signal.SIGTERM)
    for stream in streams:
        assert stream.ended.wait(3), "a stream outlives its web process"
        assert "RUN_ERROR" not in stream.types
    web.wait(5)
    assert elapsed(begun) < 5
    stack.start_web(kind)
    for stream in streams:
        rest = run.watch(stream.seqs[-1])
        assert rest.finish()["outcome"] == {"type": "success"}
        whole = [*stream.items, *rest.items]
        assert [seq for seq, _ in whole] == list(range(whole[0][0] or 0, len(whole) + (whole[0][0] or 0)))
    check_invariants(stack, run)
    assert run.effects() == ["START", "END"]
