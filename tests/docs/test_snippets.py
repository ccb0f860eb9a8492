"""Python snippets in the pages run, and the agents they define complete a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from worker.agents.testing import record, run_input

_ROOT = Path(__file__).parents[2]
_PAGES = [_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)

_SNIPPETS = [
    pytest.param(
        found.group(1), id=f"{page.relative_to(_ROOT)}:{page.read_text()[: found.start()].count(chr(10)) + 1}"
    )
    for page in _PAGES
    for found in _FENCE.finditer(page.read_text())
]


@pytest.mark.parametrize("snippet", _SNIPPETS)
def test_a_snippet_runs_and_its_agents_succeed(snippet):
    names: dict[str, object] = {}
    exec(compile(snippet, "snippet", "exec"), names)
    for agent in names.get("AGENTS", {}).values():
        events = record(agent, run_input("hello"))
        assert events[-1].type.value == "RUN_FINISHED"


def test_there_are_snippets():
    assert len(_SNIPPETS) >= 6
