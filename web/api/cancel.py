"""Asking a run to stop. A request is not an outcome: the record says how the run ended."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response

from shared.runs.outcome import StopCause
from shared.runs.record import RunRecord
from shared.runs.veil import public_to
from web import bodies, schemas
from web.api.answers import RUN_KEY_HEADER, json_answer, name_run
from web.api.lookup import stoppable_run, unknown_run
from web.api.runs import WAIT
from web.identity import current_actor
from web.negotiation import JSON, require_json_body
from web.openapi import Answer, Operation, operation
from web.problems import Code, Problem
from web.services import services
from web.stops import Wish, stop_run

blueprint = Blueprint("cancel", __name__)

MAX_REASON = 1000


@blueprint.post("/threads/<thread>/runs/<run>/cancel")
@blueprint.post("/runs/<key>/cancel", endpoint="cancel_by_key")
@operation(
    Operation(
        "Ask a run to stop",
        "runs",
        answers={
            200: Answer(
                "The outcome is recorded: a queued run ends at once, ?wait= waits for a running one.",
                {JSON: schemas.ref("Run")},
                ("Location", RUN_KEY_HEADER),
            ),
            202: Answer(
                "The run was told; its record does not have the outcome yet.",
                {JSON: schemas.ref("CancelRequested")},
                ("Location", RUN_KEY_HEADER),
            ),
        },
        parameters=(WAIT,),
        body=schemas.ref("Cancel"),
        body_required=False,
        problems=(
            Code.INVALID_INPUT,
            Code.UNKNOWN_RUN,
            Code.RUN_ENDED,
            Code.RUN_EXPIRED,
            Code.INVALID_BODY,
            Code.UNSUPPORTED_MEDIA_TYPE,
            Code.STORE_UNCERTAIN,
        ),
    )
)
def cancel(**ids: str) -> Response:
    """Stops exactly the run that the path names.

    200 with the record when the outcome is recorded: a queued run ends on the spot, a running one within
    ``?wait=``, however it ended. 202 when a running one was told, asked once or often. 409 with the record
    when it had ended before.
    """
    require_json_body()
    seconds = bodies.wait_seconds()
    reason = bodies.text_member(bodies.read_object(), "reason", MAX_REASON)
    found = stoppable_run(ids)
    held = services()
    answer = stop_run(held.store, held.queue, found.identity, _wish(found, reason))
    if answer == "unknown":
        raise unknown_run()
    if answer == "requested" and seconds:
        held.hub.wait_ended(found.key, seconds)
    found = held.store.runs.get(found.key) or found
    if answer == "ended":
        raise Problem(
            Code.RUN_ENDED, f"The run had ended: {found.status}.", run=public_to(current_actor(), found)
        )
    return name_run(_answer(found, known=answer == "cancelled"), found.key, location=True)


def _wish(found: RunRecord, reason: str | None) -> Wish:
    actor = current_actor()
    cause = StopCause.CLIENT if actor.name == found.identity.actor else StopCause.OPERATOR
    return Wish(actor.name, cause, reason)


def _answer(found: RunRecord, *, known: bool) -> Response:
    if known or found.ended:
        return json_answer(public_to(current_actor(), found))
    body: dict[str, Any] = public_to(current_actor(), found) | {"status": "requested"}
    return json_answer(body, status=202)
