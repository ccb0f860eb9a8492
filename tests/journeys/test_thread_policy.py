"""Runs of one thread are serialised; who comes while it is busy waits, is refused, or takes over."""

from __future__ import annotations

import pytest

from tests.journeys.invariants import check_invariants
from tests.journeys.sse_stream import Refused
from tests.journeys.stack import Stack


def test_a_second_run_waits_for_its_turn(stack: Stack):
    first = stack.submit("counts", deltas=6, pause=0.05)
    second = stack.submit("counts", thread_id=first.thread_id, deltas=2)
    third = stack.submit("counts", thread_id=first.thread_id, deltas=2)
    for run in (first, second, third):
        assert run.live.finish()["outcome"] == {"type": "success"}
        check_invariants(stack, run)
    mine = {first.run_id, second.run_id, third.run_id}
    order = [(line[0], line[3]) for line in stack.effects() if line[0] in mine]
    assert order == [(run.run_id, word) for run in (first, second, third) for word in ("START", "END")]


def test_a_second_run_is_refused_when_it_asks_for_that(stack: Stack):
    first = stack.submit("waits", seconds=0.6)
    second = stack.prepare("counts", thread_id=first.thread_id)
    with pytest.raises(Refused) as refused:
        stack.send(second, on_busy="reject")
    assert (refused.value.status, refused.value.body["code"]) == (409, "THREAD_BUSY")
    assert stack.request("GET", second.path).status_code == 404
    assert first.live.finish()["outcome"] == {"type": "success"}
    assert stack.send(second, on_busy="reject").live.finish()["outcome"] == {"type": "success"}
    for run in (first, second):
        check_invariants(stack, run)


def test_a_second_run_takes_over_when_it_asks_for_that(stack: Stack):
    active = stack.submit("waits")
    active.live.until_type("TEXT_MESSAGE_CONTENT")
    waiting = stack.submit("counts", thread_id=active.thread_id)
    taking = stack.submit("counts", thread_id=active.thread_id, on_busy="interrupt")
    active.cancel_accepted = waiting.cancel_accepted = True
    assert taking.live.finish()["outcome"] == {"type": "success"}
    for run in (active, waiting):
        assert run.live.finish()["outcome"] == {"type": "cancelled"}
    assert waiting.effects() == []
    for run in (active, waiting, taking):
        check_invariants(stack, run)


def test_runs_of_different_threads_do_not_wait_for_each_other(stack: Stack):
    slow = stack.submit("waits", seconds=1.5)
    quick = stack.submit("counts", deltas=2)
    assert quick.live.finish(1.2)["outcome"] == {"type": "success"}
    assert slow.live.finish()["outcome"] == {"type": "success"}
    for run in (slow, quick):
        check_invariants(stack, run)
