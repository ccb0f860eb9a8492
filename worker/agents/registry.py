"""The agents of this worker: the shipped ones, those of ``OUTLAST_AGENTS``, and installed ones."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from shared.settings import Settings
from worker.agents.base import AgentEntry
from worker.agents.echo import echo
from worker.agents.entries import entry_for
from worker.agents.scripted import demo

GROUP = "outlast.agents"
"""The entry point group in which installed packages offer agents, one entry point per agent."""

_VARIABLE = "OUTLAST_AGENTS"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class RegistryError(Exception):
    """An agent that cannot be registered; the text is a sentence for the person who set it up."""


class Registry:
    """Agents by name."""

    def __init__(self) -> None:
        self._entries: dict[str, AgentEntry] = {}
        self._sources: dict[str, str] = {}

    def add(self, name: object, agent: Any, source: str) -> None:
        """Registers an agent. Raises RegistryError for a bad name, a name taken, and what cannot be run."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise RegistryError(
                f"{source} names an agent {name!r}; a name has 1 to 64 letters, digits, dots, dashes "
                "or underscores and starts with a letter or digit."
            )
        if name in self._entries:
            raise RegistryError(
                f"{source} names an agent {name!r}, but {self._sources[name]} has that name already."
            )
        if isinstance(agent, AgentEntry):
            entry = dataclasses.replace(agent, name=name)
        else:
            try:
                entry = entry_for(name, agent)
            except TypeError as error:
                raise RegistryError(f"{source} names an agent {name!r}, which {error}.") from None
        self._entries[name] = entry
        self._sources[name] = source

    def get(self, name: str) -> AgentEntry | None:
        """The agent of that name."""
        return self._entries.get(name)

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._entries))

    def retries(self) -> dict[str, int]:
        """How often the agents' runs are executed again when their worker is lost; only those that are."""
        return {
            name: entry.retry_on_worker_lost
            for name, entry in self._entries.items()
            if entry.retry_on_worker_lost
        }

    def catalogue(self) -> dict[str, dict[str, Any]]:
        """What workers tell about their agents: name to description, capabilities, policy."""
        return {name: self._entries[name].facts() for name in self.names()}


def load_registry(settings: Settings) -> Registry:
    """All agents of this worker; the working folder is importable from then on. Raises RegistryError."""
    registry = Registry()
    for name, agent in _shipped(settings):
        registry.add(name, agent, "Outlast itself")
    folder = str(Path.cwd())
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)
    for spec in (settings.agents or "").split(","):
        if spec.strip():
            for name, agent in _mapping(spec.strip()).items():
                registry.add(name, agent, f"{_VARIABLE}={spec.strip()}")
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        source = f"The entry point {point.name} = {point.value} in the group {GROUP}"
        registry.add(point.name, _loaded(point.load, source), source)
    return registry


def _shipped(settings: Settings) -> Iterator[tuple[str, Any]]:
    yield "demo", demo
    yield "echo", echo
    if settings.chat_model:
        from worker.agents.chat_agent import make_chat

        told = "A model behind an OpenAI-compatible endpoint"
        try:
            yield "chat", make_chat(settings, description=told)
        except ValueError as error:
            raise RegistryError(f"The shipped agent chat cannot be offered: {error}.") from error


def _mapping(spec: str) -> Mapping[Any, Any]:
    module_name, colon, attribute = spec.partition(":")
    if not colon or not module_name or not attribute:
        raise RegistryError(f"{_VARIABLE} holds {spec!r}; it must have the form package.module:NAME.")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise RegistryError(
                f"{_VARIABLE} names the module {module_name}, which does not exist on the import path "
                f"(the working folder is {Path.cwd().name!r}). If it is elsewhere, put its folder on the "
                "path; from there: PYTHONPATH=$PWD."
            ) from None
        raise RegistryError(
            f"{_VARIABLE} names the module {module_name}, which needs the missing module {error.name}."
        ) from error
    except Exception as error:
        raise RegistryError(
            f"{_VARIABLE} names the module {module_name}, whose import failed: "
            f"{type(error).__name__}: {error}"
        ) from error
    agents: Any = module
    for part in attribute.split("."):
        agents = getattr(agents, part, None)
    if not isinstance(agents, Mapping):
        found = "nothing" if agents is None else f"a {type(agents).__name__}"
        raise RegistryError(
            f"{_VARIABLE} names {spec}, where there is {found}; "
            f"it must be a mapping from agent name to a callable.{_others(module)}"
        )
    return agents


def _others(module: ModuleType) -> str:
    """What of a module could have been meant, as a sentence; empty where nothing could."""
    names = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and isinstance(value, Mapping) and any(map(callable, value.values()))
    ]
    return f" In {module.__name__} there is: {', '.join(names)}." if names else ""


def _loaded(load: Callable[[], Any], source: str) -> Any:
    try:
        return load()
    except Exception as error:
        raise RegistryError(f"{source} cannot be loaded: {type(error).__name__}: {error}") from error
