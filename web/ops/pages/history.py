"""A day in minutes: what ended, how long it took, how deep the queue was."""

from __future__ import annotations

from typing import Any

from web.ops import plots
from web.ops.look import Found, Look
from web.ops.pages.overview import EXPLAINED, HISTOGRAMS, banner
from web.ops.wording import OUTCOMES, UNKNOWN, count, duration, milliseconds
from web.problems import Code, Problem

SPANS = {60: "1 hour", 360: "6 hours", 1440: "24 hours", 2880: "48 hours"}
DAY = 1440

_MEANS = {name: f"{words}; by the minute of the end" for name, words in EXPLAINED.items()}
_MEANS |= {
    "queue_wait": "from ready to claimed; by the minute of the claim",
    "first_event": f"{EXPLAINED['first_event']}; by its minute",
}
_NAMES = {"queue_wait": "Wait for a worker"} | HISTOGRAMS


def page_values(look: Look) -> Found:
    """What the page shows; raises the 400 for a span that is not offered."""
    text = look.args.get("minutes", str(DAY))
    if text not in {str(minutes) for minutes in SPANS}:
        raise Problem(Code.INVALID_INPUT, "minutes must be one of the spans offered.", field="minutes")
    minutes = int(text)
    told = look.board.history(minutes)
    series = told["series"]
    return {
        "minutes": minutes,
        "spans": SPANS,
        "words": SPANS[minutes],
        "charts": _charts(series),
        "rows": _table(series, 10 if minutes == 60 else 60),
        "parts": {"banner": banner(look, look.board.banner())},
    }


def _charts(series: list[dict[str, Any]]) -> list[dict[str, Any]]:
    flow = {"accepted": "in", "claimed": "out"}
    charts = [
        _chart("Runs ended per minute", "by outcome", plots.areas(series, OUTCOMES), OUTCOMES, "fill"),
        _chart(
            "In and out per minute",
            "accepted, and taken by workers",
            plots.lines(series, flow, "Runs per minute", count),
            flow,
        ),
        _chart(
            "Waiting for a worker",
            "deepest in each minute",
            plots.lines(series, {"depth": "runs"}, "Runs waiting", count),
        ),
        _chart(
            "Oldest in the queue",
            "longest wait in each minute",
            plots.lines(series, {"oldest_seconds": "age"}, "Oldest", duration),
        ),
    ]
    for name, title in _NAMES.items():
        marks = {f"{name}_p50": "p50", f"{name}_p95": "p95"}
        charts.append(
            _chart(
                title,
                f"{_MEANS[name]}; logarithmic",
                plots.lines(series, marks, title, milliseconds, log=True),
                marks,
            )
        )
    return charts


def _chart(
    title: str, means: str, plot: plots.Plot, legend: dict[str, str] | None = None, of: str = "line"
) -> dict[str, Any]:
    return {"title": title, "means": means, "plot": plot, "legend": legend, "of": of}


def _table(series: list[dict[str, Any]], step: int) -> list[dict[str, Any]]:
    """The same numbers in words, newest first, ``step`` minutes in a row."""
    rows: dict[int, list[dict[str, Any]]] = {}
    for minute in series:
        rows.setdefault(minute["minute"] // step, []).append(minute)
    return [_row(minutes) for _, minutes in sorted(rows.items(), reverse=True)]


def _row(minutes: list[dict[str, Any]]) -> dict[str, Any]:
    def most(name: str) -> Any:
        return max((minute[name] for minute in minutes if minute.get(name) is not None), default=None)

    row: dict[str, Any] = {"at": minutes[0]["at"]}
    for name in ("accepted", *OUTCOMES):
        row[name] = sum(minute[name] for minute in minutes)
    row["failed"] -= row["transport_timeout"]
    row["depth"] = UNKNOWN if most("depth") is None else count(most("depth"))
    for name in ("first_event_p95", "duration_p95", "cancel_latency_p95"):
        row[name] = UNKNOWN if most(name) is None else milliseconds(most(name))
    return row
