"""What agents there are, found out in a process that is thrown away, so that a pool's parent loads none."""

from __future__ import annotations

import json
import os
from typing import Any, Protocol

from shared.settings import Settings
from worker.agents.registry import Registry, RegistryError, load_registry


class Agents(Protocol):
    """What the heartbeat tells of a worker's agents; a Registry is one."""

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        ...

    def catalogue(self) -> dict[str, dict[str, Any]]:
        """Name to description, capabilities, policy."""
        ...


class Roster:
    """The catalogue alone, without the agents."""

    def __init__(self, catalogue: dict[str, dict[str, Any]]) -> None:
        self._catalogue = catalogue

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._catalogue))

    def catalogue(self) -> dict[str, dict[str, Any]]:
        """Name to description, capabilities, policy."""
        return self._catalogue


def probe(settings: Settings) -> Roster:
    """Loads all agents in a forked child and keeps what they tell of themselves.

    A client that connects while its module is imported would otherwise share one socket with every
    child of the pool, and they would read each other's answers. Raises RegistryError.
    """
    hear, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(hear)
        _tell(tell, settings)
    os.close(tell)
    with os.fdopen(hear, "rb") as pipe:
        # One line, not to the end: what a module may have forked holds the pipe open.
        line = pipe.readline()
    _, status = os.waitpid(child, 0)
    if not line.endswith(b"\n"):
        code = os.waitstatus_to_exitcode(status)
        raise RegistryError(f"Importing the agents ended the process that did it (status {code}).")
    told = json.loads(line)
    if "error" in told:
        raise RegistryError(told["error"])
    return Roster(told["catalogue"])


def _tell(pipe: int, settings: Settings) -> None:
    """Answers and ends the child, whatever a module does; nothing of the parent is closed or flushed."""
    try:
        registry: Registry = load_registry(settings)
        told: dict[str, Any] = {"catalogue": registry.catalogue()}
        line = json.dumps(told)
    except RegistryError as error:
        line = json.dumps({"error": str(error)})
    except BaseException as error:  # noqa: BLE001 - SystemExit at an import is a finding like any other
        line = json.dumps({"error": f"Importing the agents failed: {type(error).__name__}: {error}"})
    try:
        with os.fdopen(pipe, "wb") as out:
            out.write(line.encode() + b"\n")
    finally:
        os._exit(0)
