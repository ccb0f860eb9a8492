"""The table: what is measured beside what, and the goal."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from benchmarks import measures
from benchmarks.installation import Installation
from benchmarks.verifier import microseconds_per_event, mixed_stream

Figure = Callable[[Installation], float]


@dataclass
class Row:
    """``goal`` bounds the ratio to the yardstick, or the figure itself where there is none."""

    number: str
    name: str
    unit: str
    goal: float
    ours: Figure
    yardstick: Figure | None = None
    against: str = ""
    at_least: bool = False
    rounds: list[tuple[float, float]] = field(default_factory=list)

    def take(self, at: Installation, *, ours_first: bool) -> tuple[float, float]:
        """One round of both, in turn first."""
        if self.yardstick is None:
            pair = (self.ours(at), 0.0)
        elif ours_first:
            pair = (self.ours(at), self.yardstick(at))
        else:
            other = self.yardstick(at)
            pair = (self.ours(at), other)
        self.rounds.append(pair)
        return pair

    def cells(self) -> list[str]:
        """The row as it is printed: medians of the rounds, the ratio that of each round."""
        ours = median(one for one, _ in self.rounds)
        bound = operator.ge if self.at_least else operator.le
        sign = ">=" if self.at_least else "<="
        if self.yardstick is None:
            met, ratio, goal, other = bound(ours, self.goal), "", f"{sign} {self.goal:g} {self.unit}", ""
        else:
            each = [one / two for one, two in self.rounds]
            met, goal = bound(median(each), self.goal), f"{sign} {self.goal:g} x"
            ratio = f"{median(each):.2f} ({min(each):.2f}-{max(each):.2f})"
            other = f"{self.against}: {shown(median(two for _, two in self.rounds))}"
        return [
            self.number,
            self.name,
            f"{shown(ours)} {self.unit}",
            other,
            ratio,
            goal,
            "yes" if met else "no",
        ]


def shown(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def rows() -> list[Row]:
    """In the order in which a round takes them."""
    cancelled: list[tuple[float, float, float]] = []

    def cancel_recorded(at: Installation) -> float:
        cancelled.append(measures.cancel(at))
        return cancelled[-1][1]

    events = mixed_stream(200)
    plain = "plain server"
    return [
        Row(
            "1",
            "POST to the agent's first event, p50",
            "ms",
            1.5,
            lambda at: measures.first_event(at.port),
            measures.bare_task,
            "bare Celery task",
        ),
        Row(
            "2",
            "the same",
            "ms",
            3,
            lambda at: measures.first_event(at.port),
            lambda at: measures.first_event(at.plain_port),
            plain,
        ),
        Row(
            "3",
            "emit to client, every 2 ms, plain function, p50",
            "ms",
            2,
            lambda at: measures.emit_to_client(at.port, "paced_plain", 0.002, 500),
            lambda at: measures.hop(at, 0.002, 500),
            "PUBLISH hop",
        ),
        Row(
            "3a",
            "emit to client, every 20 ms, async, p50",
            "ms",
            2,
            lambda at: measures.emit_to_client(at.port, "paced", 0.02, 100),
            lambda at: measures.hop(at, 0.02, 100),
            "PUBLISH hop",
        ),
        Row(
            "4",
            "5,000 deltas of one run",
            "events/s",
            1,
            lambda at: measures.burst(at.port),
            lambda at: measures.burst(at.plain_port),
            plain,
            at_least=True,
        ),
        Row(
            "5",
            "50 runs at once, 20 deltas each",
            "runs/s",
            0.45,
            lambda at: measures.throughput(at.port),
            lambda at: measures.throughput(at.plain_port),
            plain,
            at_least=True,
        ),
        Row(
            "6",
            "CPU per event, 100 runs of 50 events/s",
            "us",
            5,
            lambda at: measures.cpu_per_event(at.port, [at.web, at.worker, at.redis()]),
            lambda at: measures.cpu_per_event(at.plain_port, [at.plain]),
            plain,
        ),
        Row(
            "7",
            "cancel of a waiting agent: POST to record, p50",
            "ms",
            1.5,
            cancel_recorded,
            lambda _: cancelled[-1][0],
            "the POST's own answer",
        ),
        Row("11", "verifier, per event", "us", 2, lambda _: microseconds_per_event(events)),
        Row("12", "replay of a finished run of 5,000 deltas", "ms", 20, measures.replay),
    ]
