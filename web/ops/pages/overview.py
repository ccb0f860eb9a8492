"""The first page: what needs a person, then how everything goes."""

from __future__ import annotations

from typing import Any

from web.ops import plots
from web.ops.look import Found, Look, Parts, View
from web.ops.plant import HEARD_SECONDS
from web.ops.wording import OUTCOMES, UNKNOWN, duration

MOST_AGENTS = 12
"""Agents that the first page lists."""

HISTOGRAMS = {
    "first_event": "First event",
    "duration": "Duration",
    "cancel_latency": "Cancel latency",
}
EXPLAINED = {
    "first_event": "from ready to the agent's first event",
    "duration": "from claim to the recorded outcome",
    "cancel_latency": "from the request to the recorded outcome",
}


def _read(look: Look) -> Found:
    return look.board.overview(60)


def _parts(look: Look, found: Found) -> Parts:
    numbers = found["stats"]
    charts = {
        "endings": plots.endings(numbers["series"]),
        "depth": plots.depth(found["queue"]["series"]),
    }
    histograms = [
        {
            "name": name,
            "means": EXPLAINED[key],
            "numbers": numbers["histograms"][key],
            "plot": plots.histogram(numbers["histograms"][key], name),
        }
        for key, name in HISTOGRAMS.items()
    ]
    return {
        "banner": banner(look, found["banner"]),
        "tiles": look.part("tiles", tiles=_tiles(found)),
        "attention": look.part(
            "attention",
            found=found["attention"],
            total=found["live"]["total"],
            heard=any(worker["silent_seconds"] <= HEARD_SECONDS for worker in found["workers"]),
        ),
        "charts": look.part("charts", charts=charts, numbers=numbers, outcomes=OUTCOMES),
        "histograms": look.part("histograms", histograms=histograms),
        "agents": look.part("agents", **_agents(numbers["agents"])),
        "crew": look.part("crew", workers=found["workers"], queue=found["queue"]),
        "said": look.part("said", words=_summary(found)),
    }


def _agents(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The busiest agents with a small chart each."""
    shown = []
    for row in rows:
        ended = sum(row["ended_per_minute"])
        # A run that paused for input is neither a success nor none.
        settled = ended - row["interrupted"]
        share = f"{row['succeeded'] / settled * 100:.0f} %" if settled else UNKNOWN
        shown.append(row | {"ended": ended, "share": share})
    shown.sort(key=lambda row: (-row["ended"], row["agent"]))
    for row in shown[:MOST_AGENTS]:
        row["plot"] = plots.spark(row["ended_per_minute"], f"Runs of {row['agent']} that ended")
    return {"agents": shown[:MOST_AGENTS], "more": len(shown[MOST_AGENTS:])}


def banner(look: Look, found: dict[str, Any]) -> Any:
    """What every page says on top: paused, no worker, draining."""
    return look.part("banner", banner=found)


def _tiles(found: Found) -> list[dict[str, Any]]:
    live, hour, queue = found["live"], found["last_hour"], found["queue"]
    counts = found["attention"]["counts"]
    other = hour["failed"] - hour["transport_timeout"]
    waiting = queue.get("oldest_ready_seconds")
    success = f"{hour['succeeded'] / hour['ended'] * 100:.1f} %" if hour["ended"] else None
    pending = counts["cancel_pending"]
    return [
        {
            "name": "Running",
            "value": live["running"],
            "tone": "blue",
            "query": {"status": "running"},
            "note": _slots(queue),
        },
        {
            "name": "Queued",
            "value": live["queued"],
            "tone": "quiet",
            "query": {"status": "queued"},
            "note": "nothing waits" if waiting is None else f"oldest {duration(waiting)}",
        },
        {
            "name": "Stalled",
            "value": counts["stalled"] + counts["orphaned"],
            "tone": "amber" if counts["stalled"] + counts["orphaned"] else "quiet",
            "query": {"attention": ["stalled", "orphaned"]},
            "note": f"{counts['orphaned']} orphaned",
        },
        {
            "name": "Cancelling",
            "value": live["cancelling"],
            "tone": "amber" if counts["cancelling"] else "quiet",
            "query": {"attention": "cancelling"},
            "note": f"{counts['cancelling']} past grace" if counts["cancelling"] else f"{pending} in grace",
        },
        {
            "name": "Failed, last hour",
            "value": hour["failed"],
            "tone": "red" if hour["failed"] else "quiet",
            "query": {"status": "failed", "newer_than": 3600},
            "note": f"{hour['transport_timeout']} time-outs · {other} other",
        },
        {
            "name": "Success, last hour",
            "value": success,
            "tone": "green" if hour["ended"] else "quiet",
            "query": {"newer_than": 3600},
            "note": f"of {hour['ended']} ended",
        },
    ]


def _slots(queue: dict[str, Any]) -> str:
    if not queue["slots"] and queue["workers"]:
        return "no worker is heard of"
    return f"{queue['busy']} of {queue['slots']} slots" if queue["slots"] else "no worker"


def _summary(found: Found) -> str:
    """One sentence for screen readers; it changes only when something important does."""
    total, counts = found["attention"]["total"], found["attention"]["counts"]
    if not total:
        return "Nothing needs attention."
    kinds = ("orphaned", "cancelling", "stalled", "queued_long")
    told = ", ".join(f"{counts[kind]} {kind.replace('_', ' ')}" for kind in kinds if counts[kind])
    return f"{total} {'run needs' if total == 1 else 'runs need'} attention: {told}."


VIEW = View(_read, _parts)
