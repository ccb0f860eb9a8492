"""Connecting to a thread: the conversation as it stands, then the run that is active."""

from __future__ import annotations

from flask import Blueprint, Response

from shared.runs.lifecycle import Status
from shared.runs.record import RunRecord
from web import bodies, schemas
from web.api import joins
from web.api.answers import RUN_KEY_HEADER, name_run, stream_answer
from web.identity import current_actor
from web.negotiation import SSE, choose, require_json_body
from web.openapi import Answer, Operation, operation
from web.problems import Code, Problem
from web.services import services

blueprint = Blueprint("threads", __name__)

_ENDED_BETWEEN = 100
"""As many runs of a thread may be newer than the active one and have ended: cancelled while they waited."""


@blueprint.post("/threads/<thread>/connect")
@operation(
    Operation(
        "Follow a thread: its conversation by snapshots, then its active run",
        "agents",
        answers={
            200: Answer(
                "The join of the active run, or of the last one that ended.",
                {SSE: schemas.ref("Event")},
                ("Location", RUN_KEY_HEADER),
            )
        },
        problems=(
            Code.UNKNOWN_RUN,
            Code.NOT_ACCEPTABLE,
            Code.UNSUPPORTED_MEDIA_TYPE,
            Code.TOO_MANY_STREAMS,
        ),
    )
)
def connect(thread: str) -> Response:
    """What a client that knows only the thread is told; a body is allowed and not read for anything."""
    choose((SSE,))
    require_json_body()
    bodies.read(services().settings.max_bytes_per_request)
    found = _to_join(thread)
    return name_run(stream_answer(joins.join(found.key)), found.key, location=True)


def _to_join(thread: str) -> RunRecord:
    """The run at the front of the thread, or the one that ended last when none is active."""
    most = services().settings.max_waiting_per_thread + _ENDED_BETWEEN
    newest = services().store.listing.of_thread(current_actor().name, thread, limit=most).records
    active = [run for run in newest if not run.ended]
    running = [run for run in active if run.status is Status.RUNNING]
    front = next(iter([*running, *reversed(active), *newest]), None)
    if front is None:
        raise Problem(Code.UNKNOWN_RUN, "You have no run on this thread.")
    return front
