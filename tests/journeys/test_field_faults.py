"""Field reports about faults of the machinery: cut connections, a stopped or forgetful Redis, no memory."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import closing

import psutil
import pytest

from tests.conftest import wait_for
from tests.journeys.invariants import check_invariants
from tests.journeys.sse_stream import Refused
from tests.journeys.stack import SHORT_TIMES, Stack, elapsed

LEASE = float(SHORT_TIMES["OUTLAST_LEASE_SECONDS"])


def test_killed_connections_to_redis_cost_no_event_and_no_second_start(field: Stack):
    runs = [
        field.submit("counts", deltas=120, pause=0.02),
        field.submit("sync_counts", deltas=120, pause=0.02),
        field.submit("waits", seconds=2),
    ]
    watchers = [run.watch() for run in runs]
    for run in runs:
        run.live.until_type("TEXT_MESSAGE_CONTENT")
    for _ in range(6):
        for kind in ("normal", "pubsub"):
            field.store.client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        begun = time.monotonic()
        wait_for(lambda begun=begun: elapsed(begun) > 0.3, 1)
    quick = field.submit("counts", deltas=2)
    assert quick.live.finish(5)["outcome"] == {"type": "success"}
    for run, watcher in zip(runs, watchers, strict=True):
        assert run.live.finish()["outcome"] == {"type": "success"}
        assert watcher.finish() == run.live.finish()
        assert run.effects() == ["START", "END"]
        check_invariants(field, run)


def test_a_cancel_right_after_all_connections_were_killed_is_recorded(field: Stack):
    run = field.submit("waits")
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    for kind in ("pubsub", "normal"):
        field.store.client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
    assert run.cancel(wait=5).json()["status"] == "cancelled"
    check_invariants(field, run)


def test_a_redis_that_stands_still_for_longer_than_the_lease_costs_no_run(field: Stack):
    redis = field.store.client.info("server")["process_id"]
    going = field.submit("counts", deltas=150, pause=0.02)
    waiting = field.submit("waits")
    for run in (going, waiting):
        run.live.until_type("TEXT_MESSAGE_CONTENT")
    os.kill(redis, signal.SIGSTOP)
    begun = time.monotonic()
    try:
        answer = field.request("GET", waiting.path)
        assert answer.status_code == 503
        assert elapsed(begun) < 5
        assert field.request("GET", "/health/live").status_code == 200
        wait_for(lambda: elapsed(begun) > LEASE + 1, 10)
    finally:
        os.kill(redis, signal.SIGCONT)
    assert going.live.finish()["outcome"] == {"type": "success"}
    assert waiting.cancel(wait=5).json()["status"] == "cancelled"
    for run in (going, waiting):
        check_invariants(field, run)


def test_a_run_whose_record_is_gone_is_unknown_and_its_streams_and_agent_end(field: Stack):
    run = field.submit("never_asks")
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    bucket, client = run.key[:2], field.store.client
    for kind in ("run", "log", "input"):
        assert client.delete(f"outlast:{{{bucket}}}:{kind}:{run.key}") == 1
    terminal = run.live.finish(10)
    assert (terminal["type"], terminal["code"]) == ("RUN_ERROR", "DISCONNECTED")
    assert run.live.seqs[-1] is None
    assert field.request("GET", run.path).json()["code"] == "UNKNOWN_RUN"
    assert run.cancel().status_code == 404
    written = len(client.keys(f"*{run.key}*"))
    assert field.submit("counts", deltas=2).live.finish()["outcome"] == {"type": "success"}
    assert len(client.keys(f"*{run.key}*")) == written
    assert run.effects() == ["START"]


def test_an_agent_that_runs_out_of_memory_costs_its_own_run_only(field: Stack):
    worker = psutil.Process(field.processes[0].pid)
    neighbour = field.submit("counts", deltas=60, pause=0.02)
    neighbour.live.until_type("TEXT_MESSAGE_CONTENT")
    _, hard = worker.rlimit(psutil.RLIMIT_AS)
    worker.rlimit(psutil.RLIMIT_AS, (worker.memory_info().vms + 400_000_000, hard))
    try:
        hungry = field.submit("hungry")
        assert hungry.live.finish()["code"] == "AGENT_ERROR"
        following = field.submit("counts", deltas=2)
        assert following.live.finish(5)["outcome"] == {"type": "success"}
    finally:
        worker.rlimit(psutil.RLIMIT_AS, (psutil.RLIM_INFINITY, hard))
    assert neighbour.live.finish()["outcome"] == {"type": "success"}
    for run in (hungry, following, neighbour):
        check_invariants(field, run)


def test_a_client_kept_between_runs_goes_on_working(field: Stack):
    url = f"http://127.0.0.1:{field.port}/health/live"
    for _ in range(4):
        run = field.submit("keeps_a_client", url=url)
        assert run.live.finish()["outcome"] == {"type": "success"}
        assert run.live.text == "200"


def test_an_agent_that_swallows_everything_is_cancelled_all_the_same(field: Stack):
    run = field.submit("swallows")
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    assert run.cancel(wait=10).json()["status"] == "cancelled"
    check_invariants(field, run)


def test_hundreds_of_streams_leave_room_for_status_and_cancel(field: Stack):
    run, other = field.submit("waits"), field.submit("waits")
    for each in (run, other):
        each.live.until_type("TEXT_MESSAGE_CONTENT")
    request = f"GET {run.path}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    streams = [socket.create_connection(("127.0.0.1", field.port), timeout=10) for _ in range(300)]
    try:
        for stream in streams:
            stream.sendall(request)
        for stream in streams:
            assert stream.recv(4096).startswith(b"HTTP/1.1 200 ")
        for ask in (run.record, lambda: field.request("GET", "/health/ready"), other.cancel):
            begun = time.monotonic()
            assert ask()
            assert elapsed(begun) < 1
    finally:
        for stream in streams:
            stream.close()
    assert run.cancel(wait=5).json()["status"] == "cancelled"
    other.live.finish()
    wait_for(lambda: not field.store.client.pubsub_channels("outlast:run:*"), 10, pause=0.1)
    for each in (run, other):
        check_invariants(field, each)


def test_a_full_redis_takes_no_run_and_lets_a_running_one_be_cancelled(field: Stack):
    client = field.store.client
    run, refused = field.submit("waits"), field.prepare("counts", deltas=2)
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(Refused) as refusal:
            field.send(refused)
        assert run.cancel(wait=5).json()["status"] == "cancelled"
    finally:
        client.config_set("maxmemory", 0)
    assert (refusal.value.status, refusal.value.body["code"]) == (503, "STORE_FULL")
    assert "retry-after" in refusal.value.headers
    assert field.send(refused).live.finish()["outcome"] == {"type": "success"}
    for each in (run, refused):
        check_invariants(field, each)


def test_a_web_process_killed_in_mid_stream_costs_its_connections_only(field: Stack):
    run = field.submit("counts", deltas=60, pause=0.03)
    run.live.until(lambda stream: len(stream.deltas) >= 5)
    web = field.web
    assert web is not None
    web.kill()
    assert run.live.ended.wait(5)
    field.start_web("gunicorn")
    rest = run.watch(run.live.seqs[-1])
    assert rest.finish()["outcome"] == {"type": "success"}
    assert "".join(run.live.deltas + rest.deltas) == "".join(f"{number} " for number in range(60))
    check_invariants(field, run)


def test_short_runs_do_not_wait_behind_a_long_one_when_another_worker_comes(make_stack: Callable[..., Stack]):
    stack = make_stack()
    stack.start(concurrency=1)
    long = stack.submit("waits")
    long.live.until_type("TEXT_MESSAGE_CONTENT")
    short = [stack.submit("counts", deltas=2) for _ in range(4)]
    stack.start_worker(concurrency=1)
    begun = time.monotonic()
    for run in short:
        assert run.live.finish(8)["outcome"] == {"type": "success"}
        check_invariants(stack, run)
    assert elapsed(begun) < 5
    assert long.cancel(wait=5).json()["status"] == "cancelled"


def test_nothing_but_totals_is_left_when_retention_is_over(make_stack: Callable[..., Stack]):
    stack = make_stack(OUTLAST_RETENTION_SECONDS="0.5", OUTLAST_TOMBSTONE_SECONDS="1")
    stack.start(pool="prefork", concurrency=2)
    stopped = [stack.submit("waits") for _ in range(2)]
    for run in stopped:
        run.live.until_type("TEXT_MESSAGE_CONTENT")
        run.cancel()
        os.kill(run.pids()[0], signal.SIGKILL)
    for _ in range(20):
        stack.submit("counts", deltas=2).live.finish()
    for run in stopped:
        run.live.finish()
    client = stack.store.client
    per_run = {"run", "log", "input", "tomb", "actor", "thread", "turn", "wait", "active", "runs", "ended"}

    def left() -> list[str]:
        names = [key.decode() for key in client.keys("outlast:{*")]
        return [name for name in names if name.split(":")[2] in per_run]

    try:
        wait_for(lambda: not left(), 15, pause=0.2)
    except AssertionError:
        raise AssertionError(left()) from None


def test_a_client_that_shuts_its_sending_side_still_gets_the_ending(field: Stack):
    run = field.submit("waits", seconds=0.5)
    with closing(socket.create_connection(("127.0.0.1", field.port), timeout=10)) as client:
        client.sendall(
            f"GET {run.path}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
        )
        client.shutdown(socket.SHUT_WR)
        came = b""
        while part := client.recv(65536):
            came += part
    assert b'"RUN_FINISHED"' in came
    check_invariants(field, run)
