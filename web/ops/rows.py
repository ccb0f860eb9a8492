"""Runs as operators read them: the record with its age, its silence and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shared.runs.access import Actor
from shared.runs.attention import Attention, Kind, attention
from shared.runs.interrupts import Question
from shared.runs.record import RunRecord, rfc3339
from shared.runs.veil import operator_view_to
from shared.store.live import thresholds
from shared.store.store import Store

Row = dict[str, Any]


def rows_of(store: Store, actor: Actor, run_keys: Iterable[str]) -> list[Row]:
    """The rows of these runs in order, as this actor may read them; those that are gone are left out."""
    records = store.listing.records(list(run_keys))
    leases = store.live.leases_of([record.key for record in records if not record.ended])
    asked = store.listing.left_open(records)
    now, limits = store.runs.now_ms(), thresholds(store.settings)
    rows = []
    for record in records:
        row = row_of(actor, record, now, attention(record, now, leases.get(record.key), limits))
        rows.append(row | waiting_for(asked, record.key))
    return rows


def waiting_for(asked: dict[str, list[Question]], key: str) -> Row:
    """The questions of an interrupted run that are open; ``by`` is the queued run that will answer."""
    if key not in asked:
        return {}
    listed = []
    for question in asked[key]:
        one: Row = {"id": question.interrupt_id}
        if question.expires_at is not None:
            one["expires_at"] = rfc3339(question.expires_at)
        listed.append(one | ({"by": question.reserved_by} if question.reserved_by else {}))
    return {"waiting_for": listed}


def row_of(actor: Actor, record: RunRecord, now_ms: int, found: list[Attention]) -> Row:
    """One run in a list; ``detail`` is left to the page of the run."""
    row = operator_view_to(actor, record)
    row.pop("detail", None)
    if "retried_as" in row:
        row["retried_as"] = row["retried_as"].split()
    if record.calling is not None:
        row["calling"] = record.calling | {"since": rfc3339(record.calling["since"])}
    row["age_seconds"] = _seconds(record.times["created_at"], now_ms)
    spoke = record.times.get("last_event_at", record.times.get("started_at"))
    if spoke is not None and not record.ended:
        row["idle_seconds"] = _seconds(spoke, now_ms)
    row["attention"] = [shown(one) for one in found]
    return row


def shown(one: Attention) -> Row:
    """One trouble."""
    row: Row = {
        "kind": str(one.kind),
        "since": rfc3339(one.since),
        "seconds": round(one.seconds, 1),
        "late": one.late,
        "words": words(one),
    }
    return row | ({"by": one.by} if one.by else {})


def words(one: Attention) -> str:
    """One trouble in words."""
    age = f"{one.seconds:.0f} s"
    match one.kind:
        case Kind.ORPHANED:
            return f"no worker has renewed its lease for {age}"
        case Kind.CANCELLING:
            asked = f"asked to stop {age} ago" + (f" by {one.by}" if one.by else "")
            return asked + (", past the grace" if one.late else "")
        case Kind.STALLED:
            return f"no event for {age}"
        case Kind.QUEUED_LONG:
            return f"no worker took it for {age}"


def _seconds(since: int, now_ms: int) -> float:
    return round(max(0, now_ms - since) / 1000, 1)
