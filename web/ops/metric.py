"""Every metric that ``/metrics`` serves, by name; docs, dashboard and alerts are checked against the list."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Metric:
    """What a name means; its samples have exactly these labels (histograms ``le`` besides)."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


METRICS = {
    metric.name: metric
    for metric in (
        Metric("outlast_runs_accepted_total", "counter", "Runs accepted."),
        Metric(
            "outlast_runs_total",
            "counter",
            "Runs ended, by agent, outcome and failure code.",
            ("agent", "outcome", "code"),
        ),
        Metric("outlast_queue_wait_seconds", "histogram", "From ready for a worker to claimed."),
        Metric(
            "outlast_first_event_seconds", "histogram", "From ready for a worker to the agent's first event."
        ),
        Metric("outlast_duration_seconds", "histogram", "From claimed to the recorded ending."),
        Metric(
            "outlast_cancel_latency_seconds", "histogram", "From the cancel request to the recorded ending."
        ),
        Metric(
            "outlast_live_runs", "gauge", "Live runs by where they are; cancelling ones run too.", ("state",)
        ),
        Metric("outlast_attention_runs", "gauge", "Live runs that need a person's look, by why.", ("kind",)),
        Metric("outlast_queue_depth", "gauge", "Runs that wait for a worker."),
        Metric("outlast_queue_oldest_seconds", "gauge", "How long the oldest of them has waited."),
        Metric("outlast_intake_paused", "gauge", "Whether operators paused the intake."),
        Metric("outlast_sweep_passes_total", "counter", "Passes of the sweep."),
        Metric(
            "outlast_sweep_runs_total", "counter", "Runs that the sweep repaired, by what it did.", ("act",)
        ),
        Metric("outlast_workers", "gauge", "Workers with a fresh heartbeat."),
        Metric("outlast_worker_slots", "gauge", "Runs at once.", ("worker",)),
        Metric("outlast_worker_busy", "gauge", "Slots in use.", ("worker",)),
        Metric("outlast_worker_abandoned", "gauge", "Slots of deaf agents.", ("worker",)),
        Metric(
            "outlast_worker_coroutines_left",
            "gauge",
            "Deaf async agents that go on, without a slot.",
            ("worker",),
        ),
        Metric(
            "outlast_worker_redis_errors_total", "counter", "Failed calls of Redis in workers.", ("worker",)
        ),
        Metric("outlast_open_streams", "gauge", "Streams open in this web process.", ("process",)),
        Metric("outlast_hub_followed_runs", "gauge", "Runs that this web process follows.", ("process",)),
        Metric(
            "outlast_hub_ring_bytes", "gauge", "Bytes of events that it keeps for slow readers.", ("process",)
        ),
        Metric("outlast_hub_opened_total", "counter", "Streams that it opened.", ("process",)),
        Metric("outlast_hub_messages_total", "counter", "Messages of runs that it heard.", ("process",)),
        Metric("outlast_hub_gaps_total", "counter", "Times that its subscription was lost.", ("process",)),
        Metric(
            "outlast_hub_refills_total",
            "counter",
            "Streams that it had to refill from the log.",
            ("process",),
        ),
        Metric(
            "outlast_hub_dropped_total", "counter", "Readers dropped because they took nothing.", ("process",)
        ),
        Metric(
            "outlast_hub_lost_total", "counter", "Streams ended because their run was gone.", ("process",)
        ),
        Metric(
            "outlast_redis_errors_total",
            "counter",
            "Failed calls of Redis in this web process.",
            ("kind", "process"),
        ),
    )
}
"""By name, in the order in which they are served."""


@dataclass(slots=True)
class Family:
    """One metric with its samples: suffix, labels, value."""

    metric: Metric
    samples: list[tuple[str, Labels, float]] = field(default_factory=list)

    def add(self, value: float, suffix: str = "", **labels: str) -> Family:
        self.samples.append((suffix, labels, value))
        return self

    def lines(self) -> Iterator[str]:
        """HELP, TYPE, and one line per sample (Prometheus exposition format 0.0.4)."""
        name = self.metric.name
        yield f"# HELP {name} {_escaped(self.metric.help)}"
        yield f"# TYPE {name} {self.metric.kind}"
        for suffix, labels, value in self.samples:
            shown = ",".join(f'{label}="{_quoted(text)}"' for label, text in labels.items())
            yield f"{name}{suffix}{f'{{{shown}}}' if shown else ''} {number(value)}"


def family(name: str) -> Family:
    """The metric of that name, without samples yet; raises KeyError for one that is not listed here."""
    return Family(METRICS[name])


def number(value: float) -> str:
    """A value as the format writes it."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
