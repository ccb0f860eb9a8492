"""The curl lines of docs/interrupts.md: a question, and its answer without the conversation in between."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.local.server import EmbeddedServer
from tests.journeys.stack import Stack

PAGE = (Path(__file__).parents[2] / "docs" / "interrupts.md").read_text()


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def desk() -> Iterator[Stack]:
    """A stack with the page's agent."""
    with tempfile.TemporaryDirectory(prefix="outlast-journeys-") as folder:
        (Path(folder) / "desk.py").write_text(snippets("python")[0].partition("events = ")[0])
        server = EmbeddedServer(Path(folder) / "redis")
        server.start()
        stack = Stack(Path(folder), server, OUTLAST_AGENTS="desk:AGENTS", PYTHONPATH=folder)
        try:
            stack.start("gunicorn")
            yield stack
        finally:
            stack.close()
            server.stop()


def events_of(line: str, stack: Stack) -> list[dict[str, Any]]:
    line = line.replace("curl", "curl -sS", 1).replace(":8000", f":{stack.port}")
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=30)
    return [json.loads(text[6:]) for text in done.stdout.splitlines() if text.startswith("data: ")]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_a_question_is_answered_over_curl_without_the_calls_message(desk: Stack):
    ask, reply = snippets("sh")
    (asked,) = events_of(ask, desk)[-1]["outcome"]["interrupts"]
    assert asked["id"] in reply
    events = events_of(reply, desk)
    assert events[-1]["type"] == "RUN_FINISHED"
    (result,) = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert (result["toolCallId"], result["content"]) == (asked["toolCallId"], "deleted")
