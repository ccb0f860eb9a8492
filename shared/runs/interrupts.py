"""What a run asks people when it pauses (AG-UI 1.0, interrupts), and what the thread's next run answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from shared.runs.lifecycle import Status
from shared.runs.outcome import FailureCode, Outcome

UNSEEN = frozenset({FailureCode.UNKNOWN_AGENT})
"""Endings of claimed runs whose agent never ran: the answers they brought are given back."""


@dataclass(frozen=True, slots=True)
class Question:
    """An open interrupt: the key of the run that asked, and of the queued run that is about to answer.

    ``expires_at`` is in milliseconds since the epoch; from then on it can only be abandoned.
    """

    interrupt_id: str
    run: str
    expires_at: int | None = None
    reserved_by: str | None = None

    @classmethod
    def stored(cls, interrupt_id: bytes, text: bytes) -> Question:
        """From a field of the thread's hash of open interrupts."""
        facts: dict[str, Any] = json.loads(text)
        expires_at = facts.get("expires_at")
        return cls(
            interrupt_id.decode(),
            facts["run"],
            int(expires_at) if expires_at is not None else None,
            facts.get("by"),
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """One entry of a run's ``resume``; ``asked_by`` is the run whose question it was checked against."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    asked_by: str | None = None


def expiry_ms(text: object) -> int | None:
    """An ``expiresAt`` in milliseconds since the epoch; None for what is no moment of ISO 8601.

    A moment without an offset is taken as UTC.
    """
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return int(aware.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def questions_of(outcome: Outcome) -> list[tuple[str, int | None, str | None]]:
    """Id, expiry and tool call of each question an outcome leaves open; none unless it is ``interrupted``."""
    asked: list[dict[str, Any]] = (outcome.wire or {}).get("interrupts") or []
    if outcome.status is not Status.INTERRUPTED:
        return []
    return [(one["id"], expiry_ms(one.get("expiresAt")), one.get("toolCallId")) for one in asked]
