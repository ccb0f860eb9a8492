"""A run's events as a person reads them: everything about one message or one tool call is one row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

GROUPS = {
    "run": "Run",
    "message": "Messages",
    "tool": "Tool calls",
    "reasoning": "Reasoning",
    "state": "State",
    "step": "Steps",
    "other": "Other",
}
"""Kinds of rows, as the filter offers them."""

RAW_SHOWN = 24
"""Raw events shown with one row; the others are in the download."""

_PREVIEW = 280
_PREFIXES = (
    ("RUN_", "run"),
    ("TEXT_MESSAGE", "message"),
    ("TOOL_CALL", "tool"),
    ("REASONING", "reasoning"),
    ("STATE_", "state"),
    ("MESSAGES_", "state"),
    ("ACTIVITY_", "state"),
    ("STEP_", "step"),
    ("SUBAGENT_", "step"),
)
_ENDS = {"TEXT_MESSAGE_END", "TOOL_CALL_END", "REASONING_END", "REASONING_MESSAGE_END"}


@dataclass(slots=True)
class EventRow:
    """One row: events ``first`` to ``last``, ``count`` of them, with their text put together."""

    group: str
    title: str
    first: int
    last: int
    count: int = 0
    bytes: int = 0
    text: str = ""
    open: bool = False
    moment: int | None = None
    until: int | None = None
    raw: list[tuple[int, str]] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    hidden: bool = False
    bad: bool = False
    breaks: dict[int, str] = field(default_factory=dict)

    @property
    def more(self) -> int:
        """How many raw events are not shown with the row."""
        return self.count - len(self.raw)

    @property
    def preview(self) -> str:
        """The beginning of the text."""
        return self.text if len(self.text) <= _PREVIEW else f"{self.text[:_PREVIEW]}…"

    @property
    def seconds(self) -> float | None:
        """From the first to the last event, where the agent dated its events."""
        return (
            (self.until - self.moment) / 1000 if self.moment is not None and self.until is not None else None
        )


def fold(items: Iterable[dict[str, Any]]) -> list[EventRow]:
    """Rows in the order of their first events, from ``{"seq", "event"}`` in order."""
    rows: list[EventRow] = []
    by_id: dict[tuple[str, str], EventRow] = {}
    for item in items:
        event, seq = item["event"], item["seq"]
        kind = str(event.get("type", "?"))
        group = _group(kind)
        name = _identity(kind, event)
        row = by_id.get((group, name)) if name else None
        if row is None:
            row = EventRow(group, _title(kind, event), seq, seq)
            rows.append(row)
            if name:
                by_id[group, name] = row
        _add(row, seq, kind, event)
    return rows


def fold_sizes(items: Iterable[dict[str, Any]]) -> list[EventRow]:
    """The same for who may not read events: neighbours of one kind together, sizes only."""
    rows: list[EventRow] = []
    for item in items:
        kind, group = str(item["type"]), _group(str(item["type"]))
        if not rows or rows[-1].group != group or group not in {"message", "tool", "reasoning"}:
            rows.append(EventRow(group, _words(kind), item["seq"], item["seq"], hidden=True))
        row = rows[-1]
        row.last, row.count, row.bytes = item["seq"], row.count + 1, row.bytes + item["bytes"]
    return rows


def mark(rows: Iterable[EventRow], broken: dict[int, str]) -> None:
    """Tells each row which of its events break a rule of the protocol."""
    for row in rows:
        row.breaks = {seq: broken[seq] for seq in row.seqs if seq in broken}


def only(rows: Sequence[EventRow], groups: set[str]) -> list[EventRow]:
    """The rows of these kinds; all when none is named."""
    return [row for row in rows if not groups or row.group in groups]


def _add(row: EventRow, seq: int, kind: str, event: dict[str, Any]) -> None:
    compact = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    row.last, row.count, row.bytes = seq, row.count + 1, row.bytes + len(compact.encode())
    row.seqs.append(seq)
    if len(row.raw) < RAW_SHOWN:
        pretty = json.dumps(event, ensure_ascii=False, indent=2) if row.count == 1 else compact
        row.raw.append((seq, pretty))
    if len(row.text) < _PREVIEW * 4:
        row.text += _text(kind, event)
    row.bad = row.bad or kind.endswith("_ERROR")
    if kind.endswith("_START"):
        row.open = True
    elif kind in _ENDS:
        row.open = False
    moment = event.get("timestamp")
    if isinstance(moment, int):
        row.moment, row.until = (moment if row.moment is None else row.moment), moment


def _group(kind: str) -> str:
    return next((group for prefix, group in _PREFIXES if kind.startswith(prefix)), "other")


def _identity(kind: str, event: dict[str, Any]) -> str | None:
    if kind.startswith("TOOL_CALL"):
        found = event.get("toolCallId")
    elif kind.startswith(("TEXT_MESSAGE", "REASONING")):
        found = event.get("messageId")
    else:
        found = None
    return str(found) if found else None


def _title(kind: str, event: dict[str, Any]) -> str:
    named = event.get("toolCallName") or event.get("stepName") or event.get("name") or event.get("role")
    words = {"TEXT_MESSAGE": "Message", "TOOL_CALL": "Tool call"}
    base = next((word for prefix, word in words.items() if kind.startswith(prefix)), _words(kind))
    return f"{base} · {named}" if isinstance(named, str) else base


def _words(kind: str) -> str:
    return kind.replace("_", " ").capitalize()


def _text(kind: str, event: dict[str, Any]) -> str:
    if kind == "TOOL_CALL_RESULT":
        return f" → {_plain(event.get('content'))}"
    for member in ("delta", "message", "snapshot", "value", "outcome", "messages", "content"):
        if member in event and event[member] is not None:
            return _plain(event[member])
    return ""


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[: _PREVIEW * 2]
