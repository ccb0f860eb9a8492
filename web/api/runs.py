"""Runs as records: one, and lists of them, newest first."""

from __future__ import annotations

from collections.abc import Callable

from flask import Blueprint, Response, request

from shared.runs.lifecycle import Status
from shared.runs.record import RunRecord
from shared.runs.veil import public_to
from shared.store.listing import Page
from web import bodies, schemas
from web.api.answers import RUN_KEY_HEADER, json_answer, name_run
from web.api.lookup import visible_run
from web.identity import current_actor
from web.negotiation import JSON
from web.openapi import Answer, Operation, Parameter, operation
from web.problems import Code, Problem
from web.services import services

blueprint = Blueprint("runs", __name__)

DEFAULT_PAGE = 50
MOST_PER_PAGE = 200

WAIT = Parameter(
    "wait",
    {"type": "number", "minimum": 0},
    "Wait up to so many seconds, at most 60, for the recorded outcome.",
)
_PAGING = (
    Parameter("cursor", schemas.TEXT, "What next of the page before said."),
    Parameter("limit", {"type": "integer", "minimum": 1}, f"Runs per page, at most {MOST_PER_PAGE}."),
    Parameter(
        "status",
        {"type": "array", "items": {"type": "string", "enum": [str(status) for status in Status]}},
        "Only runs with this status; may be repeated.",
    ),
    Parameter("agent", schemas.TEXT, "Only runs of this agent."),
)


@blueprint.get("/threads/<thread>/runs/<run>")
@blueprint.get("/runs/<key>", endpoint="record_by_key")
@operation(
    Operation(
        "The record of a run",
        "runs",
        answers={200: Answer("The record as it stands.", {JSON: schemas.ref("Run")}, (RUN_KEY_HEADER,))},
        parameters=(WAIT,),
        problems=(Code.INVALID_INPUT, Code.UNKNOWN_RUN, Code.RUN_EXPIRED),
    )
)
def record(**ids: str) -> Response:
    """Where a run is and how it ended; ``?wait=`` answers early when the outcome is recorded."""
    seconds = bodies.wait_seconds()
    found = visible_run(ids)
    if seconds and not found.ended:
        held = services()
        held.hub.wait_ended(found.key, seconds)
        found = held.store.runs.get(found.key) or found
    return name_run(json_answer(public_to(current_actor(), found)), found.key)


@blueprint.get("/runs")
@operation(
    Operation(
        "Your runs, newest first",
        "runs",
        answers={200: Answer("One page.", {JSON: schemas.ref("Runs")})},
        parameters=_PAGING,
        problems=(Code.INVALID_INPUT,),
    )
)
def list_runs() -> Response:
    """The actor's own runs over all threads."""
    keep, limit = _filter(), bodies.page_size(DEFAULT_PAGE, MOST_PER_PAGE)
    listing, actor = services().store.listing, current_actor().name
    return _page(lambda cursor: listing.of_actor(actor, limit=limit, cursor=cursor, keep=keep))


@blueprint.get("/threads/<thread>/runs")
@operation(
    Operation(
        "The runs of one thread, newest first",
        "runs",
        answers={200: Answer("One page; empty for a thread without runs.", {JSON: schemas.ref("Runs")})},
        parameters=_PAGING,
        problems=(Code.INVALID_INPUT,),
    )
)
def list_thread(thread: str) -> Response:
    """The actor's own runs of one thread."""
    keep, limit = _filter(), bodies.page_size(DEFAULT_PAGE, MOST_PER_PAGE)
    listing, actor = services().store.listing, current_actor().name
    return _page(lambda cursor: listing.of_thread(actor, thread, limit=limit, cursor=cursor, keep=keep))


def _filter() -> Callable[[RunRecord], bool] | None:
    wanted = set(request.args.getlist("status"))
    unknown = wanted - set(map(str, Status))
    if unknown:
        detail = f"status must be one of {', '.join(Status)}."
        raise Problem(Code.INVALID_INPUT, detail, field="status")
    agent = request.args.get("agent")
    if not wanted and agent is None:
        return None
    return lambda found: (not wanted or found.status in wanted) and agent in {None, found.agent}


def _page(read: Callable[[str | None], Page]) -> Response:
    try:
        page = read(request.args.get("cursor"))
    except ValueError:
        raise Problem(
            Code.INVALID_INPUT, "cursor is not one that this server gave.", field="cursor"
        ) from None
    body: dict[str, object] = {"runs": [found.public() for found in page.records]}
    if page.cursor is not None:
        body["next"] = page.cursor
    return json_answer(body)
