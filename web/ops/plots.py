"""Charts as inline SVG without text and without style: labels are HTML around them, colours are classes.

Each is stretched to its place, so that it fits a phone and a wall; ``label`` says in words what it shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from web.ops.wording import FEW, OUTCOMES, count, duration, few_words, milliseconds

WIDTH, HEIGHT = 600, 120
SPARK_WIDTH, SPARK_HEIGHT = 160, 22

MOST_HOVERS = 120
"""So many minutes get words of their own under the pointer."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart, what it shows in words, its top value and the labels below it."""

    svg: Markup
    label: str
    top: str
    ticks: tuple[str, ...]
    empty: bool = False


def endings(series: Sequence[dict[str, Any]]) -> Plot:
    """Runs per minute, stacked by outcome; provider time-outs are a series of their own."""
    parts = [_own_series(minute) for minute in series]
    top = max((sum(part.values()) for part in parts), default=0)
    step, shapes = WIDTH / max(1, len(parts)), []
    below = [0.0] * len(parts)
    for name in OUTCOMES:
        path = []
        for at, part in enumerate(parts):
            tall = part[name] / max(1, top) * HEIGHT
            if tall:
                path.append(_bar(at * step + 0.5, HEIGHT - below[at] - tall, step - 1, tall))
            below[at] += tall
        if path:
            shapes.append(Markup('<path class="fill-{}" d="{}"/>').format(name, "".join(path)))
    for at, (minute, part) in enumerate(zip(series, parts, strict=True)):
        told = ", ".join(f"{part[name]} {word}" for name, word in OUTCOMES.items() if part[name])
        shapes.append(_hover(at * step, step, f"{minute['at'][11:16]} UTC: {told or 'none'}"))
    total = {name: sum(part[name] for part in parts) for name in OUTCOMES}
    words = ", ".join(f"{total[name]} {word}" for name, word in OUTCOMES.items() if total[name])
    label = f"Runs ended per minute, at most {top}. In all: {words or 'none'}."
    return Plot(_svg(shapes, label), label, count(top), _clock(series), empty=top == 0)


def areas(series: Sequence[dict[str, Any]], names: dict[str, str]) -> Plot:
    """The same over so many minutes that each is too narrow for a bar: stacked areas."""
    parts = [_own_series(minute) for minute in series]
    top = max((sum(part.values()) for part in parts), default=0)
    step, below, shapes = WIDTH / max(1, len(parts)), [0.0] * len(parts), []
    for name in names:
        above = [low + part[name] / max(1, top) * HEIGHT for low, part in zip(below, parts, strict=True)]
        if above != below:
            steps = [(at * step, (at + 1) * step, HEIGHT - tall) for at, tall in enumerate(above)]
            back = [(at * step, (at + 1) * step, HEIGHT - low) for at, low in enumerate(below)]
            there = "".join(f"L{left:.1f} {y:.1f}H{right:.1f}" for left, right, y in steps)
            home = "".join(f"L{right:.1f} {y:.1f}H{left:.1f}" for left, right, y in reversed(back))
            shapes.append(Markup('<path class="fill-{}" d="M0 {}{}{}Z"/>').format(name, HEIGHT, there, home))
        below = above
    total = {name: sum(part[name] for part in parts) for name in names}
    words = ", ".join(f"{total[name]} {word}" for name, word in names.items() if total[name])
    label = f"Runs ended per minute, at most {top}. In all: {words or 'none'}."
    return Plot(_svg(shapes, label), label, count(top), _clock(series), empty=top == 0)


def _own_series(minute: dict[str, Any]) -> dict[str, int]:
    part = {name: int(minute[name]) for name in OUTCOMES}
    part["failed"] -= part["transport_timeout"]
    return part


