"""The operator API: JSON over everything that operators see and do, for scripts and chat bots."""

from __future__ import annotations

import secrets
from typing import Any

from flask import Blueprint, Response, request

from web import bodies, schemas
from web.api.answers import json_answer
from web.identity import current_actor
from web.negotiation import JSON, require_json_body
from web.openapi import Answer, Operation, Parameter, operation
from web.ops import audit_file
from web.ops.actions import Done, Operator
from web.ops.board import Board
from web.ops.filters import FILTER, PARAMETERS, filter_from, read_filter
from web.problems import Code, Problem
from web.services import services

blueprint = Blueprint("ops_api", __name__, url_prefix="/ops/api")

DEFAULT_PAGE = 50
MOST_PER_PAGE = 200
MOST_EVENTS = 1000
MAX_REASON = 1000

_OBJECT: schemas.Schema = {"type": "object"}
_LIMIT = Parameter("limit", {"type": "integer", "minimum": 1}, f"Per page, at most {MOST_PER_PAGE}.")
_CURSOR = Parameter("cursor", schemas.TEXT, "What next of the page before said.")
_MINUTES = Parameter("minutes", {"type": "integer", "minimum": 1}, "How many minutes, at most 2880.")
_REASON: schemas.Schema = {"type": ["string", "null"], "maxLength": MAX_REASON}
_BULK: schemas.Schema = {
    "type": "object",
    "properties": {
        "filter": FILTER,
        "keys": {
            "type": "array",
            "items": schemas.TEXT,
            "maxItems": 500,
            "description": "Just these runs, instead of a filter; no count is to be confirmed.",
        },
        "reason": _REASON,
        "dry_run": {"type": "boolean", "description": "Only count, and show examples."},
        "confirm_count": schemas.COUNT | {"description": "The count that was seen; never more are stopped."},
    },
}
_ABOUT_RUN = (Code.UNKNOWN_RUN, Code.INVALID_INPUT, Code.RUN_ENDED)


def _reads(summary: str, *parameters: Parameter, problems: tuple[Code, ...] = ()) -> Operation:
    answers = {200: Answer("As it stands.", {JSON: _OBJECT})}
    return Operation(summary, "operators", answers, parameters=parameters, problems=problems)


def _acts(
    summary: str, *parameters: Parameter, problems: tuple[Code, ...] = (), body: schemas.Schema | None = None
) -> Operation:
    reason: schemas.Schema = {"type": "object", "properties": {"reason": _REASON}}
    return Operation(
        summary,
        "operators",
        {200: Answer("What it came to.", {JSON: _OBJECT})},
        parameters=parameters,
        body=body or reason,
        body_required=body is not None,
        problems=(*problems, Code.INVALID_BODY, Code.UNSUPPORTED_MEDIA_TYPE, Code.STORE_UNCERTAIN),
    )


def request_id() -> str:
    """The id that a proxy or the caller gave the request, else a new one; it is in the audit."""
    given = request.headers.get("X-Request-Id", "")
    return given if 0 < len(given) <= 128 and given.isprintable() else secrets.token_hex(8)


def _board() -> Board:
    return Board(services(), current_actor())


def _operator() -> Operator:
    return Operator(services(), current_actor(), request_id())


def _reason() -> str | None:
    require_json_body()
    return bodies.text_member(bodies.read_object(), "reason", MAX_REASON)


def _answer(done: Done) -> Response:
    return json_answer(done.document(current_actor()))


def _minutes() -> int:
    text = request.args.get("minutes", "60")
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0):
        raise Problem(Code.INVALID_INPUT, "minutes must be a whole number from 1.", field="minutes")
    return int(text[:9])


# --- runs --------------------------------------------------------------------------------------------------


@blueprint.get("/runs")
@operation(
    _reads("Everybody's runs, newest first", *PARAMETERS, _CURSOR, _LIMIT, problems=(Code.INVALID_INPUT,))
)
def runs() -> Response:
    """``partial`` says that a bound of the search was reached: go on with ``next``."""
    board, limit = _board(), bodies.page_size(DEFAULT_PAGE, MOST_PER_PAGE)
    return json_answer(board.runs(read_filter(request.args), limit, request.args.get("cursor")))


@blueprint.get("/attention")
@operation(_reads("Live runs that need a look, the worst first", _LIMIT))
def attention() -> Response:
    """Orphaned, cancelling past the grace, stalled, queued too long."""
    board = _board()
    return json_answer(board.attention(bodies.page_size(DEFAULT_PAGE, MOST_PER_PAGE)))


@blueprint.get("/runs/<key>")
@operation(_reads("One run with its troubles, neighbours and audit", problems=(Code.UNKNOWN_RUN,)))
def run(key: str) -> Response:
    """The failure's detail is in here; inputs and events are not."""
    return json_answer(_board().run(key))


