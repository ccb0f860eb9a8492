"""The remote example: a server that remembers nothing becomes durable."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import wait_for
from tests.examples.conversation import Conversation, said
from tests.examples.readme import curl_of
from tests.journeys.processes import ROOT, Process, free_port
from tests.journeys.stack import Stack

SERVER = ROOT / "examples" / "remote" / "server.py"
LONG = " ".join(["word"] * 200)


class Far:
    """The other server, which a test may kill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.start()

    def start(self) -> None:
        command = [sys.executable, str(SERVER), str(self.port)]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = Process("far", command, folder=self.folder, environment=environment)
        wait_for(self._answers)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}").status_code == 501
        except httpx.TransportError:
            return False


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    started = Far(tmp_path_factory.mktemp("far"))
    yield started
    started.process.kill()


@pytest.fixture(scope="module")
def stack(start_stack: Any, far: Far) -> Stack:
    return start_stack("examples.remote.agents:AGENTS", FAR_AGENT=f"http://127.0.0.1:{far.port}/")


def test_its_words_arrive_as_they_are_said(stack: Stack):
    run = Conversation(stack, "far").say("hello there")
    assert said(run).split() == ["You", "said:", "hello", "there"]
    assert run.recorded()["status"] == "succeeded"
    assert run.live.arrived[-1] - run.live.arrived[0] > 0.2


def test_a_client_that_lost_its_connection_comes_back_to_the_whole(stack: Stack):
    run = stack.submit("far", text=LONG[:100])
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    run.live.close()
    again = run.watch(after=0)
    again.finish()
    assert again.text.split() == ["You", "said:", *LONG[:100].split()]


def test_a_cancel_stops_the_far_server_at_once(stack: Stack, far: Far):
    run = stack.submit("far", text=LONG)
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    before = far.process.log.read_text().count("stopped")
    assert run.cancel(wait=5).json()["status"] == "cancelled"
    wait_for(lambda: far.process.log.read_text().count("stopped") > before, 5)
    assert run.live.finish()["outcome"] == {"type": "cancelled"}


def test_a_far_server_that_dies_fails_the_run_as_a_transport_error(stack: Stack, far: Far):
    run = stack.submit("far", text=LONG)
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    far.process.kill()
    try:
        assert run.recorded()["code"] == "transport_error"
    finally:
        far.start()


def test_a_port_that_is_taken_is_told_in_a_sentence(far: Far):
    command = [sys.executable, str(SERVER), str(far.port)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"Port {far.port} cannot be had")
    assert ended.stderr.count("\n") == 1


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_readmes_line_gets_the_answer(stack: Stack):
    said = curl_of(ROOT / "examples" / "remote" / "README.md", stack)
    assert said.count('"TEXT_MESSAGE_CONTENT"') == 4
    assert said.count('"RUN_FINISHED"') == 1
