"""One run: what it is doing, what was asked of it, what came of it, and its events."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from flask import Response, request

from shared.runs.record import rfc3339
from web.ops import events_view
from web.ops.look import Found, Look, Parts, View
from web.ops.pages.overview import banner
from web.ops.plots import Stage, life
from web.problems import Code, Problem
from web.services import services

TABS = {
    "events": "Events",
    "input": "Input",
    "state": "State",
    "attempts": "Attempts",
    "record": "Record",
    "audit": "Audit",
}
LONGEST_COMMAND = 8000
"""Characters of an input that still fit a command line that a person copies."""

EVENTS = 400
"""Events of one page."""

_DETAIL_FIRST = ("key", "run_id", "thread_id", "actor", "agent", "status", "code", "message", "incident")


def _read(look: Look) -> Found:
    key, tab = look.args["key"], look.args.get("tab", "events")
    found = look.board.run(key)
    found["banner"] = look.board.banner()
    found["tab"] = tab if tab in TABS else "events"
    found["ended"] = "finished_at" in found["run"]
    if found["tab"] == "events":
        found |= _events(look, key, found)
    elif found["tab"] == "input" and found["payloads"]:
        given = look.board.input(key)
        found["input"] = json.dumps(given, ensure_ascii=False, indent=2)
        found["curl"] = _curl(found["run"], given)
    elif found["tab"] == "state" and found["payloads"]:
        told = look.board.conversation(key)
        found |= {
            name: json.dumps(told[name], ensure_ascii=False, indent=2) for name in ("state", "messages")
        }
    return found


def _events(look: Look, key: str, found: Found) -> Found:
    last = found["events"]
    # A stream that follows goes on to the end although the run has ended by then.
    follow = "tail" in look.args or not (found["ended"] or "after" in look.args or "still" in look.args)
    after = max(0, last - EVENTS) if follow else _number(look.args.get("after", "0"))
    if look.args.get("from"):
        after, follow = max(0, _number(look.args["from"]) - 1), False
    if found["payloads"]:
        items = look.board.events(key, after, EVENTS)["events"]
        rows = events_view.fold(items)
        broken = look.board.rule_breaks(key) if "check" in look.args else {}
        if not broken and after == 0:
            broken = look.board.rule_breaks(key, items)
        events_view.mark(rows, broken)
    else:
        items = look.board.event_sizes(key, after, EVENTS)
        rows, broken = events_view.fold_sizes(items), {}
    reached = items[-1]["seq"] if items else after
    return {
        "rows": events_view.only(rows, set(look.args.getlist("kind")) & set(events_view.GROUPS)),
        "follow": follow,
        "after": after,
        "reached": reached,
        "last": max(last, reached),
        "broken": broken,
        "checked": "check" in look.args,
    }


def _curl(run: dict[str, Any], given: dict[str, Any]) -> str:
    """The request under a new run id: under its own it would only be told what is recorded."""
    again = json.dumps(given | {"runId": f"{run['run_id']}-again"[-256:]}, ensure_ascii=False)
    body = shlex.quote(again) if len(again) <= LONGEST_COMMAND else "@input.json"
    address = shlex.quote(f"{request.host_url}agents/{quote(run['agent'], safe='')}")
    lines = [f"curl -N {address}", "-H 'Content-Type: application/json'", f"--data-raw {body}"]
    if body.startswith("@"):
        lines[-1] = f"--data-binary {body}"
    if services().settings.auth != "none":
        lines.insert(1, '-H "Authorization: Bearer $TOKEN"')
    return " \\\n  ".join(lines)


def _parts(look: Look, found: Found) -> Parts:
    run = found["run"]
    shown = {"found": found, "run": run}
    parts = {
        "banner": banner(look, found["banner"]),
        "head": look.part("run_head", **shown),
        "life": look.part("run_life", stages=_stages(run), moments=_moments(run), plot=life(_stages(run))),
        "failure": look.part("run_failure", **shown),
        "calls": look.part("run_calls", calls=_calls(run), run=run),
        "around": look.part("run_around", **shown),
        "said": look.part("said", words=_summary(found)),
    }
    if found["tab"] == "events" and (found["follow"] or "view" not in look.args):
        parts["events"] = look.part("events", **shown)
    elif found["tab"] == "audit":
        parts["audit"] = look.part("audit_rows", entries=list(reversed(found["audit"])), of_run=True)
    return parts


def _summary(found: Found) -> str:
    run = found["run"]
    if found["ended"]:
        return f"The run has ended: {run['status']}."
    if "cancel_requested_at" in run:
        return "The run was asked to stop; its outcome is not recorded yet."
    return f"The run is {run['status']}."


def record_rows(run: dict[str, Any]) -> list[tuple[str, Any]]:
    """Every fact of the record, those that people ask for first."""
    told = {name: value for name, value in run.items() if name not in {"detail", "attention"}}
    ordered = [name for name in _DETAIL_FIRST if name in told] + [
        name for name in told if name not in _DETAIL_FIRST
    ]
    return [(name, told[name]) for name in ordered]


def _stages(run: dict[str, Any]) -> list[Stage]:
    created, ready, started = _time(run, "created_at"), _time(run, "ready_at"), _time(run, "started_at")
    asked, ended = _time(run, "cancel_requested_at"), _time(run, "finished_at")
    until = ended or datetime.now(UTC).timestamp()
    stages = []
    if created is not None:
        turn = min(ready or started or until, until)
        if turn - created > 0.05 and ready is not None:
            stages.append(Stage("waiting for its turn", turn - created, "turn"))
        stages.append(Stage("queued", (started or until) - (ready or created), "queued"))
    if started is not None:
        stop = min(asked, until) if asked is not None and asked >= started else until
        first = _time(run, "first_event_at")
        if first is not None and started <= first <= stop:
            stages.append(Stage("to the first event", first - started, "first"))
            started = first
        stages.append(Stage("running", stop - started, "running"))
        if stop < until:
            stages.append(Stage("cancelling", until - stop, "cancelling"))
    return [Stage(stage.name, max(0.0, stage.seconds), stage.tone) for stage in stages]


_MOMENTS = {
    "created_at": "accepted",
    "ready_at": "ready",
    "started_at": "started",
    "first_event_at": "first event",
    "last_event_at": "last event",
    "cancel_requested_at": "cancel requested",
    "terminated_at": "force stopped",
    "finished_at": "outcome recorded",
}


def _moments(run: dict[str, Any]) -> list[dict[str, str]]:
    told = [{"name": name, "at": run[field]} for field, name in _MOMENTS.items() if field in run]
    for moment in told:
        if moment["name"] == "cancel requested" and "cancel_by" in run:
            moment["by"] = run["cancel_by"]
        if moment["name"] == "force stopped" and "terminated_by" in run:
            moment["by"] = run["terminated_by"]
    return sorted(told, key=lambda moment: moment["at"])


def _calls(run: dict[str, Any]) -> dict[str, Any]:
    """The agent's calls to its provider: those that are over, the longest marked, and their sum."""
    rows = [
        call | {"at": rfc3339(call["at"]), "seconds": call["ms"] / 1000}
        for call in run.get("provider_calls", [])
    ]
    longest = max((call["seconds"] for call in rows), default=0.0)
    return {
        "rows": rows,
        "longest": longest or 1.0,
        "seconds": sum(call["seconds"] for call in rows),
        "failed": sum(bool(call.get("failed")) for call in rows),
    }


