"""Answers to the interrupts of a thread: the checks before acceptance, and the refusals at it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from shared.logs import get_logger
from shared.protocol.events import ResumeEntry
from shared.runs.identity import RunIdentity
from shared.runs.interrupts import Answer, Question
from shared.runs.record import RunRecord
from shared.store.answers import Accepted
from shared.store.interrupts import open_questions
from web.api.response_schema import Judge, TooMuch, Unusable
from web.problems import Code, Problem
from web.services import services

_TOLD = 200
"""About as much of a schema's complaint is repeated."""

_NAMED = 10
"""So many interrupts are named in a sentence; the member ``interrupts`` has all."""

log = get_logger(__name__)


def judged(identity: RunIdentity, resume: Sequence[ResumeEntry] | None) -> tuple[Answer, ...]:
    """The answers as acceptance takes them; raises the 400 that names the entry that does not fit.

    An answer is checked against the schema of the question that is open when this is called; acceptance
    sees whether it still is. Raises ``StoreError``.
    """
    if not resume:
        return ()
    seen: set[str] = set()
    for index, entry in enumerate(resume):
        if entry.interrupt_id in seen:
            field = f"resume.{index}.interruptId"
            raise Problem(Code.INVALID_INPUT, f"{field} is answered twice.", field=field)
        seen.add(entry.interrupt_id)
    held = services().store
    questions = open_questions(held.client, identity)
    askers = {question.run for question in questions.values()}
    schemas = _schemas(held.listing.records(sorted(askers)))
    judge = Judge()
    for index, entry in enumerate(resume):
        question = questions.get(entry.interrupt_id)
        # What this very run has reserved was checked when it was accepted.
        if question is not None and entry.status == "resolved" and question.reserved_by != identity.key:
            _require_fit(judge, f"resume.{index}.payload", entry, schemas.get(entry.interrupt_id))
    return tuple(_answer(entry, questions.get(entry.interrupt_id)) for entry in resume)


def _answer(entry: ResumeEntry, question: Question | None) -> Answer:
    return Answer(entry.interrupt_id, entry.status, question.run if question else None)


def _schemas(askers: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    return {
        one["id"]: one["responseSchema"]
        for asker in askers
        for one in (asker.outcome or {}).get("interrupts") or []
        if one.get("responseSchema") is not None
    }


def _require_fit(judge: Judge, field: str, entry: ResumeEntry, schema: Any) -> None:
    """Raises the 400; an absent payload is judged as null. A schema that is none lets everything pass."""
    if schema is None:
        return
    try:
        misfit = judge.misfit(schema, entry.payload)
    except Unusable as error:
        log.warning("resume.schema_unusable", field=field, interrupt=entry.interrupt_id, error=str(error))
        return
    except TooMuch:
        detail = f"{field} is too large or too deep to be checked against the interrupt's response schema."
        raise Problem(Code.INVALID_INPUT, detail, field=field) from None
    if misfit is not None:
        place = ".".join([field, *map(str, misfit.path)])
        if misfit.missing:
            lacks = "is" if len(misfit.missing) == 1 else "are"
            why = f": {_short(', '.join(misfit.missing))} {lacks} missing"
        else:
            why = f", which says {_short(json.dumps(misfit.rule, ensure_ascii=False))}"
        detail = f"{place} does not fit the interrupt's response schema{why}."
        raise Problem(Code.INVALID_INPUT, detail, field=field)


def _short(text: str) -> str:
    return text if len(text) <= _TOLD else f"{text[:_TOLD]}…"


_REFUSALS = {
    "uncovered": (Code.INTERRUPT_OPEN, "An earlier run of this thread waits for answers; resume lacks some"),
    "foreclosed": (Code.INTERRUPT_EXPIRED, "The time for an answer is over; cancel it or leave it out"),
    "taken": (Code.INTERRUPT_ANSWERED, "Another run of this thread brings the answer already"),
}


def refusal(accepted: Accepted) -> Problem:
    """The 409 of answers that acceptance refused: names the interrupts and the run that asked or answers."""
    code, why = _REFUSALS[accepted.state]
    ids = sorted(accepted.interrupts)
    named: list[dict[str, Any]] = [{"id": id_} for id_ in ids]
    members: dict[str, Any] = {}
    run = next(iter(services().store.listing.records(list(accepted.front))), None)
    if run is not None:
        members["run"] = run.public()
        asked = {one["id"]: one for one in (run.outcome or {}).get("interrupts") or []}
        if accepted.state != "taken":
            named = [asked.get(id_, {"id": id_}) for id_ in ids]
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    detail = f"{why}: {', '.join(map(repr, ids[:_NAMED]))}{more}."
    return Problem(code, detail, field="resume", interrupts=named, **members)


def changing() -> Problem:
    """The 409 of a thread where somebody else asks at every look."""
    return Problem(
        Code.INTERRUPT_ANSWERED, "The questions of this thread are changing. Try again.", field="resume"
    )