def histogram(found: dict[str, Any], name: str) -> Plot:
    """How many fell into each slot, with a line at p50 and p95."""
    counts, bounds = found["counts"], found["bounds_ms"]
    filled = [slot for slot, number in enumerate(counts) if number]
    first, last = (max(0, filled[0] - 1), min(len(counts), filled[-1] + 2)) if filled else (4, 12)
    if last - first < 8:
        last = min(len(counts), first + 8)
        first = last - 8
    shown = range(first, last)
    top, step = max(counts), WIDTH / len(shown)
    shapes = []
    for at, slot in enumerate(shown):
        tall = counts[slot] / max(1, top) * HEIGHT
        if tall:
            bar = _bar(at * step + 2, HEIGHT - tall, step - 4, tall)
            shapes.append(Markup('<path class="fill-plain" d="{}"/>').format(bar))
        low = milliseconds(bounds[slot - 1]) if slot else "0"
        span = f"{low} to {milliseconds(bounds[slot])}" if slot < len(bounds) else f"over {low}"
        shapes.append(_hover(at * step, step, f"{span}: {counts[slot]}"))
    for mark in ("p50", "p95") if found["count"] >= FEW else ():
        place = _place(found.get(f"{mark}_ms"), bounds, first)
        if place is not None:
            line = Markup('<line class="mark-{}" x1="{:.1f}" x2="{:.1f}" y1="0" y2="{}"/>')
            shapes.append(line.format(mark, place * step, place * step, HEIGHT))
    label = f"{name}: {found['count']} runs"
    if 0 < found["count"] < FEW:
        label = f"{name}: {few_words(found)}"
    elif found["count"]:
        label += (
            f", half within {milliseconds(found['p50_ms'])}, 95 of 100 within {milliseconds(found['p95_ms'])}"
        )
    edges = [milliseconds(bounds[slot]) if slot < len(bounds) else "more" for slot in shown]
    ticks = (edges[0], edges[len(edges) // 2], edges[-1])
    return Plot(_svg(shapes, label + "."), label + ".", count(top), ticks, empty=not filled)


def _place(value: float | None, bounds: Sequence[int], first: int) -> float | None:
    """Where a value lies, counted in slots from the first one shown."""
    if value is None:
        return None
    low = 0
    for slot, bound in enumerate(bounds):
        if value <= bound:
            return slot - first + (value - low) / (bound - low)
        low = bound
    return len(bounds) - first + 0.5


def depth(series: Sequence[dict[str, Any]]) -> Plot:
    """How many runs waited for a worker, minute by minute, and as a line how long the oldest did."""
    top = max((int(minute["depth"]) for minute in series), default=0)
    oldest = max((float(minute["oldest_seconds"]) for minute in series), default=0.0)
    step = WIDTH / max(1, len(series) - 1)
    points = [
        (at * step, HEIGHT - int(minute["depth"]) / max(1, top) * HEIGHT) for at, minute in enumerate(series)
    ]
    ages = [
        (at * step, HEIGHT - float(minute["oldest_seconds"]) / max(1.0, oldest) * HEIGHT)
        for at, minute in enumerate(series)
    ]
    shapes = []
    if len(points) > 1:
        area = f"M0 {HEIGHT}L{_line(points)}L{WIDTH} {HEIGHT}Z"
        shapes = [
            Markup('<path class="fill-depth" d="{}"/>').format(area),
            Markup('<path class="line-depth" d="M{}"/>').format(_line(points)),
            Markup('<path class="line-age" d="M{}"/>').format(_line(ages)),
        ]
    for at, minute in enumerate(series):
        waited = duration(minute["oldest_seconds"])
        told = f"{minute['at'][11:16]} UTC: {minute['depth']} waiting, the oldest {waited}"
        shapes.append(_hover((at - 0.5) * step, step, told))
    label = f"Runs waiting for a worker: at most {top} in a minute, the oldest waited {duration(oldest)}."
    tops = f"{count(top)} · {duration(oldest)}" if oldest else count(top)
    return Plot(_svg(shapes, label), label, tops, _clock(series), empty=len(points) < 2)


def lines(
    series: Sequence[dict[str, Any]],
    names: dict[str, str],
    title: str,
    shown: Callable[[Any], str],
    *,
    log: bool = False,
) -> Plot:
    """One line for each name over the minutes of a series; a minute without a value leaves a gap."""
    known = [float(minute[name]) for minute in series for name in names if minute.get(name) is not None]
    top, step = max(known, default=0.0), WIDTH / max(1, len(series) - 1)
    scale: Callable[[float], float] = math.log1p if log else float
    full, dense, shapes = scale(top) or 1.0, len(series) > MOST_HOVERS, []
    # The first name is the one to see best: it is painted last.
    for name in reversed(names):
        heights = [
            None if minute.get(name) is None else HEIGHT - scale(float(minute[name])) / full * HEIGHT
            for minute in series
        ]
        path = "".join(f"M{_line(stretch)}" for stretch in _stretches(heights, step))
        kind = f"line line-{name}{' dense' if dense else ''}"
        shapes.append(Markup('<path class="{}" d="{}"/>').format(kind, path))
    for at, minute in enumerate([] if dense else series):
        told = ", ".join(
            f"{shown(minute[name])} {word}" for name, word in names.items() if minute.get(name) is not None
        )
        shapes.append(_hover((at - 0.5) * step, step, f"{minute['at'][11:16]} UTC: {told or 'none'}"))
    highest = shown(int(top) if top.is_integer() else top)
    label = f"{title}: at most {highest}, lines for {' and '.join(names.values())}."
    return Plot(_svg(shapes, label), label, highest, _clock(series), empty=not top)


def _stretches(heights: Sequence[float | None], step: float) -> Iterator[list[tuple[float, float]]]:
    """The parts of a line between its gaps; a minute alone becomes a dash."""
    stretch: list[tuple[float, float]] = []
    for at, y in enumerate([*heights, None]):
        if y is not None:
            stretch.append((at * step, y))
        elif stretch:
            x, first = stretch[0]
            yield stretch if len(stretch) > 1 else [(x - 1, first), (x, first)]
            stretch = []


def spark(series: Sequence[int], name: str) -> Markup:
    """One small line without an axis: how a number went, minute by minute."""
    top, step = max(series, default=0), SPARK_WIDTH / max(1, len(series) - 1)
    points = [
        (at * step, SPARK_HEIGHT - 1.5 - value / max(1, top) * (SPARK_HEIGHT - 3))
        for at, value in enumerate(series)
    ]
    label = f"{name}: at most {top} in a minute, {series[-1] if series else 0} in this one."
    head = Markup(
        '<svg class="spark" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">'
        '<title>{}</title><path class="fill-depth" d="M0 {}L{}L{} {}Z"/>'
        '<path class="line-depth" d="M{}"/></svg>'
    )
    line = _line(points) or "0 0"
    return head.format(
        label, SPARK_WIDTH, SPARK_HEIGHT, label, SPARK_HEIGHT, line, SPARK_WIDTH, SPARK_HEIGHT, line
    )


@dataclass(frozen=True, slots=True)
class Stage:
    """One stretch of a run's life; ``tone`` colours it."""

    name: str
    seconds: float
    tone: str


def life(stages: Sequence[Stage]) -> Markup:
    """The stretches of a run side by side; each is at least a sliver."""
    total = sum(stage.seconds for stage in stages) or 1.0
    least = WIDTH * 0.012
    spare = WIDTH - least * len(stages)
    left, shapes = 0.0, []
    for stage in stages:
        wide = least + stage.seconds / total * spare
        box = Markup(
            '<rect class="stage-{}" x="{:.1f}" y="0" width="{:.1f}" height="16"><title>{}</title></rect>'
        )
        shapes.append(
            box.format(stage.tone, left, max(1.0, wide - 1), f"{stage.name}: {duration(stage.seconds)}")
        )
        left += wide
    label = ", ".join(f"{stage.name} {duration(stage.seconds)}" for stage in stages)
    return _svg(shapes, f"{label}.", 16)


def _svg(shapes: Iterable[Markup], label: str, height: int = HEIGHT) -> Markup:
    head = Markup(
        '<svg class="plot" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">'
    )
    return head.format(label, WIDTH, height) + Markup("").join(shapes) + Markup("</svg>")


def _bar(x: float, y: float, wide: float, tall: float) -> str:
    return f"M{x:.1f} {y:.1f}h{wide:.1f}v{tall:.1f}h-{wide:.1f}z"


def _hover(x: float, wide: float, text: str) -> Markup:
    box = Markup('<rect class="hover" x="{:.1f}" y="0" width="{:.1f}" height="{}"><title>{}</title></rect>')
    return box.format(x, wide, HEIGHT, text)


def _line(points: Iterable[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _clock(series: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    if not series:
        return ()
    mark = Markup('<time class="clock" datetime="{}">{}</time>')
    shown = (series[0], series[len(series) // 2], series[-1])
    return tuple(mark.format(minute["at"], minute["at"][11:16]) for minute in shown)
