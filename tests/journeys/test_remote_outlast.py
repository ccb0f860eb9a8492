"""One Outlast as the upstream of another: real processes, two hops, one stop."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.conftest import wait_for
from tests.journeys.invariants import check_invariants
from tests.journeys.processes import free_port
from tests.journeys.stack import Stack, elapsed

CANCELLED = {"type": "cancelled"}


def test_a_run_of_another_installation_is_durable_and_is_stopped_there_too(make_stack: Callable[..., Stack]):
    port = free_port()
    stack = make_stack(
        UPSTREAM=f"http://127.0.0.1:{port}", OUTLAST_AGENTS="agents_under_test:AGENTS,remote_agents:AGENTS"
    )
    worker = stack.start_worker(wait=False)
    stack.start_web(port=port)
    stack.await_worker(worker)

    remote = stack.submit("far_demo")
    direct = stack.submit("demo")
    assert remote.live.finish()["outcome"] == direct.live.finish()["outcome"]
    assert remote.live.types == direct.live.types
    check_invariants(stack, remote)

    nowhere = stack.submit("far_nowhere")
    assert nowhere.live.finish()["code"] == "provider_error"
    check_invariants(stack, nowhere)

    far = stack.submit("far")
    far.live.until_type("TEXT_MESSAGE_CONTENT")
    begun = time.monotonic()
    assert far.cancel().status_code in {200, 202}
    assert far.live.finish()["outcome"] == CANCELLED
    assert elapsed(begun) < 1
    check_invariants(stack, far)

    def upstreams() -> list[dict[str, object]]:
        listed = stack.request("GET", "/runs?agent=waits").json()
        return [run for run in listed["runs"] if run["status"] == "cancelled"]

    # The upstream's own record says it too, although its client had merely gone.
    assert len(wait_for(upstreams)) == 1
