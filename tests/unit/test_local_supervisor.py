"""The supervisor in a process of its own, with stand-in children that are real processes too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

CHILD = """
import os, signal, subprocess, sys, time
name, folder, manner = sys.argv[1:4]
def note(what):
    with open(os.path.join(folder, "journal"), "a") as journal:
        journal.write(f"{name} {what} {os.getpid()}\\n")
def leave(number, frame):
    note("told")
    if manner == "deaf":
        return
    time.sleep(0.1)
    note("gone")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
if manner == "parent":
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(os.path.join(folder, "grandchild"), "w") as file:
        file.write(str(grandchild.pid))
print("I am " + name, flush=True)
note("started")
while True:
    if manner == "dying":
        sys.exit(3)
    if manner == "misconfigured":
        print("what is wrong", flush=True)
        sys.exit(78)
    time.sleep(0.02)
"""

PARENT = """
import json, sys
from pathlib import Path
from shared.local.child import Plan
from shared.local.console import Console
from shared.local.server import EmbeddedServer
from shared.local.supervisor import Supervisor
from shared.settings import child_environment
folder, script, manners, grace = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), float(sys.argv[4])
journal = folder / "journal"
def started(name):
    return lambda: journal.exists() and f"{name} started" in journal.read_text()
plans = [
    Plan(name, [sys.executable, "-c", script, name, str(folder), manner], child_environment(), folder, grace,
         started(name + ("!" if manner == "misconfigured" else "")), 78)
    for name, manner in manners.items()
]
server = EmbeddedServer(folder / "data")
console = Console(sys.stdout, colour=False)
sys.exit(Supervisor(console, plans, server, when_ready=lambda: console.say("READY")).run())
"""


class Stage:
    """One supervisor with its children, and what they wrote down."""

    def __init__(self, folder: Path, eventually) -> None:
        self.folder = folder
        self.eventually = eventually
        self.process: subprocess.Popen[str] | None = None

    def play(self, manners: dict[str, str], grace: float = 5, until: str = "READY") -> None:
        self.out = (self.folder / "out").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(self.folder), CHILD, json.dumps(manners), str(grace)],
            stdout=self.out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
        self.eventually(lambda: until in self.said(), 30)

    def said(self) -> str:
        return (self.folder / "out").read_text()

    def journal(self) -> list[list[str]]:
        file = self.folder / "journal"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def pids(self, name: str) -> list[int]:
        return [int(pid) for who, what, pid in self.journal() if (who, what) == (name, "started")]

    def everybody(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def press(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.press(number)
        return self.process.wait(30)

    def close(self) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                self.process.terminate()
                self.process.wait(30)
            self.out.close()


@pytest.fixture
def stage(eventually):
    with tempfile.TemporaryDirectory(prefix="outlast-") as folder:
        made = Stage(Path(folder), eventually)
        yield made
        made.close()


def test_the_start_shows_progress_and_holds_the_childrens_lines_back(stage):
    stage.play({"worker": "good", "web": "good"})
    before, _, _ = stage.said().partition("READY")
    names = [line.split()[0] for line in before.splitlines()]
    assert (names[:3], sorted(names[3:])) == (["redis", "worker", "web"], ["web", "worker"])
    assert "I am" not in before
    assert "data in" in before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_everything_and_leaves_no_process(stage, number):
    stage.play({"worker": "good", "web": "good"})
    everybody = stage.everybody()
    assert len(everybody) == 3
    assert stage.end(number) == 0
    assert psutil.wait_procs(everybody, timeout=0)[1] == []


def test_the_worker_is_stopped_first_then_web_and_redis_comes_last(stage):
    stage.play({"worker": "good", "web": "good"})
    assert stage.end() == 0
    stops = [(who, what) for who, what, _ in stage.journal() if what != "started"]
    assert stops == [("worker", "told"), ("worker", "gone"), ("web", "told"), ("web", "gone")]
    assert not (stage.folder / "data" / "redis.url").exists()


def test_a_child_that_dies_is_started_again_and_the_reason_is_told(stage):
    stage.play({"worker": "good", "web": "good"})
    os.kill(stage.pids("worker")[0], signal.SIGKILL)
    stage.eventually(lambda: len(stage.pids("worker")) == 2)
    assert "worker  was ended by SIGKILL; it is started again in 0.5 s" in stage.said()
    stage.eventually(lambda: "worker | I am worker" in stage.said())


def test_the_pauses_grow_while_a_child_keeps_dying(stage):
    stage.play({"worker": "good", "web": "dying"})
    stage.eventually(lambda: "ended with exit code 3; it is started again in 2 s" in stage.said(), 20)
    assert "exit code 3; it is started again in 0.5 s" in stage.said()
    assert "exit code 3; it is started again in 1 s" in stage.said()


def test_a_child_that_is_misconfigured_ends_the_start_with_what_it_said_once(stage):
    stage.play({"worker": "misconfigured", "web": "good"}, until="Stopped")
    assert stage.process.wait(30) == 1
    assert stage.said().count("what is wrong\n") == 1
    assert "worker  cannot start like this" in stage.said()
    assert "READY" not in stage.said()


def test_redis_that_was_killed_is_started_again(stage):
    stage.play({"worker": "good"})
    server = next(
        process for process in stage.everybody() if "redis" in process.name() or "valkey" in process.name()
    )
    server.kill()
    stage.eventually(lambda: "redis   has ended; it is started again with its data" in stage.said())
    stage.eventually(
        lambda: any("redis" in p.name() and p.is_running() and p != server for p in stage.everybody())
    )
    assert stage.end() == 0


def test_what_a_dead_child_leaves_behind_is_ended_with_it(stage):
    stage.play({"worker": "parent"})
    grandchild = psutil.Process(int((stage.folder / "grandchild").read_text()))
    os.kill(stage.pids("worker")[0], signal.SIGKILL)
    stage.eventually(lambda: not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE)


def test_a_deaf_child_is_ended_by_force_after_its_grace(stage):
    stage.play({"worker": "deaf"}, grace=0.5)
    everybody = stage.everybody()
    assert stage.end() == 0
    assert "was ended by force" in stage.said()
    assert psutil.wait_procs(everybody, timeout=0)[1] == []


def test_a_second_signal_does_not_wait_and_leaves_no_process_either(stage):
    stage.play({"worker": "deaf", "web": "deaf"}, grace=60)
    everybody = stage.everybody()
    stage.press(signal.SIGINT)
    stage.eventually(lambda: ["worker", "told"] in [line[:2] for line in stage.journal()])
    stage.eventually(lambda: "by force" in stage.said() or stage.press(signal.SIGINT), 20, pause=0.3)
    assert stage.process.wait(20) == 0
    assert psutil.wait_procs(everybody, timeout=0)[1] == []


def test_one_press_that_arrives_twice_still_waits_for_the_children(stage):
    stage.play({"worker": "good", "web": "good"})
    stage.press(signal.SIGINT)
    stage.press(signal.SIGTERM)
    assert stage.process.wait(30) == 0
    assert "by force" not in stage.said()
    assert [what for who, what, _ in stage.journal() if who == "worker"] == ["started", "told", "gone"]


def test_a_signal_to_the_terminals_group_reaches_no_child_directly(stage):
    stage.play({"worker": "good", "web": "good"})
    os.killpg(stage.process.pid, signal.SIGTERM)
    assert stage.process.wait(30) == 0
    assert [what for who, what, _ in stage.journal() if who == "worker"] == ["started", "told", "gone"]


def test_a_stop_during_the_start_leaves_no_process(stage):
    stage.out = (stage.folder / "out").open("w+")
    stage.process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PARENT,
            str(stage.folder),
            "import time; time.sleep(600)",
            '{"worker": ""}',
            "5",
        ],
        stdout=stage.out,
        stderr=subprocess.STDOUT,
        text=True,
    )
    stage.eventually(lambda: "starting" in stage.said())
    stage.eventually(lambda: len(stage.everybody()) == 2)
    everybody = stage.everybody()
    assert stage.end(signal.SIGINT) == 0
    assert psutil.wait_procs(everybody, timeout=0)[1] == []
    assert "READY" not in stage.said()
