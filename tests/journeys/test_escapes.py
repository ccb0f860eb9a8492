"""Whatever escapes an agent becomes one RUN_ERROR, and the worker serves the next run."""

from __future__ import annotations

import pytest

from tests.journeys.agents_under_test import ESCAPES
from tests.journeys.invariants import check_invariants
from tests.journeys.stack import Stack

IN_PROCESS = [kind for kind in ESCAPES if kind != "Exit"]


def _fails_once(stack: Stack, agent: str, kind: str, *, code: str = "AGENT_ERROR") -> dict[str, str]:
    run = stack.submit(agent, kind=kind)
    terminal = run.live.finish()
    assert (terminal["type"], terminal["code"]) == ("RUN_ERROR", code)
    # A process that is gone at once may take its last words with it.
    assert run.live.text in ({"about to fail", ""} if kind == "Exit" else {"about to fail"})
    check_invariants(stack, run)
    following = stack.submit("counts", deltas=2)
    assert following.live.finish(3)["outcome"] == {"type": "success"}
    check_invariants(stack, following)
    return terminal


@pytest.mark.parametrize("agent", ["raises", "sync_raises"])
@pytest.mark.parametrize("kind", IN_PROCESS)
def test_anything_raised_ends_the_run_and_not_the_worker(stack: Stack, agent: str, kind: str):
    worker = stack.processes[0]
    terminal = _fails_once(stack, agent, kind)
    assert "pair" not in terminal["message"]
    assert ("no such city" in terminal["message"]) == (kind == "AgentError")
    assert worker.alive


@pytest.mark.parametrize("agent", ["raises", "sync_raises"])
@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "MemoryError", "Mute"])
def test_anything_raised_in_a_pool_child_ends_the_run_and_not_the_child(
    prefork: Stack, agent: str, kind: str
):
    _fails_once(prefork, agent, kind)


@pytest.mark.parametrize("agent", ["raises", "sync_raises"])
def test_a_pool_child_that_leaves_in_mid_run_is_a_lost_worker(prefork: Stack, agent: str):
    _fails_once(prefork, agent, "Exit", code="worker_lost")
