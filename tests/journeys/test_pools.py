"""The other pools: pool children and the solo pool hear a cancel too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.journeys.invariants import check_invariants
from tests.journeys.stack import Stack


def _is_cancelled(stack: Stack, agent: str) -> None:
    run = stack.submit(agent)
    run.live.until(lambda stream: len(stream.items) > 2)
    assert run.cancel().status_code in {200, 202}
    assert run.live.finish(4)["outcome"] == {"type": "cancelled"}
    check_invariants(stack, run)


@pytest.mark.parametrize("agent", ["waits", "never_asks", "says_nothing", "sync_on_cancel", "sync_emits"])
def test_a_run_in_a_pool_child_is_cancelled(prefork: Stack, agent: str):
    _is_cancelled(prefork, agent)


def test_the_solo_pool_runs_and_cancels_one_after_the_other(make_stack: Callable[..., Stack]):
    stack = make_stack()
    stack.start(pool="solo")
    for agent in ("waits", "sync_emits", "says_nothing"):
        _is_cancelled(stack, agent)
    runs = [stack.submit("counts", deltas=3), stack.submit("sync_counts", deltas=3)]
    for run in runs:
        assert run.live.finish()["outcome"] == {"type": "success"}
        check_invariants(stack, run)
