"""The guide's first ten minutes, as a newcomer has them: a file in an empty folder, one command, one curl."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import wait_for
from tests.journeys.processes import ROOT, Process, free_port

GUIDE = (ROOT / "docs" / "writing-an-agent.md").read_text()


def first(language: str, holding: str) -> str:
    """The guide's first snippet of a language with these words."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    return next(snippet for snippet in found if holding in snippet)


@pytest.fixture
def newcomers_port(tmp_path: Path) -> Iterator[int]:
    """What ``make run`` starts, with the variables of the guide."""
    (tmp_path / "my_agents.py").write_text(first("python", "greeter"))
    line = first("sh", "make -C").strip().replace("$PWD", str(tmp_path))
    variables, command = line.split(" make ", 1)
    assert command == "-C ~/outlast run"
    port = free_port()
    environment = {**os.environ, **dict(each.split("=", 1) for each in variables.split())}
    # The embedded server's socket needs a short path.
    with tempfile.TemporaryDirectory(prefix="outlast-") as data:
        started = [sys.executable, "-m", "shared.local", "--data", data, "--port", str(port)]
        process = Process("guide", started, folder=tmp_path, environment=environment)

        def ready() -> bool:
            assert process.alive, process.tail()
            try:
                agents = httpx.get(f"http://127.0.0.1:{port}/agents").json().get("agents", [])
            except httpx.TransportError:
                return False
            return "greeter" in {agent["name"] for agent in agents}

        wait_for(ready, 60, pause=0.1)
        yield port
        process.kill()


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_an_agent_from_an_empty_folder_answers(newcomers_port: int):
    line = first("sh", "curl").replace("127.0.0.1:8000", f"127.0.0.1:{newcomers_port}")
    said = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=30).stdout
    assert "Hello. You said: good morning" in said
    assert said.count('"RUN_FINISHED"') == 1
    described = httpx.get(f"http://127.0.0.1:{newcomers_port}/agents/greeter").json()
    assert described["description"] == "Greets whoever speaks."
