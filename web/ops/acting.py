"""Forms that act: each does its one thing and sends the browser back where it was, with a word about it."""

from __future__ import annotations

import time

from flask import g, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from shared.runs.access import Role
from shared.runs.identity import KEY_PATTERN
from shared.store.errors import StoreError, StoreUncertain
from web.ops.actions import Operator
from web.ops.api import request_id
from web.ops.filters import read_filter
from web.ops.look import Look
from web.ops.notice import leave_notice
from web.ops.pages.confirming import PLANT_ACTS, RUN_ACTS, Act, question
from web.ops.pages.runs import PAGE
from web.ops.rights import require
from web.ops.rows import rows_of
from web.ops.signin import inside
from web.problems import Code, Problem
from web.services import services

LONGEST_REASON = 1000
TYPED_FROM = 51
"""From so many runs on, the number must be typed."""

WAIT_FOR_TICKED = 2.0
"""Seconds that a browser waits for the results of a short bulk cancel."""

NO_REASON = "Say why: the audit keeps it. Nothing was done."

_WORKER_ACTS = ("drain", "undrain", "shutdown")

_SAID: dict[str, str] = {
    "asked": "asked to stop",
    "cancelled": "cancelled in the queue",
    "already_finished": "already finished",
    "refused": "gone",
    "failed": "not reached",
}


def look_here() -> Look:
    """The current request as a look; going back means going back to this address."""
    return Look(services(), g.actor, request.args, inside(request.full_path.rstrip("?")))


def _operator() -> Operator:
    return Operator(services(), g.actor, request_id())


def _reason() -> str | None:
    text = " ".join(request.form.get("reason", "").split())
    return text[:LONGEST_REASON] or None


def _says_not_why(role: Role) -> bool:
    # Who may not do it at all is told that instead.
    return _reason() is None and g.actor.has(role)


def _back(text: str, *, bad: bool = False, to: str | None = None) -> Response:
    return leave_notice(redirect(to or inside(request.form.get("back")), 303), text, bad=bad)


def _refused(problem: Problem, to: str | None = None) -> Response:
    """Back to the page with the reason; who may not do it at all gets the page that says so."""
    if problem.code is Code.FORBIDDEN:
        raise problem
    return _back(problem.detail, bad=True, to=to)


def _ask(acts: dict[str, Act], name: str, target: str) -> str:
    if name not in acts:
        raise Problem(Code.NOT_FOUND, "There is no such action.")
    back = inside(request.args.get("back"))
    return render_template("ops/confirm.html", back=back, **question(look_here(), acts[name], target))


def _do(acts: dict[str, Act], name: str, target: str) -> Response:
    if name not in acts:
        raise Problem(Code.NOT_FOUND, "There is no such action.")
    wanted = acts[name].typed_for(target)
    if wanted is not None and request.form.get("typed", "").strip() != wanted:
        return _back("What was typed is not the beginning of the run key. Nothing was done.", bad=True)
    if acts[name].needs_why and _says_not_why(acts[name].role):
        return _back(NO_REASON, bad=True)
    try:
        done = acts[name].do(_operator(), target, _reason())
    except Problem as problem:
        return _refused(problem)
    new = done.record.key if name == "retry" and done.record else None
    return _back(done.detail, to=url_for("dashboard.run", key=new) if new else None)


# --- one run, the plant ------------------------------------------------------------------------------------


def ask_run(key: str, act: str) -> str:
    """Asks before an action on a run."""
    return _ask(RUN_ACTS, act, key)


def do_run(key: str, act: str) -> Response:
    """Carries it out."""
    return _do(RUN_ACTS, act, key)


def ask_queue(act: str) -> str:
    """Asks before pausing or resuming the intake."""
    return _ask({name: PLANT_ACTS[name] for name in ("pause", "resume")}, act, "")


def do_queue(act: str) -> Response:
    """Carries it out."""
    return _do({name: PLANT_ACTS[name] for name in ("pause", "resume")}, act, "")


def ask_worker(worker: str, act: str) -> str:
    """Asks before draining a worker, letting it work again, or shutting it down."""
    return _ask({name: PLANT_ACTS[name] for name in _WORKER_ACTS}, act, worker)


