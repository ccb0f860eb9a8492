"""Finds the run that a path names, for those who may know of it."""

from __future__ import annotations

from shared.runs.access import may_cancel, may_see, may_see_payloads
from shared.runs.identity import KEY_PATTERN, RunIdentity
from shared.runs.record import RunRecord
from web.identity import current_actor
from web.problems import Code, Problem
from web.request_context import concerns
from web.services import services


def unknown_run() -> Problem:
    """The refusal that does not tell whether somebody else has such a run."""
    return Problem(Code.UNKNOWN_RUN, "You have no such run.")


def visible_run(ids: dict[str, str]) -> RunRecord:
    """The record that ``key``, or ``thread`` and ``run`` of the actor itself, name.

    Raises the 404 for what is not there or not the actor's to see, and the 410 for an own run past its
    retention (by ids only: of an expired run key it is not known any more whose it was).
    """
    record = _by_key(ids["key"]) if "key" in ids else _by_ids(ids["thread"], ids["run"])
    concerns(record.key)
    return record


def readable_run(ids: dict[str, str]) -> RunRecord:
    """The same for those who may read its events; the 403 for operators who may only see the record."""
    record = visible_run(ids)
    if not may_see_payloads(current_actor(), record.identity.actor):
        raise Problem(Code.FORBIDDEN, "Reading the events of other actors needs the right payloads.")
    return record


def stoppable_run(ids: dict[str, str]) -> RunRecord:
    """The same for those who may stop it; raises the 403 for operators who may only look."""
    record = visible_run(ids)
    if not may_cancel(current_actor(), record.identity.actor):
        raise Problem(Code.FORBIDDEN, "Stopping the runs of other actors needs the role operator.")
    return record


def _by_key(key: str) -> RunRecord:
    record = services().store.runs.get(key) if KEY_PATTERN.fullmatch(key) else None
    if record is None or not may_see(current_actor(), record.identity.actor):
        raise unknown_run()
    return record


def _by_ids(thread_id: str, run_id: str) -> RunRecord:
    runs = services().store.runs
    key = RunIdentity(current_actor().name, thread_id, run_id).key
    record = runs.get(key)
    if record is not None:
        return record
    if runs.expired(key):
        raise expired_run()
    raise unknown_run()


def expired_run() -> Problem:
    """The refusal for an identity that ran once and is kept from running anew."""
    return Problem(Code.RUN_EXPIRED, "The run ended and is past its retention. Use a new run id.")
