"""The README's shell and JavaScript snippets do what it says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_for
from tests.journeys.stack import Stack

_README = (Path(__file__).parents[2] / "README.md").read_text()
_CLIENT = Path(__file__).resolve().parent / "client"


def _snippets(language: str, stack: Stack) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", _README, re.DOTALL | re.MULTILINE)
    return [snippet.replace("http://127.0.0.1:8000", f"http://127.0.0.1:{stack.port}") for snippet in found]


def _curl(snippet: str) -> list[str]:
    one_line = snippet.replace("\\\n", " ")
    return [
        subprocess.run(
            ["bash", "-c", line.replace("curl", "curl -sS", 1)],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout
        for line in one_line.strip().splitlines()
    ]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_curl_lines_start_repeat_stop_and_read_a_run(stack: Stack):
    start, stop, _ = [snippet for snippet in _snippets("sh", stack) if "curl" in snippet]
    [stream] = _curl(start)
    assert stream.rstrip().splitlines()[-1].startswith('data: {"type":"RUN_FINISHED"')
    [again] = _curl(start)
    assert again.splitlines()[-2] == stream.splitlines()[-2]
    assert again.count("MESSAGES_SNAPSHOT") == 1
    accepted, stopped, record = map(json.loads, _curl(stop))
    assert accepted["status"] in {"queued", "running"}
    assert (stopped["status"], record["status"]) == ("cancelled", "cancelled")


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_rehearsal_of_a_stuck_run_ends_in_the_audit(stack: Stack):
    rehearsal = [snippet for snippet in _snippets("sh", stack) if "curl" in snippet][-1]
    [accepted] = map(json.loads, _curl(rehearsal))
    key = accepted["key"]

    def act(name: str) -> int:
        return stack.request("POST", f"/ops/api/runs/{key}/{name}", body={"reason": "rehearsal"}).status_code

    def record() -> dict[str, Any]:
        told: dict[str, Any] = stack.request("GET", f"/runs/{key}").json()
        return told

    # The last that the agent says before it hears nothing more.
    page = {"Accept": "application/json"}
    wait_for(lambda: '"reply"' in stack.request("GET", f"/runs/{key}/events", headers=page).text)
    assert act("cancel") == 200
    assert record()["status"] == "running"
    wait_for(lambda: f"runs/{key}/terminate" in stack.request("GET", "/ops/").text, 15)
    assert act("terminate") == 200
    wait_for(lambda: record()["status"] == "cancelled")
    entries = stack.request("GET", f"/ops/api/audit?run={key}").json()["entries"]
    done = {entry["action"]: entry["reason"] for entry in entries}
    assert done == {"cancel": "rehearsal", "terminate": "rehearsal"}


@pytest.mark.skipif(
    shutil.which("node") is None or not (_CLIENT / "node_modules").is_dir(),
    reason="needs node, and `npm ci` in tests/journeys/client",
)
def test_the_javascript_runs_the_demo_agent(stack: Stack):
    [snippet] = _snippets("js", stack)
    done = subprocess.run(
        ["node", "--input-type=module", "-"],
        cwd=_CLIENT,
        input=snippet,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "role: 'assistant'" in done.stdout
    assert "one recorded outcome." in done.stdout
    assert done.stderr == ""
