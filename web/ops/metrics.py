"""``/metrics`` in Prometheus's text format, computed from Redis: any web process tells the same.

Only the gauges of this process (open streams and its like) carry a label that names it.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from flask import Blueprint, Response

from shared.runs.access import Role
from shared.store.connection import FAILURES
from shared.store.stats import BOUNDS_MS, Histogram
from shared.store.store import Store
from web.identity import current_actor
from web.openapi import Answer, Operation, operation
from web.ops.rights import require
from web.services import Services, services

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

blueprint = Blueprint("metrics", __name__)

_HISTOGRAMS = {
    "queue_wait": "From ready for a worker to claimed.",
    "first_event": "From ready for a worker to the agent's first event.",
    "duration": "From claimed to the recorded ending.",
    "cancel_latency": "From the cancel request to the recorded ending.",
}

Labels = Mapping[str, str]


@dataclass(slots=True)
class Family:
    """One metric with its samples: suffix, labels, value."""

    name: str
    kind: str
    help: str
    samples: list[tuple[str, Labels, float]] = field(default_factory=list)

    def add(self, value: float, suffix: str = "", **labels: str) -> Family:
        self.samples.append((suffix, labels, value))
        return self

    def lines(self) -> Iterator[str]:
        """HELP, TYPE, and one line per sample (Prometheus exposition format 0.0.4)."""
        yield f"# HELP {self.name} {_escaped(self.help)}"
        yield f"# TYPE {self.name} {self.kind}"
        for suffix, labels, value in self.samples:
            shown = ",".join(f'{name}="{_quoted(text)}"' for name, text in labels.items())
            yield f"{self.name}{suffix}{f'{{{shown}}}' if shown else ''} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))


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
    text = "\n".join(line for family in families(held) for line in family.lines())
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
    yield Family("outlast_runs_accepted_total", "counter", "Runs accepted.").add(totals.accepted)
    ended = Family("outlast_runs_total", "counter", "Runs ended, by agent, outcome and failure code.")
    for (agent, outcome, code), count in sorted(totals.endings.items()):
        ended.add(count, agent=agent, outcome=outcome, code=code)
    yield ended
    for name, text in _HISTOGRAMS.items():
        yield _histogram(f"outlast_{name}_seconds", text, totals.histograms[name])


def _histogram(name: str, text: str, found: Histogram) -> Family:
    family = Family(name, "histogram", text)
    total = 0
    for bound, count in zip((*(ms / 1000 for ms in BOUNDS_MS), math.inf), found.counts, strict=True):
        total += count
        family.add(total, "_bucket", le=_number(bound))
    return family.add(found.sum_ms / 1000, "_sum").add(total, "_count")


def _live(store: Store) -> Iterator[Family]:
    view = store.live.view()
    counts = view.counts()
    live = Family("outlast_live_runs", "gauge", "Live runs by where they are; cancelling ones run too.")
    for state in ("ready", "waiting", "running", "cancelling"):
        live.add(counts[state], state=state)
    yield live
    troubles = Family("outlast_attention_runs", "gauge", "Live runs that need a person's look, by why.")
    kinds = dict.fromkeys(("orphaned", "cancelling", "stalled", "queued_long"), 0)
    for run in view.runs:
        for one in view.attention(run):
            kinds[one.kind] += one.late
    for kind, count in kinds.items():
        troubles.add(count, kind=kind)
    yield troubles
    depth, oldest = store.stats.ready()
    yield Family("outlast_queue_depth", "gauge", "Runs that wait for a worker.").add(depth)
    yield Family("outlast_queue_oldest_seconds", "gauge", "How long the oldest of them has waited.").add(
        (oldest or 0) / 1000
    )
    paused = store.controls.paused() is not None
    yield Family("outlast_intake_paused", "gauge", "Whether operators paused the intake.").add(paused)


def _sweeps(store: Store) -> Iterator[Family]:
    counted = store.stats.sweeps()
    passes = counted.get("passes", 0)
    yield Family("outlast_sweep_passes_total", "counter", "Passes of the sweep.").add(passes)
    runs = Family("outlast_sweep_runs_total", "counter", "Runs that the sweep repaired, by what it did.")
    for act in ("ended", "enqueued", "timed_out", "expired"):
        runs.add(counted.get(act, 0), act=act)
    yield runs


_WORKER_GAUGES = {"slots": "Runs at once.", "busy": "Slots in use.", "abandoned": "Slots of deaf agents."}


def _workers(store: Store) -> Iterator[Family]:
    beats = store.workers.alive()
    yield Family("outlast_workers", "gauge", "Workers with a fresh heartbeat.").add(len(beats))
    for fact, text in _WORKER_GAUGES.items():
        family = Family(f"outlast_worker_{fact}", "gauge", text)
        for beat in beats:
            family.add(float(beat.facts.get(fact, 0)), worker=beat.name)
        yield family
    failures = Family("outlast_worker_redis_errors_total", "counter", "Failed calls of Redis in workers.")
    for beat in beats:
        failures.add(float(beat.facts.get("redis_errors", 0)), worker=beat.name)
    yield failures


_HUB_GAUGES = {"followed_runs", "ring_bytes"}


def _process(held: Services) -> Iterator[Family]:
    own = f"{socket.gethostname()}:{os.getpid()}"
    told = held.hub.stats()
    streams = Family("outlast_open_streams", "gauge", "Streams open in this web process.")
    yield streams.add(told.get("open_streams", 0), process=own)
    for name, count in sorted(told.items()):
        text = f"The hub's {name.replace('_', ' ')} in this web process."
        if name in _HUB_GAUGES:
            yield Family(f"outlast_hub_{name}", "gauge", text).add(count, process=own)
        elif name != "open_streams":
            yield Family(f"outlast_hub_{name}_total", "counter", text).add(count, process=own)
    errors = Family("outlast_redis_errors_total", "counter", "Failed calls of Redis in this web process.")
    for kind, count in sorted(FAILURES.items()):
        errors.add(count, kind=kind, process=own)
    yield errors
