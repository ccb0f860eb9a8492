"""The project's own files, read once."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("shared", "worker", "web")


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def files() -> list[Path]:
    """Every file that belongs to the project: what git tracks or would add."""
    if shutil.which("git") and (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\0")
        return [ROOT / name for name in listed if name and (ROOT / name).is_file()]
    hidden = {".venv", ".outlast", "node_modules", "__pycache__", "dist"}
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file() and not hidden & set(path.parts) and "_cache" not in str(path.relative_to(ROOT))
    ]


@pytest.fixture(scope="session")
def texts(files: list[Path]) -> dict[str, str]:
    """The text of every text file, by its path below the root."""
    found = {}
    for path in files:
        try:
            found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return found


@pytest.fixture(scope="session")
def modules(texts: dict[str, str]) -> dict[str, ast.Module]:
    """The product's Python modules, parsed, by path."""
    return {
        path: ast.parse(text)
        for path, text in texts.items()
        if path.endswith(".py") and path.split("/")[0] in ROOMS
    }
