"""Provider clients that live between runs: no child of a pool gets another's answer; one loop per process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from shared.queue import Queue
from shared.runs.lifecycle import is_terminal
from shared.settings import Settings
from tests.conftest import wait_for
from tests.journeys.agents_with_clients import CLIENTS, LOOPS
from tests.journeys.stack import Stack
from tests.worker.stage import accept, log_of, record_of


class Model(BaseHTTPRequestHandler):
    """Answers with what it was asked, after a while; connections stay open."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(b"warm")

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["content-length"]))
        time.sleep(random.uniform(0.005, 0.03))
        self.answer(asked)

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def model() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.daemon_threads = True
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


def said(stack: Stack, agents: Sequence[str], each: int) -> list[str]:
    """Has every agent run so often and gives what they said; all of them must have succeeded."""
    queue = Queue(Settings(redis_url=stack.server.url), stack.store)
    keys = [accept(stack.store, agent) for agent in agents for _ in range(each)]
    for key in keys:
        queue.enqueue(key)
    for key in keys:
        wait_for(lambda key=key: is_terminal(record_of(stack.store, key).status), 60)
    endings = [log_of(stack.store, key)[-1] for key in keys]
    assert [end for end in endings if end["type"] != "RUN_FINISHED"] == []
    return ["".join(event.get("delta", "") for event in log_of(stack.store, key)) for key in keys]


def clients(make_stack: Callable[..., Stack], model: str, pool: str) -> Stack:
    stack = make_stack(OUTLAST_AGENTS="agents_with_clients:AGENTS", MODEL_URL=model)
    stack.start_worker(pool=pool, concurrency=4)
    return stack


def check_loops(told: Sequence[str]) -> int:
    """One loop in each process; the number of processes."""
    pairs = {tuple(text.split()) for text in told}
    pids, marks = {pid for pid, _ in pairs}, {mark for _, mark in pairs}
    assert len(pids) == len(marks) == len(pairs)
    return len(pids)


def test_four_children_never_get_each_others_answers_and_have_a_loop_each(
    make_stack: Callable[..., Stack], model: str
):
    stack = clients(make_stack, model, "prefork")
    assert len(set(said(stack, list(CLIENTS), each=20))) == 4
    assert check_loops(said(stack, list(LOOPS), each=20)) == 4


@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_all_async_agents_of_a_process_share_its_loop(
    make_stack: Callable[..., Stack], model: str, pool: str
):
    stack = clients(make_stack, model, pool)
    assert check_loops(said(stack, list(LOOPS), each=5)) == 1
    assert len(set(said(stack, list(CLIENTS), each=2))) == 1
