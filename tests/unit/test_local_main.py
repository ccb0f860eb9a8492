"""``python -m shared.local`` refuses to start with a sentence, never with a traceback."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from shared.local.__main__ import _stopping
from shared.local.readiness import free_port
from shared.settings import child_environment

ROOT = Path(__file__).parents[2]


@pytest.fixture
def data():
    with tempfile.TemporaryDirectory(prefix="outlast-") as folder:
        yield Path(folder)


def run(data: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shared.local", "--data", str(data), *arguments],
        cwd=ROOT,
        env=child_environment(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_given_redis_that_does_not_listen_is_a_sentence_without_its_password(data):
    done = run(data, OUTLAST_REDIS_URL=f"redis://:secret@127.0.0.1:{unused_port()}/0")
    assert done.returncode == 1
    assert "Nothing listens at redis://***@127.0.0.1" in done.stderr
    assert "secret" not in done.stderr + done.stdout


def unused_port() -> int:
    return free_port(20_000)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"OUTLAST_PORT": "eighty"}, "The port must be a number"),
        ({"OUTLAST_DRAIN_SECONDS": "soon"}, "drain_seconds"),
    ],
)
def test_a_setting_that_does_not_fit_is_a_sentence(data, variables, sentence):
    done = run(data, **variables)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_one_over_the_same_data_is_refused_and_names_the_first(data):
    with (data / "supervisor.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write("4711")
        held.flush()
        done = run(data)
    assert done.returncode == 1
    assert "process 4711" in done.stderr


def test_an_agent_that_cannot_be_loaded_ends_the_start_with_its_sentence_once(data):
    done = run(data, OUTLAST_AGENTS="no_such_module_at_all:AGENTS", OUTLAST_PORT=str(free_port(21_000)))
    assert done.returncode == 1
    assert done.stdout.count("OUTLAST_AGENTS names the module no_such_module_at_all") == 1
    assert "Outlast is ready" not in done.stdout


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        (0, "Stopping"),
        (1, "Stopping. 1 run may go on for 25 s; Ctrl-C again ends at once"),
        (3, "Stopping. 3 runs may go on for 25 s; Ctrl-C again ends at once"),
        (None, "Stopping. Runs may go on for 25 s; Ctrl-C again ends at once"),
    ],
)
def test_a_stop_says_how_many_runs_it_waits_for_and_how_to_not_wait(runs, told):
    assert _stopping(runs, 25.0) == told


TERMINAL = """
import sys
from pathlib import Path
from shared.local.child import Plan
from shared.local.console import Console
from shared.local.supervisor import Supervisor
from shared.settings import child_environment
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
plan = Plan("worker", sleeper, child_environment(), Path.cwd(), 5, lambda: True)
Supervisor(Console(sys.stdout, colour=False), [plan], None, wanted=sys.stdout.isatty).run()
"""


def test_a_terminal_that_is_closed_stops_it_even_when_no_signal_comes():
    terminal, inside = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TERMINAL], cwd=ROOT, stdout=inside, stderr=inside, start_new_session=True
    )
    os.close(inside)
    said = b""
    while b"ready" not in said:
        said += os.read(terminal, 65536)
    everybody = psutil.Process(process.pid).children(recursive=True)
    assert len(everybody) == 1
    os.close(terminal)
    process.wait(30)
    assert psutil.wait_procs(everybody, timeout=1)[1] == []
