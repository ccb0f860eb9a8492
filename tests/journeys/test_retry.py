"""Workers that are killed under a run which may be executed again, and under one which may not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.client_rules import Client
from tests.conftest import wait_for
from tests.journeys.invariants import check_invariants
from tests.journeys.stack import LOST_WITHIN, Run, Stack
from tests.stock_client import CLIENT, needs_client

AGENTS = "agents_under_test:AGENTS,agents_that_retry:AGENTS"


@pytest.fixture
def stack(make_stack: Callable[..., Stack]) -> Stack:
    return make_stack(OUTLAST_AGENTS=AGENTS)


def attempts(run: Run) -> list[int]:
    return [int(line[1]) for line in run.stack.effects() if line[0] == run.run_id and line[3] == "START"]


def await_attempt(run: Run, number: int) -> None:
    """Until that attempt is in the middle of its message."""
    wait_for(
        lambda: any(b'"attempt %d"' % number in frame for frame in run.stack.store.log.read_all(run.key)),
        30,
        pause=0.02,
    )


def roles(messages: list[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in messages]


def of_attempt_2_only(messages: list[dict[str, Any]], state: Any, *, text: str = "attempt 2 lived") -> None:
    told = json.dumps([messages, state])
    assert "1. time" not in told
    assert '"attempt": 1' not in told
    assert roles(messages) == ["user", "reasoning", "activity", "assistant", "tool", "assistant"]
    assert messages[-1]["content"] == text
    assert all("-a2-" in message["id"] for message in messages[1:])
    assert state == {"attempt": 2}


def test_a_run_that_may_be_repeated_survives_the_death_of_its_worker(stack: Stack, tmp_path: Path):
    gate = tmp_path / "gate"
    first = stack.start(concurrency=4)
    run = stack.submit("lives_at_last", gate=str(gate))
    await_attempt(run, 1)
    early = run.watch(0)
    first.signal_group(signal.SIGKILL)
    stack.start_worker(concurrency=4)
    await_attempt(run, 2)

    joined = run.stack.open("GET", f"{run.path}/events?mode=snapshot")
    joined.until_type("TEXT_MESSAGE_START")
    gate.touch()
    terminal = run.live.finish()
    assert terminal["outcome"] == {"type": "success"}
    assert attempts(run) == [1, 2]
    record = run.recorded()
    assert (record["attempt"], record["status"]) == (2, "succeeded")
    assert "unknown_calls" not in record

    for stream in (run.live, early, joined):
        stream.finish()
        assert stream.types.count("RUN_STARTED") == 1
        seen = Client(run.body["messages"], {}).run(stream.events)
        of_attempt_2_only(seen.messages, seen.state)
    assert "1. time" not in json.dumps(joined.events)
    (told,) = [event["value"] for event in run.live.events if event["type"] == "CUSTOM"]
    assert told == {"attempt": 2, "reason": "worker_lost"}
    check_invariants(stack, run, most_starts=2)


def test_a_run_that_kills_every_worker_ends(stack: Stack):
    stack.start(pool="prefork", concurrency=2)
    run = stack.submit("lives_at_last", deadly=5)
    for number in (1, 2):
        await_attempt(run, number)
        os.kill(run.pids()[-1], signal.SIGKILL)
    terminal = run.live.finish(20)
    assert (terminal["type"], terminal["code"]) == ("RUN_ERROR", "worker_lost")
    assert attempts(run) == [1, 2]
    check_invariants(stack, run, most_starts=2)
    following = stack.submit("counts", thread_id=run.thread_id, deltas=3)
    assert following.live.finish(20)["outcome"] == {"type": "success"}


def test_a_cancel_before_the_second_attempt_is_not_forgotten(stack: Stack):
    first = stack.start(concurrency=4)
    run = stack.submit("lives_at_last")
    await_attempt(run, 1)
    first.signal_group(signal.SIGKILL)
    wait_for(lambda: run.record()["status"] == "queued", LOST_WITHIN)
    assert run.cancel().json()["status"] == "cancelled"
    assert run.live.finish()["outcome"] == {"type": "cancelled"}
    assert attempts(run) == [1]
    check_invariants(stack, run)


def test_a_run_killed_in_a_tool_call_says_whose_effect_is_unknown(stack: Stack):
    worker = stack.start(concurrency=4)
    run = stack.submit("pays")
    wait_for(lambda: "EFFECT" in run.effects(), 10, pause=0.02)
    run.live.until(lambda stream: any("amount" in event.get("delta", "") for event in stream.events))
    worker.signal_group(signal.SIGKILL)
    assert run.live.finish(LOST_WITHIN)["code"] == "worker_lost"
    calls = run.recorded()["unknown_calls"]
    assert [call["name"] for call in calls] == ["pay"]
    (started,) = [event for event in run.live.events if event.get("toolCallName") == "pay"]
    assert calls[0]["id"] == started["toolCallId"]
    check_invariants(stack, run)


@contextmanager
def stock_client(run: Run) -> Iterator[subprocess.Popen[str]]:
    """The stock client runs the agent, as an application does."""
    spec = {"agent": run.agent} | {
        name: run.body[name] for name in ("threadId", "runId", "messages", "forwardedProps")
    }
    client = subprocess.Popen(
        ["node", "run.mjs"],
        cwd=CLIENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert client.stdin is not None
    client.stdin.write(json.dumps({"base": f"http://127.0.0.1:{run.stack.port}", "runs": [spec]}))
    client.stdin.close()
    client.stdin = None
    try:
        yield client
    finally:
        client.kill()
        client.wait()


@needs_client
def test_the_stock_client_shows_the_second_attempt_alone(stack: Stack, tmp_path: Path):
    gate = tmp_path / "gate"
    gate.touch()
    first = stack.start(concurrency=4)
    run = stack.prepare("lives_at_last", gate=str(gate))
    with stock_client(run) as client:
        await_attempt(run, 1)
        first.signal_group(signal.SIGKILL)
        stack.start_worker(concurrency=4)
        output, errors = client.communicate(timeout=60)
    assert client.returncode == 0, errors
    (seen,) = json.loads(output)["runs"]
    assert (seen["warnings"], seen["outcome"]) == ([], "success")
    of_attempt_2_only(seen["messages"], seen["state"])
    check_invariants(stack, run, most_starts=2)
