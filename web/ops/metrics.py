"""``/metrics`` in Prometheus's text format, computed from Redis: any web process tells the same.

Only the gauges of this process (open streams and its like) carry a label that names it.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterator
from dataclasses import fields

from flask import Blueprint, Response

from shared.runs.access import Role
from shared.store.connection import FAILURES
from shared.store.errors import StoreFull, StoreUnavailable, StoreUncertain
from shared.store.stats import BOUNDS_MS, HISTOGRAMS, Histogram
from shared.store.store import Store
from shared.store.sweep import Swept
from web.identity import current_actor
from web.openapi import Answer, Operation, operation
from web.ops.metric import METRICS, Family, family, number
from web.ops.rights import require
from web.services import Services, services

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

ERROR_KINDS = tuple(kind.__name__ for kind in (StoreFull, StoreUnavailable, StoreUncertain))

blueprint = Blueprint("metrics", __name__)


@blueprint.get("/metrics")
@operation(
    Operation(
        "Numbers for Prometheus",
        "operations",
        answers={200: Answer("Text format 0.0.4.", {"text/plain": {"type": "string"}})},
    )
)
def metrics() -> Response:
    """Needs the role viewer, unless the setting ``metrics_public`` serves it to everybody."""
    held = services()
    if not held.settings.metrics_public:
        require(current_actor(), Role.VIEWER)
    text = "\n".join(line for found in families(held) for line in found.lines())
    answer = Response(text + "\n", content_type=CONTENT_TYPE)
    answer.headers["Cache-Control"] = "no-store"
    return answer


def families(held: Services) -> Iterator[Family]:
    """Every metric of this installation."""
    yield from _runs(held.store)
    yield from _live(held.store)
    yield from _sweeps(held.store)
    yield from _workers(held.store)
    yield from _process(held)


def _runs(store: Store) -> Iterator[Family]:
    totals = store.stats.totals()
    yield family("outlast_runs_accepted_total").add(totals.accepted)
    ended = family("outlast_runs_total")
    for (agent, outcome, code), count in sorted(totals.endings.items()):
        ended.add(count, agent=agent, outcome=outcome, code=code)
    yield ended
    for name in HISTOGRAMS:
        yield _histogram(f"outlast_{name}_seconds", totals.histograms[name])


def _histogram(name: str, found: Histogram) -> Family:
    shown, total = family(name), 0
    for bound, count in zip((*(ms / 1000 for ms in BOUNDS_MS), math.inf), found.counts, strict=True):
        total += count
        shown.add(total, "_bucket", le=number(bound))
    return shown.add(found.sum_ms / 1000, "_sum").add(total, "_count")


def _live(store: Store) -> Iterator[Family]:
    view = store.live.view()
    counts = view.counts()
    live = family("outlast_live_runs")
    for state in ("ready", "waiting", "running", "cancelling"):
        live.add(counts[state], state=state)
    yield live
    troubles = family("outlast_attention_runs")
    kinds = dict.fromkeys(("orphaned", "cancelling", "stalled", "queued_long"), 0)
    for run in view.runs:
        for one in view.attention(run):
            kinds[one.kind] = kinds.get(one.kind, 0) + one.late
    for kind, count in kinds.items():
        troubles.add(count, kind=kind)
    yield troubles
    depth, oldest = store.stats.ready()
    yield family("outlast_queue_depth").add(depth)
    yield family("outlast_queue_oldest_seconds").add((oldest or 0) / 1000)
    yield family("outlast_intake_paused").add(store.controls.paused() is not None)


def _sweeps(store: Store) -> Iterator[Family]:
    counted = store.stats.sweeps()
    yield family("outlast_sweep_passes_total").add(counted.get("passes", 0))
    runs = family("outlast_sweep_runs_total")
    for act in fields(Swept):
        runs.add(counted.get(act.name, 0), act=act.name)
    yield runs


def _workers(store: Store) -> Iterator[Family]:
    beats = store.workers.alive()
    yield family("outlast_workers").add(len(beats))
    for name, fact in (
        ("outlast_worker_slots", "slots"),
        ("outlast_worker_busy", "busy"),
        ("outlast_worker_abandoned", "abandoned"),
        ("outlast_worker_coroutines_left", "coroutines_left"),
        ("outlast_worker_redis_errors_total", "redis_errors"),
    ):
        shown = family(name)
        for beat in beats:
            shown.add(float(beat.facts.get(fact, 0)), worker=beat.name)
        yield shown


def _process(held: Services) -> Iterator[Family]:
    own = f"{socket.gethostname()}:{os.getpid()}"
    told = held.hub.stats()
    yield family("outlast_open_streams").add(told.pop("open_streams", 0), process=own)
    for name, count in sorted(told.items()):
        gauge = f"outlast_hub_{name}"
        yield family(gauge if gauge in METRICS else f"{gauge}_total").add(count, process=own)
    errors = family("outlast_redis_errors_total")
    # From the start, because Prometheus sees no increase in a counter that appears with its first count.
    for kind, count in sorted((dict.fromkeys(ERROR_KINDS, 0) | FAILURES).items()):
        errors.add(count, kind=kind, process=own)
    yield errors
