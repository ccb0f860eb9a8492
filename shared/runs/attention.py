"""What about a live run needs a person's look: views derived from stored facts, never stored themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from shared.runs.lifecycle import Status


class Kind(StrEnum):
    """What is wrong, the most harmful first."""

    ORPHANED = "orphaned"
    CANCELLING = "cancelling"
    STALLED = "stalled"
    QUEUED_LONG = "queued_long"


_HARM = {kind: rank for rank, kind in enumerate(Kind)}


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From when on a state is trouble, in seconds (settings of the same names)."""

    stalled_seconds: float
    queued_long_seconds: float
    cancel_grace_seconds: float


class Facts(Protocol):
    """The part of a record by which trouble is recognised."""

    @property
    def status(self) -> Status: ...

    @property
    def times(self) -> Mapping[str, int]: ...

    @property
    def cancel_by(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Attention:
    """One trouble: since when (ms since the epoch), for how long, and whether that is too long.

    Only ``cancelling`` can be there without being ``late``: the agent still has its grace.
    """

    kind: Kind
    since: int
    seconds: float
    late: bool = True
    by: str | None = None

    @property
    def harm(self) -> tuple[bool, int, int]:
        """Sorts the worst first: by kind, then the oldest."""
        return not self.late, _HARM[self.kind], self.since


Run = TypeVar("Run")


def attention(facts: Facts, now_ms: int, lease_until: int | None, limits: Thresholds) -> list[Attention]:
    """Everything that is wrong with a live run, the worst first; empty for one that is well or has ended."""
    if facts.status is Status.RUNNING:
        found = _running(facts, now_ms, lease_until, limits)
    elif facts.status is Status.QUEUED:
        found = _queued(facts, now_ms, limits)
    else:
        found = []
    return sorted(found, key=lambda one: one.harm)


def _running(facts: Facts, now_ms: int, lease_until: int | None, limits: Thresholds) -> list[Attention]:
    times, found = facts.times, []
    started = times.get("started_at", now_ms)
    if lease_until is None or lease_until <= now_ms:
        since = started if lease_until is None else lease_until
        found.append(Attention(Kind.ORPHANED, since, _age(since, now_ms)))
    asked = times.get("cancel_requested_at")
    if asked is not None:
        age = _age(asked, now_ms)
        late = age >= limits.cancel_grace_seconds
        found.append(Attention(Kind.CANCELLING, asked, age, late, facts.cancel_by))
    spoke = max(times.get("last_event_at", 0), started)
    if _age(spoke, now_ms) >= limits.stalled_seconds:
        found.append(Attention(Kind.STALLED, spoke, _age(spoke, now_ms)))
    return found


def _queued(facts: Facts, now_ms: int, limits: Thresholds) -> list[Attention]:
    ready = facts.times.get("ready_at")
    # Without ready_at it waits for its turn on the thread, which is no trouble.
    if ready is None or _age(ready, now_ms) < limits.queued_long_seconds:
        return []
    return [Attention(Kind.QUEUED_LONG, ready, _age(ready, now_ms))]


def _age(since: int, now_ms: int) -> float:
    return max(0.0, (now_ms - since) / 1000)


def by_harm(troubled: Iterable[tuple[Run, list[Attention]]]) -> list[tuple[Run, list[Attention]]]:
    """The runs with late troubles, by the worst of each."""
    late = [(run, found) for run, found in troubled if found and found[0].late]
    return sorted(late, key=lambda pair: pair[1][0].harm)
