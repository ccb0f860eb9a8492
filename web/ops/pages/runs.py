"""The list of runs: its filter is its address, so that it can be sent to a colleague."""

from __future__ import annotations

from typing import Any

from werkzeug.datastructures import MultiDict

from shared.runs.identity import KEY_PATTERN
from shared.runs.record import rfc3339
from web.ops.actions import Operator
from web.ops.filters import read_filter
from web.ops.look import Found, Look, Parts, View
from web.ops.pages.overview import banner
from web.ops.rows import rows_of
from web.ops.wording import CODES

PAGE = 50
"""Rows of one page: the address of its stream names them all."""

AGES = {60: "1 minute", 600: "10 minutes", 3600: "1 hour", 21_600: "6 hours", 86_400: "1 day"}
STATUSES = ("queued", "running", "succeeded", "interrupted", "cancelled", "failed")
TROUBLES = ("orphaned", "cancelling", "stalled", "queued_long")


def _read(look: Look) -> Found:
    wanted = read_filter(look.args)
    page = look.board.runs(wanted, PAGE, look.args.get("cursor"))
    shown = [key for key in look.args.get("shown", "").split(".") if KEY_PATTERN.fullmatch(key)][:PAGE]
    fresh = 0
    if shown:
        # The rows under the pointer stay where they are; what is new waits behind a link.
        if not look.args.get("cursor"):
            fresh = len([row for row in page["runs"] if row["key"] not in set(shown)])
        page["runs"] = rows_of(look.held.store, look.actor, shown)
    page |= {"fresh": fresh, "filter": wanted, "words": wanted.words(), "banner": look.board.banner()}
    # With a trouble in the filter counting means to look at all live runs once more: the preview does that.
    if look.rights["bulk"] and not (wanted.empty or wanted.attention or shown):
        page["matched"] = Operator(look.held, look.actor).preview_bulk(wanted)["matched"]
    return page


def _parts(look: Look, found: Found) -> Parts:
    return {
        "banner": banner(look, found["banner"]),
        "rows": look.part("rows", rows=found["runs"]),
        "fresh": look.part("fresh", fresh=found["fresh"]),
    }


def page_values(look: Look, found: Found) -> dict[str, Any]:
    """What the page needs beside its live regions."""
    args = look.args
    return {
        "found": found,
        "wanted": found["filter"],
        "agents": sorted(look.held.agents()),
        "codes": CODES,
        "statuses": STATUSES,
        "troubles": TROUBLES,
        "ages": AGES,
        "query": _query(args),
        "older": _next(args, found),
        "stream": [*_query(args), ("shown", ".".join(row["key"] for row in found["runs"]))],
        "now": rfc3339(look.held.store.runs.now_ms()),
    }


def _query(args: MultiDict[str, str]) -> list[tuple[str, str]]:
    return [
        (name, value) for name, value in args.items(multi=True) if value and name not in {"shown", "view"}
    ]


def _next(args: MultiDict[str, str], found: Found) -> list[tuple[str, str]] | None:
    if "next" not in found:
        return None
    return [*(pair for pair in _query(args) if pair[0] != "cursor"), ("cursor", found["next"])]


VIEW = View(_read, _parts)
