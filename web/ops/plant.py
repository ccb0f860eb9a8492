"""What the runs run on: workers, queue, numbers, Redis."""

from __future__ import annotations

import platform
from collections import Counter
from typing import Any

from shared.runs.lifecycle import Status
from shared.runs.outcome import FailureCode
from shared.runs.record import rfc3339
from shared.settings import describe
from shared.store.live import LiveRun, LiveView
from shared.store.stats import MOST_MINUTES, Numbers, Overview
from shared.store.store import Store
from shared.store.workers import WorkerBeat
from web.doctor import redis_findings
from web.services import Services

TIMEOUT = str(FailureCode.TRANSPORT_TIMEOUT)
ENDINGS = ("succeeded", "interrupted", "cancelled", "failed", TIMEOUT)

_THREAD_EFFECT = (
    "An async agent's task is cancelled at once. A plain function that does not stop cannot be stopped: "
    "what it writes is refused, and it keeps its slot until it returns."
)
EFFECTS = {
    "threads": _THREAD_EFFECT,
    "solo": _THREAD_EFFECT,
    "prefork": (
        "The agent is told, and its pool child is killed when it has not stopped after a second; "
        "no other run is in it. A tool that was called may have acted."
    ),
}
NO_WORKER_EFFECT = (
    "Its worker is not heard of. The record is ended, and whatever still runs there is refused."
)

HEARD_SECONDS = 6.0
"""A worker silent for longer has missed three heartbeats: its slots are not counted on."""

RUNS_OF_WORKER = 20
"""Runs that are listed with a worker; the others are counted."""


def family(name: str) -> str:
    """What all processes of one worker have in common in their names."""
    return name.rpartition(":")[2]


def beat_of(beats: list[WorkerBeat], process: str | None) -> WorkerBeat | None:
    """The heartbeat of the worker that this process belongs to."""
    if process is None:
        return None
    return next((beat for beat in beats if family(beat.name) == family(process)), None)


def effect_of(beat: WorkerBeat | None) -> str:
    """What a forced stop can do there."""
    if beat is None:
        return NO_WORKER_EFFECT
    return EFFECTS.get(str(beat.facts.get("pool")), _THREAD_EFFECT)


def workers(store: Store, view: LiveView, beats: list[WorkerBeat]) -> list[dict[str, Any]]:
    """Every worker with a fresh heartbeat and its runs: those in trouble first, then the oldest."""
    drained = store.controls.draining()
    owned: dict[str, list[LiveRun]] = {}
    for run in view.runs:
        if run.worker:
            owned.setdefault(family(run.worker), []).append(run)
    shown = []
    for beat in beats:
        own = owned.get(family(beat.name), [])
        own.sort(key=lambda run: (not view.attention(run), run.times.get("started_at", 0)))
        row: dict[str, Any] = {
            "name": beat.name,
            **beat.facts,
            "terminate_effect": effect_of(beat),
            "runs": [_run(run, view) for run in own[:RUNS_OF_WORKER]],
            "runs_total": len(own),
        }
        if isinstance(row.get("started_at"), int):
            row["started_at"] = rfc3339(row["started_at"])
        row["silent_seconds"] = round(beat.silent_seconds, 1)
        if beat.name in drained:
            row |= {"draining": True, "draining_by": drained[beat.name].document()}
        shown.append(row)
    return shown


def _run(run: LiveRun, view: LiveView) -> dict[str, Any]:
    since = run.times.get("started_at", view.now_ms)
    return {
        "key": run.key,
        "agent": run.agent,
        "since_seconds": round((view.now_ms - since) / 1000, 1),
        "attention": [str(one.kind) for one in view.attention(run)],
    }


def queues(services: Services, view: LiveView, numbers: Overview, beats: list[WorkerBeat]) -> dict[str, Any]:
    """The one queue: its depth, its oldest run, and who takes from it."""
    store = services.store
    ready = [run.times["ready_at"] for run in view.runs if _is_ready(run)]
    heard = [beat for beat in beats if beat.silent_seconds <= HEARD_SECONDS]
    shown: dict[str, Any] = {
        "name": services.settings.queue,
        "depth": services.queue.depth(),
        "ready": len(ready),
        "waiting": view.counts()["waiting"],
        "workers": len(beats),
        "slots": sum(int(beat.facts.get("slots", 0)) for beat in heard),
        "busy": sum(int(beat.facts.get("busy", 0)) for beat in heard),
        "series": [
            {
                "minute": minute.minute,
                "at": rfc3339(minute.minute * 60_000),
                "depth": minute.depth,
                "oldest_seconds": round((minute.oldest_ms or 0) / 1000, 1),
            }
            for minute in numbers.minutes
            if minute.depth is not None
        ],
        "flow": [
            {"at": rfc3339(minute.minute * 60_000), "minute": minute.minute, **_flow(minute.numbers)}
            for minute in numbers.minutes
        ],
    }
    if len(numbers.minutes) > 1:
        shown["last_minute"] = _flow(numbers.minutes[-2].numbers)
    if ready:
        shown["oldest_ready_seconds"] = round((view.now_ms - min(ready)) / 1000, 1)
    paused = store.controls.paused()
    return shown | ({"paused": paused.document()} if paused else {})


