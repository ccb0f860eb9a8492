"""Workers, the queue, the audit, bulk cancels: small pages of one table each."""

from __future__ import annotations

from shared.runs.identity import KEY_PATTERN
from web.ops import plots
from web.ops.look import Found, Look, Parts, View
from web.ops.pages.overview import banner
from web.ops.rows import rows_of
from web.ops.wording import count


def _read_workers(look: Look) -> Found:
    return {"workers": look.board.workers(), "banner": look.board.banner()}


def _workers(look: Look, found: Found) -> Parts:
    return {
        "banner": banner(look, found["banner"]),
        "workers": look.part("workers", workers=found["workers"]),
    }


def _read_queues(look: Look) -> Found:
    return {"queue": look.board.queues(), "stats": look.board.stats(60), "banner": look.board.banner()}


def _queues(look: Look, found: Found) -> Parts:
    wait = found["stats"]["histograms"]["queue_wait"]
    return {
        "banner": banner(look, found["banner"]),
        "queue": look.part(
            "queue",
            queue=found["queue"],
            plot=plots.depth(found["queue"]["series"]),
            flow=plots.lines(
                found["queue"]["flow"],
                {"accepted": "came", "claimed": "taken"},
                "Runs per minute",
                count,
            ),
            wait=wait,
            wait_plot=plots.histogram(wait, "Wait for a worker"),
        ),
    }


def _read_bulk(look: Look) -> Found:
    bulk = look.board.bulk(look.args["id"])
    run_keys = [one["key"] for one in bulk["results"] if KEY_PATTERN.fullmatch(one["key"])]
    rows = {row["key"]: row for row in rows_of(look.held.store, look.actor, run_keys)}
    results = [one | {"row": rows.get(one["key"])} for one in bulk["results"]]
    return {"bulk": bulk, "results": results, "banner": look.board.banner()}


def _bulk(look: Look, found: Found) -> Parts:
    bulk = found["bulk"]
    words = (
        f"{bulk['done']} of {bulk['total']} runs asked."
        if bulk["state"] == "running"
        else f"{bulk['state']}."
    )
    return {
        "banner": banner(look, found["banner"]),
        "bulk": look.part("bulk", bulk=bulk, results=found["results"]),
        "said": look.part("said", words=words),
    }


def _read_audit(look: Look) -> Found:
    page = look.board.audit(50, look.args.get("cursor"), look.args.get("run"))
    keys = {entry["run"] for entry in page["entries"] if KEY_PATTERN.fullmatch(entry.get("run", ""))}
    named = {record.key: record for record in look.held.store.listing.records(sorted(keys))}
    return page | {"named": named, "banner": look.board.banner()}


def _audit(look: Look, found: Found) -> Parts:
    return {
        "banner": banner(look, found["banner"]),
        "audit": look.part(
            "audit_rows", entries=found["entries"], named=found["named"], of_run="run" in look.args
        ),
    }


WORKERS = View(_read_workers, _workers)
QUEUES = View(_read_queues, _queues)
BULK = View(_read_bulk, _bulk)
AUDIT = View(_read_audit, _audit)