@blueprint.get("/runs/<key>/events")
@operation(
    _reads(
        "A run's events; needs the right payloads",
        Parameter("after", schemas.COUNT, "Only what follows this event."),
        Parameter("limit", {"type": "integer", "minimum": 1}, f"Per page, at most {MOST_EVENTS}."),
        problems=(Code.UNKNOWN_RUN, Code.INVALID_INPUT),
    )
)
def events(key: str) -> Response:
    """Page by page as JSON; the stream is at /runs/{key}/events."""
    board, limit, text = _board(), bodies.page_size(100, MOST_EVENTS), request.args.get("after", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Problem(Code.INVALID_INPUT, "after must be the number of an event.", field="after")
    return json_answer(board.events(key, int(text), limit))


@blueprint.post("/runs/<key>/cancel")
@operation(_acts("Ask a run to stop", problems=_ABOUT_RUN))
def cancel(key: str) -> Response:
    """``requested``, or ``cancelled`` for one that was queued."""
    return _answer(_operator().cancel(key, _reason()))


@blueprint.post("/runs/<key>/terminate")
@operation(
    _acts(
        "End a run that does not stop by itself",
        Parameter("now", {"type": "string", "enum": ["1"]}, "Do not wait for the cancel's grace."),
        problems=(*_ABOUT_RUN, Code.GRACE),
    )
)
def terminate(key: str) -> Response:
    """The record is ended as cancelled at once; what its agent still writes is refused."""
    return _answer(_operator().terminate(key, _reason(), request.args.get("now") == "1"))


@blueprint.post("/runs/<key>/mark-lost")
@operation(_acts("End a run whose lease ran out as worker_lost", problems=(*_ABOUT_RUN, Code.RUN_ACTIVE)))
def mark_lost(key: str) -> Response:
    """Touches no worker; refused while one renews the lease."""
    return _answer(_operator().mark_lost(key, _reason()))


@blueprint.post("/runs/<key>/retry")
@operation(
    _acts("Repeat an ended run as a new one", problems=(*_ABOUT_RUN, Code.RUN_ACTIVE, Code.THREAD_BUSY))
)
def retry(key: str) -> Response:
    """The new run belongs to the same owner and thread; tools may act again."""
    return _answer(_operator().retry(key, _reason()))


@blueprint.post("/runs/<key>/requeue")
@operation(
    _acts("Send a queued run's message again", problems=(*_ABOUT_RUN, Code.RUN_ACTIVE, Code.THREAD_BUSY))
)
def requeue(key: str) -> Response:
    """Harmless: a message too many is dropped."""
    _reason()
    return _answer(_operator().requeue(key))


# --- bulk cancel -------------------------------------------------------------------------------------------


@blueprint.post("/bulk-cancel")
@operation(
    _acts(
        "Ask all live runs that match a filter, or those that are named, to stop",
        body=_BULK,
        problems=(Code.INVALID_INPUT, Code.EMPTY_FILTER, Code.COUNT_CHANGED, Code.NOTHING_MATCHES),
    )
)
def bulk_cancel() -> Response:
    """With ``dry_run`` the count and examples; else at most 500 runs, in the background."""
    require_json_body()
    body = bodies.read_object()
    if "keys" in body:
        return _made(_operator().cancel_ticked(*_ticked(body)))
    wanted = filter_from(body.get("filter", {}))
    reason, confirmed = bodies.text_member(body, "reason", MAX_REASON), body.get("confirm_count")
    if body.get("dry_run") is True:
        return json_answer(_operator().preview_bulk(wanted))
    if confirmed is not None and (isinstance(confirmed, bool) or not isinstance(confirmed, int)):
        raise Problem(Code.INVALID_INPUT, "confirm_count must be a whole number.", field="confirm_count")
    return _made(_operator().bulk_cancel(wanted, reason, confirmed))


def _ticked(body: dict[str, Any]) -> tuple[list[str], str | None]:
    run_keys = body["keys"]
    if "filter" in body:
        raise Problem(Code.INVALID_INPUT, "Give a filter or keys, not both.", field="keys")
    if not isinstance(run_keys, list) or not all(isinstance(key, str) for key in run_keys):
        raise Problem(Code.INVALID_INPUT, "keys must be a list of run keys.", field="keys")
    return run_keys, bodies.text_member(body, "reason", MAX_REASON)


def _made(bulk: dict[str, Any]) -> Response:
    answer = json_answer(bulk, status=202)
    answer.headers["Location"] = f"{request.script_root}/ops/api/bulk-cancel/{bulk['id']}"
    return answer


@blueprint.get("/bulk-cancel")
@operation(_reads("Bulk cancels, the newest first"))
def bulks() -> Response:
    """They are kept for a week."""
    return json_answer({"bulks": _board().bulks()})


@blueprint.get("/bulk-cancel/<bulk>")
@operation(_reads("One bulk cancel with what became of each run", problems=(Code.UNKNOWN_BULK,)))
def bulk(bulk: str) -> Response:
    """Progress and results as far as it got."""
    return json_answer(_board().bulk(bulk))


@blueprint.post("/bulk-cancel/<bulk>/stop")
@operation(_acts("Ask no further runs of a bulk cancel", problems=(Code.UNKNOWN_BULK,)))
def stop_bulk(bulk: str) -> Response:
    """Those asked stay asked."""
    _reason()
    return json_answer(_operator().stop_bulk(bulk))


@blueprint.post("/bulk-cancel/<bulk>/retry")
@operation(
    _acts("Ask those again that could not be asked", problems=(Code.UNKNOWN_BULK, Code.NOTHING_MATCHES))
)
def retry_bulk(bulk: str) -> Response:
    """A bulk cancel of its own, for the results ``failed`` of the first."""
    return _made(_operator().retry_bulk(bulk, _reason()))


# --- what they run on --------------------------------------------------------------------------------------


@blueprint.get("/workers")
@operation(_reads("Live workers and their runs"))
def workers() -> Response:
    """From the workers' own heartbeats."""
    return json_answer({"workers": _board().workers()})


@blueprint.get("/queues")
@operation(_reads("The queue, its depth and its oldest run"))
def queues() -> Response:
    """With the last hour's depth, minute by minute."""
    return json_answer(_board().queues())


@blueprint.get("/stats")
@operation(_reads("Numbers per minute and histograms", _MINUTES, problems=(Code.INVALID_INPUT,)))
def stats() -> Response:
    """The last hour by default."""
    return json_answer(_board().stats(_minutes()))


@blueprint.get("/audit")
@operation(
    _reads(
        "What operators did, newest first",
        Parameter("run", schemas.TEXT, "Only what was done to this run key."),
        _CURSOR,
        _LIMIT,
        problems=(Code.INVALID_INPUT, Code.UNKNOWN_RUN),
    )
)
def audit() -> Response:
    """Refused attempts are in it too."""
    board, limit = _board(), bodies.page_size(DEFAULT_PAGE, MOST_PER_PAGE)
    return json_answer(board.audit(limit, request.args.get("cursor"), request.args.get("run")))


@blueprint.get("/audit/export")
@operation(
    Operation(
        "The whole audit as a file",
        "operators",
        {200: Answer("Newest first.", {"application/x-ndjson": schemas.TEXT, "text/csv": schemas.TEXT})},
        parameters=(
            Parameter("format", {"type": "string", "enum": ["ndjson", "csv"]}, "ndjson when absent."),
        ),
        problems=(Code.INVALID_INPUT,),
    )
)
def audit_export() -> Response:
    """For viewers too: it says no more than the pages of the audit."""
    return audit_file.answer(_board(), request.args.get("format", "ndjson"))


@blueprint.get("/system")
@operation(_reads("Redis, settings with secrets masked, versions"))
def system() -> Response:
    """What to look at first when everything is slow."""
    return json_answer(_board().system())


@blueprint.post("/pause")
@operation(_acts("Let no worker take a run", problems=(Code.INVALID_INPUT,)))
def pause() -> Response:
    """Runs are accepted and wait; none of them times out meanwhile."""
    return _answer(_operator().pause(_reason()))


@blueprint.post("/resume")
@operation(_acts("Let workers take runs again"))
def resume() -> Response:
    """What waited is sent within a pass of the sweep."""
    _reason()
    return _answer(_operator().resume())


@blueprint.post("/workers/<worker>/drain")
@operation(_acts("Let one worker take no more runs", problems=(Code.UNKNOWN_WORKER,)))
def drain(worker: str) -> Response:
    """Until it is undrained or restarted; the runs it has go on."""
    return _answer(_operator().drain(worker, _reason()))


@blueprint.post("/workers/<worker>/shutdown")
@operation(_acts("Let one worker drain and end its process", problems=(Code.UNKNOWN_WORKER,)))
def shutdown(worker: str) -> Response:
    """As SIGTERM does; what still runs after the drain time ends as worker_shutdown."""
    return _answer(_operator().shut_down(worker, _reason()))


@blueprint.post("/workers/<worker>/undrain")
@operation(_acts("Let a drained worker take runs again"))
def undrain(worker: str) -> Response:
    """From its next heartbeat on."""
    _reason()
    return _answer(_operator().undrain(worker))
