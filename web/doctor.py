"""Examines a set-up and says in full sentences what is wrong with it and what to do."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from shared.settings import Settings, describe, variable
from shared.store.errors import StoreError
from shared.store.store import Store, open_store

OLDEST_REDIS = (7, 0)
GREATEST_SKEW_SECONDS = 2.0
GUNICORN_CONFIG = Path("gunicorn.conf.py")


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; ``topic`` is a stable word for programs, ``sentence`` is for people."""

    level: Level
    topic: str
    sentence: str


def examine(settings: Settings) -> list[Finding]:
    """Everything that can be told from this process; never raises for a set-up that is broken."""
    store = open_store(settings)
    try:
        reachable = _reachable(store)
        found = [reachable]
        if reachable.level is not Level.WRONG:
            for look in (redis_findings, _clock, _workers, _auth):
                found += _guarded(look, store)
        else:
            found += [finding for finding in _auth_settings(settings) if finding.level is not Level.OK]
        return [*found, *_web_server()]
    finally:
        store.close()


def worker_of_this_host(settings: Settings) -> Finding:
    """Whether a worker on this host has a fresh heartbeat; for a container's health check."""
    store = open_store(settings)
    host = socket.gethostname()
    try:
        here = [beat for beat in store.workers.alive() if beat.facts.get("host") == host]
    except StoreError as error:
        return Finding(Level.WRONG, "worker", f"The workers cannot be seen: {error}.")
    finally:
        store.close()
    if here:
        return Finding(Level.OK, "worker", f"The worker {here[0].name} of this host has a fresh heartbeat.")
    return Finding(Level.WRONG, "worker", f"No worker of this host ({host}) has a fresh heartbeat.")


def redis_findings(store: Store) -> Iterator[Finding]:
    """Version, persistence and eviction of the server; raises ``StoreError`` when it does not answer."""
    yield _version(store.server_info("server"))
    yield _persistence(store.server_info("persistence"))
    yield _eviction(store.server_info("memory"))


def _guarded(look: Callable[[Store], Iterator[Finding]], store: Store) -> list[Finding]:
    try:
        return list(look(store))
    except StoreError as error:
        topic = look.__name__.removeprefix("_").removesuffix("_findings")
        return [Finding(Level.WARNING, topic, f"This could not be examined: {error}.")]


def _reachable(store: Store) -> Finding:
    address = describe(store.settings)["redis_url"]
    try:
        store.ping()
    except StoreError as error:
        return Finding(
            Level.WRONG,
            "redis",
            f"Redis at {address} does not serve us: {error}. "
            "Start it, or set OUTLAST_REDIS_URL to where it is.",
        )
    return Finding(Level.OK, "redis", f"Redis answers at {address}.")


def _version(info: dict[str, Any]) -> Finding:
    name = "Valkey" if info.get("server_name") == "valkey" else "Redis"
    shown = str(info.get("valkey_version") or info.get("redis_version") or "0")
    version = tuple(int(part) for part in re.findall(r"\d+", shown)[:2])
    if name == "Redis" and version < OLDEST_REDIS:
        return Finding(
            Level.WRONG,
            "version",
            f"Redis is {shown}; Outlast needs 7.0 or newer, or Valkey. Upgrade the server.",
        )
    return Finding(Level.OK, "version", f"The server is {name} {shown}.")


def _persistence(info: dict[str, Any]) -> Finding:
    if not int(info.get("aof_enabled", 0)):
        return Finding(
            Level.WRONG,
            "persistence",
            "The append-only file is off, so a restart of Redis forgets accepted runs. "
            "Start Redis with --appendonly yes.",
        )
    if info.get("aof_last_write_status", "ok") != "ok":
        return Finding(
            Level.WRONG,
            "persistence",
            "Redis could not write its append-only file; look at the space on its disk and at its log.",
        )
    return Finding(Level.OK, "persistence", "The append-only file is on.")


def _eviction(info: dict[str, Any]) -> Finding:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return Finding(Level.OK, "eviction", "Redis evicts nothing when its memory is full.")
    # Without a memory limit nothing is ever evicted, but somebody may set one later.
    level = Level.WRONG if int(info.get("maxmemory", 0)) else Level.WARNING
    return Finding(
        level,
        "eviction",
        f"The eviction policy is {policy}, so a full Redis throws records and logs away. "
        "Set maxmemory-policy to noeviction.",
    )