def do_worker(worker: str, act: str) -> Response:
    """Carries it out."""
    return _do({name: PLANT_ACTS[name] for name in _WORKER_ACTS}, act, worker)


# --- some runs ---------------------------------------------------------------------------------------------


def ask_selected() -> str | Response:
    """Asks before cancelling the runs that were ticked."""
    require(g.actor, Role.OPERATOR)
    back = inside(request.args.get("back"))
    run_keys = _keys(request.args.getlist("key"))
    if not run_keys:
        return _back("Tick the runs that you mean first.", bad=True, to=back)
    rows = [row for row in rows_of(services().store, g.actor, run_keys) if "finished_at" not in row]
    return render_template("ops/selected.html", back=back, rows=rows, asked=len(run_keys))


def do_selected() -> Response:
    """Cancels them as one bulk cancel, and waits a moment for what comes of it."""
    run_keys = _keys(request.form.getlist("key"))
    if _says_not_why(Role.OPERATOR):
        return _back(NO_REASON, bad=True)
    try:
        made = _operator().cancel_ticked(run_keys, _reason())
    except Problem as problem:
        return _refused(problem)
    bulk = services().store.bulk
    until = time.monotonic() + WAIT_FOR_TICKED
    while (found := bulk.get(made["id"])) and found.state == "running" and time.monotonic() < until:
        time.sleep(0.02)
    if found is None or found.state == "running":
        return _back(f"{len(run_keys)} runs are being asked to stop; the page Bulk tells how far it is.")
    told = ", ".join(f"{count} {_SAID[name]}" for name, count in found.counts.items() if count)
    return _back(f"{told[:1].upper()}{told[1:]}.")


def _keys(listed: list[str]) -> list[str]:
    return [key for key in dict.fromkeys(listed) if KEY_PATTERN.fullmatch(key)][:PAGE]


# --- all that match ----------------------------------------------------------------------------------------


def ask_bulk() -> str | Response:
    """Shows how many live runs match, and five of them, before anything is done."""
    back = inside(request.args.get("back"))
    args = request.args.copy()
    args.pop("cursor", None)
    try:
        preview = _operator().preview_bulk(read_filter(args))
    except Problem as problem:
        if problem.code is Code.FORBIDDEN:
            raise
        return _back(problem.detail, bad=True, to=back)
    fields = [
        (name, value)
        for name, value in args.items(multi=True)
        if value and name not in {"back", "cursor", "shown"}
    ]
    return render_template(
        "ops/bulk_ask.html", back=back, preview=preview, fields=fields, typed=preview["count"] >= TYPED_FROM
    )


def do_bulk() -> Response:
    """Freezes the runs that match and has them asked in the background."""
    form = request.form
    try:
        seen = int(form.get("seen", "")[:9])
        typed = int(form.get("typed", str(seen)).strip()[:9])
    except ValueError:
        seen, typed = 0, -1
    if typed != seen:
        return _back("The number that was typed is not the number of runs. Nothing was done.", bad=True)
    if _says_not_why(Role.OPERATOR):
        return _back(NO_REASON, bad=True)
    try:
        bulk = _operator().bulk_cancel(read_filter(form), _reason(), seen)
    except Problem as problem:
        return _refused(problem)
    return redirect(url_for("dashboard.bulk", bulk=bulk["id"]), 303)


def stop_bulk(bulk: str) -> Response:
    """Asks no further runs."""
    try:
        found = _operator().stop_bulk(bulk)
    except Problem as problem:
        return _refused(problem)
    return _back(f"Stopped after {found['done']} of {found['total']} runs; those asked stay asked.")


def retry_bulk(bulk: str) -> Response:
    """Asks those again that could not be asked."""
    try:
        made = _operator().retry_bulk(bulk)
    except Problem as problem:
        return _refused(problem)
    return redirect(url_for("dashboard.bulk", bulk=made["id"]), 303)


def store_trouble(error: StoreError) -> str:
    """What to tell when Redis did not answer."""
    if isinstance(error, StoreUncertain) and request.method == "POST":
        return "The answer of Redis was lost: look whether it was done, and do it again if not."
    return "Redis does not answer. Nothing can be shown or done until it does."
