"""How facts read on a page: states with their glyph and colour, ages, sizes, moments."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from flask import Flask
from markupsafe import Markup, escape

from shared.runs.outcome import FailureCode
from shared.store.search import filter_of
from web.ops.events_view import GROUPS
from web.ops.plant import HEARD_SECONDS

Row = dict[str, Any]

UNKNOWN = "\u2013"
"""A dash, where there is nothing to say."""


@dataclass(frozen=True, slots=True)
class State:
    """What a state is called, its symbol in the page's sprite, and the class that colours it."""

    name: str
    glyph: str
    tone: str


STATES = {
    "queued": State("queued", "circle", "quiet"),
    "waiting": State("waiting its turn", "circle", "quiet"),
    "running": State("running", "play", "blue"),
    "orphaned": State("orphaned", "broken", "amber"),
    "cancelling": State("cancelling", "stopping", "amber"),
    "stalled": State("stalled", "clock", "amber"),
    "queued_long": State("queued too long", "clock", "amber"),
    "interrupted": State("waiting for input", "pause", "violet"),
    "answered": State("input given", "pause", "quiet"),
    "succeeded": State("succeeded", "tick", "green"),
    "cancelled": State("cancelled", "stop", "quiet"),
    "failed": State("failed", "cross", "red"),
}

OUTCOMES = {
    "succeeded": "succeeded",
    "interrupted": "paused for input",
    "cancelled": "cancelled",
    "failed": "failed, other",
    "transport_timeout": "provider time-out",
}
"""Series of the charts, in the order in which they are stacked."""

FEW = 20
"""Fewer observations have no percentiles worth reading."""

_ACTS = {
    "terminate": "force stop",
    "terminated": "force stopped",
    "shutdown": "shut down",
    "pause": "pause intake",
    "resume": "resume intake",
    "retry": "retry as new run",
}

CODES = tuple(map(str, FailureCode))


def state_of(row: Row) -> State:
    """The state a person should read: the worst trouble before the stored status."""
    if row.get("attention"):
        return STATES[row["attention"][0]["kind"]]
    if row["status"] == "queued" and "ready_at" not in row:
        return STATES["waiting"]
    if row["status"] == "interrupted" and row.get("waiting_for") == []:
        return STATES["answered"]
    return STATES[row["status"]]


def duration(seconds: float | None) -> str:
    """A length of time in at most two units."""
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    whole = int(seconds)
    for size, unit, rest_size, rest_unit in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // rest_size
            return f"{whole // size} {unit}" + (f" {rest} {rest_unit}" if rest else "")
    return f"{whole} s"


def milliseconds(value: float | None) -> str:
    """The same from milliseconds."""
    return UNKNOWN if value is None else duration(value / 1000)


def size(count: int | None) -> str:
    """Bytes for people."""
    if count is None:
        return UNKNOWN
    if count < 1000:
        return f"{count} B"
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def count(number: int | None) -> str:
    """A number with thin spaces between thousands."""
    return UNKNOWN if number is None else f"{number:,}".replace(",", "\u202f")


def exact(moment: str) -> str:
    """RFC 3339 as people read it, in UTC."""
    return moment.replace("T", " ").replace("Z", " UTC")


def ago(moment: str | None) -> Markup:
    """How long ago it was; the exact time is in the title, and the script of the page keeps it fresh."""
    if not moment:
        return Markup('<span class="none">{}</span>').format(UNKNOWN)
    seconds = max(0.0, (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())
    return Markup('<time datetime="{}" title="{}" data-ago>{} ago</time>').format(
        moment, exact(moment), duration(float(int(seconds)))
    )


def since(moment: str) -> Markup:
    """For how long something has gone on; kept fresh like ``ago``."""
    seconds = max(0.0, (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())
    return Markup('<time datetime="{}" title="{}" data-ago="for">{}</time>').format(
        moment, exact(moment), duration(float(int(seconds)))
    )


def at(moment: str | None) -> Markup:
    """The exact time of day, the date in the title."""
    if not moment:
        return Markup('<span class="none">{}</span>').format(UNKNOWN)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(moment, exact(moment), moment[11:19])


def act_word(name: str) -> str:
    """An act or its result by the word that its button has."""
    return _ACTS.get(name, name.replace("_", " "))


def few_words(numbers: Row) -> str:
    """A histogram of fewer than ``FEW``: the one value, or the bound that none of them exceeds."""
    last = max(slot for slot, number in enumerate(numbers["counts"]) if number)
    if numbers["count"] == 1:
        return f"one: {milliseconds(numbers['p50_ms'])}"
    bounds = numbers["bounds_ms"]
    most = f"all \u2264 {milliseconds(bounds[last])}" if last < len(bounds) else "some longer"
    return f"{numbers['count']}: {most}"


def filter_words(document: Row) -> str:
    """A filter as the audit keeps it, for people."""
    return filter_of(document).words()


def glyph(name: str) -> Markup:
    """A symbol of the sprite; what it means always stands beside it as text."""
    return Markup('<svg class="glyph" aria-hidden="true"><use href="#g-{}"></use></svg>').format(name)


def badge(state: State) -> Markup:
    """A state as glyph, text and colour."""
    return Markup('<span class="state {}">{}{}</span>').format(
        state.tone, glyph(state.glyph), escape(state.name)
    )


def register(app: Flask) -> None:
    """Makes the words known to the templates."""
    for function in (
        duration,
        milliseconds,
        size,
        count,
        exact,
        ago,
        since,
        at,
        filter_words,
        act_word,
        few_words,
        glyph,
        badge,
        state_of,
    ):
        app.jinja_env.filters[function.__name__] = function
    app.jinja_env.globals |= {
        "STATES": STATES,
        "groups": GROUPS,
        "FEW": FEW,
        "HEARD_SECONDS": HEARD_SECONDS,
    }