def _clock(store: Store) -> Iterator[Finding]:
    before = time.time()
    theirs = store.runs.now_ms() / 1000
    skew = theirs - (before + time.time()) / 2
    if abs(skew) <= GREATEST_SKEW_SECONDS:
        yield Finding(Level.OK, "clock", f"The clocks of this host and of Redis differ by {abs(skew):.2f} s.")
        return
    relation = "ahead of" if skew > 0 else "behind"
    yield Finding(
        Level.WARNING,
        "clock",
        f"The clock of Redis is {abs(skew):.1f} s {relation} this host's. Runs are timed by Redis alone, "
        "but tokens that expire and log lines are not: synchronise both clocks.",
    )


def _workers(store: Store) -> Iterator[Finding]:
    alive = store.workers.alive()
    if not alive:
        yield Finding(
            Level.WRONG,
            "worker",
            "No worker has a fresh heartbeat, so accepted runs wait. Start one: celery -A worker worker.",
        )
        return
    names = ", ".join(f"{beat.name}{_age(beat.facts)}" for beat in alive)
    yield Finding(Level.OK, "worker", f"Seen: {names}.")
    agents = store.workers.agents()
    offered = [name for name, facts in agents.items() if facts["offered"] == "now"]
    gone = [name for name in agents if name not in offered]
    if offered:
        known = f" Known from workers that are gone: {', '.join(gone)}." if gone else ""
        yield Finding(Level.OK, "agents", f"Agents offered: {', '.join(offered)}.{known}")
    else:
        yield Finding(Level.WRONG, "agents", "The workers offer no agents; look at their start-up log.")


def _age(facts: dict[str, Any]) -> str:
    started = facts.get("started_at")
    if not isinstance(started, int | float):
        return ""
    seconds = time.time() - (started / 1000 if started > 1e11 else started)
    return f" (up for {max(seconds, 0):.0f} s)"


def _auth(store: Store) -> Iterator[Finding]:
    settings = store.settings
    if (
        settings.auth == "keys"
        and not (settings.jwt_secret or settings.jwt_jwks_url)
        and not store.api_keys.any()
    ):
        yield Finding(
            Level.WRONG,
            "auth",
            "There is no API key and no JWT setting, so every request is answered 401. "
            "Make a key: flask keys create NAME.",
        )
        return
    yield from _auth_settings(settings)


def _auth_settings(settings: Settings) -> Iterator[Finding]:
    if settings.auth == "none":
        yield Finding(
            Level.WARNING,
            "auth",
            "Authentication is off: only direct requests from this machine are served. "
            "Set OUTLAST_AUTH=keys for everybody else.",
        )
    else:
        yield Finding(Level.OK, "auth", "Requests are authenticated.")


def _web_server() -> Iterator[Finding]:
    configured = _worker_class(GUNICORN_CONFIG, variable("GUNICORN_CMD_ARGS") or "")
    if configured is None:
        return
    if configured == "sync":
        yield Finding(
            Level.WRONG,
            "web",
            "gunicorn is configured with its sync worker class, which serves one stream at a time and kills "
            "it after its time-out. Use --worker-class gevent, or gthread with more threads than streams.",
        )
    else:
        yield Finding(Level.OK, "web", f"gunicorn is configured with the worker class {configured}.")


def _worker_class(config: Path, arguments: str) -> str | None:
    """The worker class that gunicorn would take, or None where nothing configures gunicorn."""
    if not config.exists() and not arguments:
        return None
    chosen = _assignments(config) | _options(arguments)
    threads = str(chosen.get("threads", "1"))
    worker_class = str(chosen.get("worker_class", "sync"))
    return "gthread" if worker_class == "sync" and threads.isdigit() and int(threads) > 1 else worker_class


def _assignments(config: Path) -> dict[str, Any]:
    try:
        tree = ast.parse(config.read_text())
    except (OSError, SyntaxError, ValueError):
        return {}
    return {
        target.id: node.value.value if isinstance(node.value, ast.Constant) else "computed"
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _options(arguments: str) -> dict[str, str]:
    names = {"-k": "worker_class", "--worker-class": "worker_class", "--threads": "threads"}
    words = [part for word in shlex.split(arguments) for part in word.split("=", 1)]
    return {names[word]: value for word, value in itertools.pairwise(words) if word in names}
