"""A client that leaves cancels nothing."""

from __future__ import annotations

import pytest

from tests.conftest import wait_for
from tests.journeys.invariants import check_invariants
from tests.journeys.sse_stream import post_and_leave
from tests.journeys.stack import Stack


@pytest.mark.parametrize("reset", [False, True], ids=["fin", "rst"])
@pytest.mark.parametrize("agent", ["waits", "counts"])
def test_the_run_goes_on_and_succeeds(stack: Stack, agent: str, reset: bool):
    run = stack.prepare(agent, seconds=1.2, deltas=24, pause=0.05)
    post_and_leave(
        stack.port, f"/agents/{agent}", run.body, after=b"TEXT_MESSAGE_CONTENT", reset=reset, headers={}
    )
    record = run.recorded()
    assert record["status"] == "succeeded"
    assert "cancel_requested_at" not in record
    assert check_invariants(stack, run)["outcome"] == {"type": "success"}
    assert run.effects() == ["START", "END"]


def test_the_web_lets_go_of_streams_that_nobody_reads(stack: Stack):
    run = stack.prepare("waits", seconds=30)
    channel = f"outlast:run:{run.key}"
    post_and_leave(
        stack.port, "/agents/waits", run.body, after=b"TEXT_MESSAGE_CONTENT", reset=True, headers={}
    )

    def nobody_listens() -> bool:
        return not dict(stack.store.client.pubsub_numsub(channel))[channel.encode()]

    # Two heartbeats notice it, and the hub keeps a channel for a moment.
    wait_for(nobody_listens, 8)
    assert run.record()["status"] == "running"
    assert run.cancel(wait=5).status_code == 200
    check_invariants(stack, run)
