"""Trouble is derived from stored facts, and the most harmful comes first."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from shared.runs.attention import Attention, Kind, Thresholds, attention, by_harm
from shared.runs.lifecycle import Status

LIMITS = Thresholds(stalled_seconds=120, queued_long_seconds=60, cancel_grace_seconds=10)
NOW = 1_000_000_000
FRESH = NOW + 10_000


@dataclass
class Run:
    status: Status = Status.RUNNING
    times: dict[str, int] = field(default_factory=dict)
    cancel_by: str | None = None


def seconds_ago(**ages: float) -> dict[str, int]:
    return {name: NOW - int(age * 1000) for name, age in ages.items()}


def kinds(run: Run, lease: int | None = FRESH) -> list[Kind]:
    return [one.kind for one in attention(run, NOW, lease, LIMITS)]


def test_a_run_that_speaks_and_has_its_lease_is_well():
    assert kinds(Run(times=seconds_ago(started_at=600, last_event_at=3))) == []


@pytest.mark.parametrize("times", [{"started_at": 120}, {"started_at": 500, "last_event_at": 120}])
def test_a_run_is_stalled_from_the_threshold_on(times: dict[str, float]):
    (one,) = attention(Run(times=seconds_ago(**times)), NOW, FRESH, LIMITS)
    assert (one.kind, one.seconds, one.late) == (Kind.STALLED, 120, True)
    newest = list(times)[-1]
    assert kinds(Run(times=seconds_ago(**times | {newest: 119.9}))) == []


@pytest.mark.parametrize(("lease", "since"), [(NOW - 4000, 4.0), (NOW, 0.0), (None, 30.0)])
def test_a_run_without_a_valid_lease_is_orphaned(lease: int | None, since: float):
    (one,) = attention(Run(times=seconds_ago(started_at=30)), NOW, lease, LIMITS)
    assert (one.kind, one.seconds) == (Kind.ORPHANED, since)


def test_a_cancelling_run_is_late_only_past_its_grace():
    run = Run(times=seconds_ago(started_at=30, cancel_requested_at=9.9), cancel_by="olga")
    (one,) = attention(run, NOW, FRESH, LIMITS)
    assert (one.kind, one.late, one.by) == (Kind.CANCELLING, False, "olga")
    run.times["cancel_requested_at"] -= 100
    assert attention(run, NOW, FRESH, LIMITS)[0].late


def test_a_ready_run_waits_too_long_and_one_that_waits_for_its_turn_does_not():
    assert kinds(Run(Status.QUEUED, seconds_ago(created_at=500, ready_at=60)), None) == [Kind.QUEUED_LONG]
    assert kinds(Run(Status.QUEUED, seconds_ago(created_at=500, ready_at=59)), None) == []
    assert kinds(Run(Status.QUEUED, seconds_ago(created_at=500)), None) == []


def test_an_ended_run_is_in_no_trouble():
    assert kinds(Run(Status.FAILED, seconds_ago(started_at=9999)), None) == []


def test_the_worst_trouble_of_a_run_comes_first():
    run = Run(times=seconds_ago(started_at=500, cancel_requested_at=20))
    assert kinds(run, None) == [Kind.ORPHANED, Kind.CANCELLING, Kind.STALLED]
    run = Run(times=seconds_ago(started_at=500, cancel_requested_at=2))
    assert kinds(run) == [Kind.STALLED, Kind.CANCELLING]


def test_runs_are_listed_by_harm_then_age_and_a_fresh_cancel_is_no_row():
    def trouble(kind: Kind, age: float, late: bool = True) -> list[Attention]:
        return [Attention(kind, NOW - int(age * 1000), age, late)]

    listed = by_harm(
        [
            ("queued", trouble(Kind.QUEUED_LONG, 900)),
            ("stalled", trouble(Kind.STALLED, 200)),
            ("fresh", trouble(Kind.CANCELLING, 1, late=False)),
            ("deaf", trouble(Kind.CANCELLING, 30)),
            ("stalled longer", trouble(Kind.STALLED, 300)),
            ("orphan", trouble(Kind.ORPHANED, 1)),
            ("well", []),
        ]
    )
    assert [name for name, _ in listed] == ["orphan", "deaf", "stalled longer", "stalled", "queued"]
