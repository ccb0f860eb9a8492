"""What the scripts answer, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.runs.identity import RunIdentity


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a submit; ``front`` lists the runs in front of it, the active one first.

    ``ready`` (enqueue it), ``waiting`` (its turn comes later), ``known`` (the identity was accepted before),
    ``expired`` (only a tombstone is left), ``busy`` or ``crowded`` (the thread refuses). About the answers
    that it brings: ``uncovered`` (questions of the thread are left open), ``foreclosed`` (the time for an
    answer is over), ``taken`` (another run answers), ``changed`` (another run asks by now: check again). Then
    ``front`` is the run that asked, or for ``taken`` the one that answers, and ``interrupts`` are the ids. Of
    an accepted run ``interrupts`` are the ids of answers to nothing, which the agent will not see.
    """

    state: Literal[
        "ready",
        "waiting",
        "known",
        "expired",
        "busy",
        "crowded",
        "uncovered",
        "foreclosed",
        "taken",
        "changed",
    ]
    front: tuple[str, ...] = ()
    interrupts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """A run in this worker's hands; ``seconds_left`` counts to its deadline from the moment of the answer.

    ``answered_calls`` are the tool calls of earlier runs about which it brings people's answers.
    """

    key: str
    execution: str
    identity: RunIdentity
    agent: str
    attempt: int
    input: bytes
    last_seq: int
    seconds_left: float
    traceparent: str | None = None
    answered_calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Append:
    """``gap`` means that the log holds only ``last_seq`` frames, ``lost`` that another owns the run."""

    state: Literal["ok", "gap", "lost", "unclaimed", "gone"]
    last_seq: int = 0
    cancel: str | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """``ended`` means that somebody else was first, and ``status`` how; enqueue the ``successor``."""

    state: Literal["finished", "repeated", "ended", "gap", "lost", "unclaimed", "gone"]
    last_seq: int = 0
    status: str | None = None
    successor: str | None = None

    @property
    def recorded(self) -> bool:
        """Whether this very ending is what the record says."""
        return self.state in {"finished", "repeated"}


@dataclass(frozen=True, slots=True)
class Fence:
    """A run taken away from its execution; whoever holds it ends it with ``execution``."""

    key: str
    execution: str
    ending: str


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """``requested`` means running, ``fenced`` that it was queued: end it now by its ``fence``."""

    state: Literal["requested", "fenced", "ended", "unknown"]
    fence: Fence | None = None


@dataclass(frozen=True, slots=True)
class TerminateAnswer:
    """``fenced``: end it now by its ``fence``; ``grace``: the agent still has ``seconds_left``."""

    state: Literal["fenced", "grace", "ended", "unknown"]
    fence: Fence | None = None
    seconds_left: float = 0.0


@dataclass(frozen=True, slots=True)
class Survey:
    """What the sweep found in one bucket: run keys to end, to enqueue again, to time out, to expire."""

    late: tuple[str, ...]
    hints: tuple[str, ...]
    timeouts: tuple[str, ...]
    old: tuple[str, ...]
