"""The one table of statuses and transitions; scripts, docs and dashboard derive from it."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """Where a run is; the stored statuses stay few, everything else on a screen is derived."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Step(StrEnum):
    """What moves a run from one status to another; one script each."""

    ACCEPT = "accept"
    CLAIM = "claim"
    RELEASE = "release"
    RETRY = "retry"
    FINISH = "finish"


_ENDINGS = frozenset({Status.SUCCEEDED, Status.INTERRUPTED, Status.CANCELLED, Status.FAILED})

TRANSITIONS: dict[Step, tuple[tuple[Status | None, frozenset[Status]], ...]] = {
    Step.ACCEPT: ((None, frozenset({Status.QUEUED})),),
    Step.CLAIM: ((Status.QUEUED, frozenset({Status.RUNNING})),),
    Step.RELEASE: ((Status.RUNNING, frozenset({Status.QUEUED})),),
    Step.RETRY: ((Status.RUNNING, frozenset({Status.QUEUED})),),
    Step.FINISH: (
        (Status.QUEUED, frozenset({Status.CANCELLED, Status.FAILED})),
        (Status.RUNNING, _ENDINGS),
    ),
}


def before(step: Step) -> tuple[str, ...]:
    """The statuses from which a step may start, as the scripts take them."""
    return tuple(str(status) for status, _ in TRANSITIONS[step] if status is not None)


def is_terminal(status: str) -> bool:
    """Whether a status is a recorded ending."""
    return status in _ENDINGS


def follows(step: Step, old: Status | None) -> frozenset[Status]:
    """The statuses a step may lead to from ``old``; empty when the step is not allowed there."""
    return next((after for status, after in TRANSITIONS[step] if status == old), frozenset())