def _flow(numbers: Numbers) -> dict[str, int]:
    """Runs that came and runs that a worker took."""
    return {"accepted": numbers.accepted, "claimed": numbers.histograms["queue_wait"].count}


def _is_ready(run: LiveRun) -> bool:
    return run.status is Status.QUEUED and "ready_at" in run.times


def tallied(numbers: Numbers) -> dict[str, int]:
    """Endings by outcome; ``failed`` includes the provider's time-outs, which are counted beside it too."""
    counts = dict.fromkeys(ENDINGS, 0)
    for (_, status, code), count in numbers.endings.items():
        counts[status] += count
        counts[TIMEOUT] += count if code == TIMEOUT else 0
    return counts


def stats(numbers: Overview) -> dict[str, Any]:
    """The last minutes as they are plotted."""
    agents: dict[str, Counter[str]] = {}
    codes: Counter[str] = Counter()
    ended = _ended_per_minute(numbers)
    for (agent, status, code), count in numbers.total.endings.items():
        row = agents.setdefault(agent, Counter())
        row[status] += count
        row[TIMEOUT] += count if code == TIMEOUT else 0
        codes[code] += count if code else 0
    return {
        "minutes": len(numbers.minutes),
        "accepted": numbers.total.accepted,
        "endings": tallied(numbers.total),
        "series": [
            {
                "at": rfc3339(minute.minute * 60_000),
                "minute": minute.minute,
                "accepted": minute.numbers.accepted,
                **tallied(minute.numbers),
            }
            for minute in numbers.minutes
        ],
        "agents": [
            {"agent": agent, **{name: row[name] for name in ENDINGS}, "ended_per_minute": ended[agent]}
            for agent, row in sorted(agents.items())
        ],
        "codes": [{"code": code, "count": count} for code, count in codes.most_common() if count],
        "histograms": {name: found.document() for name, found in numbers.total.histograms.items()},
    }


def history(numbers: Overview) -> list[dict[str, Any]]:
    """Minute by minute, the oldest first: counts, the queue, and percentiles where something was observed."""
    series = []
    for minute in numbers.minutes:
        row: dict[str, Any] = {"at": rfc3339(minute.minute * 60_000), "minute": minute.minute}
        row |= _flow(minute.numbers) | tallied(minute.numbers)
        if minute.depth is not None:
            row |= {"depth": minute.depth, "oldest_seconds": round((minute.oldest_ms or 0) / 1000, 1)}
        for name, found in minute.numbers.histograms.items():
            if found.count:
                row[f"{name}_p50"], row[f"{name}_p95"] = found.quantile_ms(0.5), found.quantile_ms(0.95)
        series.append(row)
    return series


def _ended_per_minute(numbers: Overview) -> dict[str, list[int]]:
    """Agent -> how many of its runs ended in each minute, the oldest first."""
    found: dict[str, list[int]] = {}
    for at, minute in enumerate(numbers.minutes):
        for (agent, _, _), count in minute.numbers.endings.items():
            found.setdefault(agent, [0] * len(numbers.minutes))[at] += count
    for agent, _, _ in numbers.total.endings:
        found.setdefault(agent, [0] * len(numbers.minutes))
    return found


def bounded_minutes(minutes: int) -> int:
    """As many minutes as are kept, one at least."""
    return max(1, min(minutes, MOST_MINUTES))


def system(services: Services) -> dict[str, Any]:
    """Redis, settings, versions, this process."""
    store = services.store
    server, memory = store.server_info("server"), store.server_info("memory")
    clients, persistence = store.server_info("clients"), store.server_info("persistence")
    return {
        "redis": {
            "version": server.get("redis_version"),
            "mode": server.get("redis_mode"),
            "uptime_seconds": server.get("uptime_in_seconds"),
            "used_memory": memory.get("used_memory"),
            "maxmemory": memory.get("maxmemory"),
            "policy": memory.get("maxmemory_policy"),
            "appendonly": bool(persistence.get("aof_enabled")),
            "clients": clients.get("connected_clients"),
        },
        "findings": [
            {"level": str(found.level), "topic": found.topic, "sentence": found.sentence}
            for found in redis_findings(store)
        ],
        "settings": describe(services.settings),
        "keys": store.listing.sizes(),
        "sweeps": store.stats.sweeps(),
        "versions": {"python": platform.python_version()},
        "hub": services.hub.stats(),
    }