def attempts(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The executions of the run, the newest first: those whose worker was lost, and the one that stands."""
    rows: list[dict[str, Any]] = [
        {
            "number": one.get("attempt"),
            "worker": one.get("worker"),
            "pid": one.get("pid"),
            "came": "worker lost",
        }
        | ({"until": rfc3339(one["at"])} if "at" in one else {})
        for one in run.get("lost", [])
    ]
    if "started_at" in run and run.get("attempt", 0) > len(rows):
        last = {"number": run["attempt"], "worker": run.get("worker"), "pid": run.get("pid")}
        last |= {"since": run["started_at"], "came": run["status"]}
        rows.append(last | ({"until": run["finished_at"]} if "finished_at" in run else {}))
    return rows[::-1]


def _time(run: dict[str, Any], name: str) -> float | None:
    return datetime.fromisoformat(run[name]).timestamp() if name in run else None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Problem(Code.INVALID_INPUT, "after must be the number of an event.", field="after")
    return int(text)


def download(look: Look, key: str) -> Response:
    """Every event as one JSON object per line; needs the payload right."""
    board = look.board
    first = board.events(key, 0, EVENTS)

    def lines() -> Iterator[str]:
        page = first
        while page["events"]:
            for item in page["events"]:
                yield json.dumps(item, ensure_ascii=False) + "\n"
            if "next" not in page:
                return
            page = board.events(key, page["next"], EVENTS)

    response = Response(lines(), content_type="application/x-ndjson")
    response.headers["Content-Disposition"] = f'attachment; filename="{key}.ndjson"'
    return response


def download_input(look: Look, key: str) -> Response:
    """What the run was given; needs the payload right."""
    body = json.dumps(look.board.input(key), ensure_ascii=False, indent=2)
    response = Response(body, content_type="application/json")
    response.headers["Content-Disposition"] = 'attachment; filename="input.json"'
    return response


VIEW = View(_read, _parts)
