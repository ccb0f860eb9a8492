from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from shared.settings import Settings
from worker.agents.registry import RegistryError, load_registry
from worker.roster import probe


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of agents that nobody has imported yet."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / f"probed_{tmp_path.name}.py"


def settings_for(module: Path, text: str) -> Settings:
    module.write_text(text)
    return Settings(agents=f"{module.stem}:AGENTS")


def test_a_probe_tells_what_the_agents_tell_of_themselves_and_imports_nothing_here(module: Path):
    settings = settings_for(module, 'def one(ctx):\n    """Does it."""\n\n\nAGENTS = {"one": one}\n')
    roster = probe(settings)
    assert module.stem not in sys.modules
    registry = load_registry(settings)
    assert roster.catalogue() == registry.catalogue()
    assert roster.names() == registry.names()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("AGENTS = []", "it must be a mapping from agent name to a callable"),
        ("1 / 0", "whose import failed: ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import os\nos._exit(7)", "ended the process that did it (status 7)"),
        ("import os\nos.kill(os.getpid(), 9)", "ended the process that did it (status -9)"),
    ],
)
def test_what_is_wrong_with_them_is_told_in_a_sentence(module: Path, text: str, told: str):
    with pytest.raises(RegistryError) as refused:
        probe(settings_for(module, text))
    assert told in str(refused.value)


def test_a_process_that_a_module_leaves_behind_holds_up_nothing(module: Path):
    text = "import os, time\nif os.fork() == 0:\n    time.sleep(5)\n    os._exit(0)\nAGENTS = {}\n"
    began = time.monotonic()
    assert "echo" in probe(settings_for(module, text)).names()
    assert time.monotonic() - began < 4
