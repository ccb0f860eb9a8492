"""Redis goes away in mid-run and comes back: the run ends as if nothing had been."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shared.local.server import EmbeddedServer
from tests.conftest import wait_for
from tests.journeys.invariants import check_invariants
from tests.journeys.stack import Stack, elapsed

EXPECTED = "".join(f"{number} " for number in range(60))


@pytest.fixture(scope="module", params=["socket", "port"])
def restarting(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A stack whose Redis is reached by a Unix socket, and one over TCP."""
    with tempfile.TemporaryDirectory(prefix="outlast-journeys-") as folder:
        server = EmbeddedServer(Path(folder) / "redis", port=0 if request.param == "port" else None)
        server.start()
        # A lease longer than the absence, so that no run is lost to it.
        stack = Stack(Path(folder), server, OUTLAST_LEASE_SECONDS="5")
        try:
            stack.start(concurrency=8)
            yield stack
        finally:
            stack.close()
            server.stop()


def _away(seconds: float, end: Callable[[], None], server: EmbeddedServer) -> None:
    end()
    begun = time.monotonic()
    wait_for(lambda: elapsed(begun) >= seconds, seconds + 1)
    server.restart()


@pytest.mark.timeout(180)
def test_every_delta_arrives_exactly_once(restarting: Stack):
    stack, server = restarting, restarting.server
    for end in (server.kill, server.stop):
        run = stack.submit("counts", deltas=60, pause=0.05)
        slow = stack.submit("sync_counts", deltas=60, pause=0.05)
        run.live.until(lambda stream: len(stream.deltas) >= 10)
        slow.live.until(lambda stream: len(stream.deltas) >= 10)
        _away(1.0, end, server)
        for each in (run, slow):
            terminal = each.live.finish(20)
            assert terminal.get("outcome") == {"type": "success"}, terminal
            assert each.live.text == EXPECTED
            assert check_invariants(stack, each) == terminal
        begun = time.monotonic()
        fresh = stack.submit("counts", deltas=3)
        assert fresh.live.finish(15)["outcome"] == {"type": "success"}
        assert elapsed(begun) < 15
        check_invariants(stack, fresh)


def test_a_submit_while_redis_is_away_is_refused_in_time_and_runs_once_when_sent_again(restarting: Stack):
    stack, server = restarting, restarting.server
    server.stop()
    run = stack.prepare("counts", deltas=3)
    begun = time.monotonic()
    answer = stack.request("POST", f"/agents/{run.agent}", body=run.body)
    assert elapsed(begun) < 5
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/json"
    assert "retry-after" in answer.headers
    server.start()
    wait_for(lambda: stack.request("GET", "/health/ready").status_code == 200, 10, pause=0.1)
    assert stack.send(run).live.finish(15)["outcome"] == {"type": "success"}
    check_invariants(stack, run)
