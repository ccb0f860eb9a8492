"""An operator's button ends a worker as SIGTERM does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.journeys.stack import Stack


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_worker_that_is_told_to_shut_down_drains_and_ends(make_stack: Callable[..., Stack], pool: str):
    stack = make_stack()
    worker = stack.start(pool=pool, concurrency=4)
    run = stack.submit("waits")
    run.running()
    (beat,) = stack.store.workers.alive()
    answer = stack.request("POST", f"/ops/api/workers/{beat.name}/shutdown", body={"reason": "leaks"})
    assert answer.json()["result"] == "shutting_down"
    assert worker.wait(15) == 0
    assert run.recorded()["code"] == "worker_shutdown"
    assert stack.store.workers.alive() == []
