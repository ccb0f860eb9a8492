"""A run's events: as a stream that can be resumed anywhere, or page by page as JSON."""

from __future__ import annotations

from flask import Blueprint, Response, request

from shared.protocol import sse
from shared.runs.record import RunRecord
from web import bodies, schemas
from web.api import joins
from web.api.answers import RUN_KEY_HEADER, follow, json_answer, name_run, stream_answer
from web.api.lookup import readable_run
from web.negotiation import JSON, SSE, choose, vary_on_accept
from web.openapi import Answer, Operation, Parameter, operation
from web.problems import Code, Problem
from web.services import services

blueprint = Blueprint("events", __name__)

DEFAULT_PAGE = 100
MOST_PER_PAGE = 1000


@blueprint.get("/threads/<thread>/runs/<run>/events")
@blueprint.get("/runs/<key>/events", endpoint="events_by_key")
@operation(
    Operation(
        "The events of a run, from its log",
        "runs",
        answers={
            200: Answer(
                "A stream that ends with the run, or a page.",
                {SSE: schemas.ref("Event"), JSON: schemas.ref("Events")},
                (RUN_KEY_HEADER,),
            ),
            204: Answer("The run has ended and nothing follows the cursor: browsers stop coming back."),
        },
        parameters=(
            Parameter(
                "Last-Event-ID",
                schemas.TEXT,
                "Only what follows this event; counts before ?after=.",
                "header",
            ),
            Parameter("after", schemas.COUNT, "Only what follows this event."),
            Parameter(
                "mode",
                {"type": "string", "enum": ["events", "snapshot"]},
                "snapshot: join by snapshots, for a client without a cursor.",
            ),
            Parameter(
                "limit", {"type": "integer", "minimum": 1}, f"Events per page, at most {MOST_PER_PAGE}."
            ),
        ),
        problems=(
            Code.INVALID_INPUT,
            Code.UNKNOWN_RUN,
            Code.NOT_ACCEPTABLE,
            Code.RUN_EXPIRED,
            Code.TOO_MANY_STREAMS,
        ),
    )
)
def events(**ids: str) -> Response:
    """All events, or exactly those after a cursor; reading never runs anything."""
    snapshot = _by_snapshot()
    form = choose((SSE,) if snapshot else (SSE, JSON))
    after = _cursor()
    limit = bodies.page_size(DEFAULT_PAGE, MOST_PER_PAGE)
    found = readable_run(ids)
    if snapshot:
        response = stream_answer(() if request.method == "HEAD" else joins.join(found.key))
    else:
        response = _page(found, after, limit) if form == JSON else _stream(found, after)
    return vary_on_accept(name_run(response, found.key))


def _stream(found: RunRecord, after: int) -> Response:
    if found.ended and after >= found.last_seq:
        # WHATWG HTML, 9.2.3: a browser's EventSource reconnects after every other answer.
        return Response(status=204)
    if request.method == "HEAD":
        return stream_answer(())
    return stream_answer(follow(found.key, after))


def _page(found: RunRecord, after: int, limit: int) -> Response:
    frames = services().store.log.read(found.key, after, limit)
    listed = b",".join(
        b'{"seq":%d,"event":%b}' % (after + number, sse.data_of(frame))
        for number, frame in enumerate(frames, 1)
    )
    last = after + len(frames)
    following = b"" if found.ended and last >= found.last_seq else b',"next":%d' % last
    return json_answer(b'{"events":[%b]%b}' % (listed, following))


def _by_snapshot() -> bool:
    mode = request.args.get("mode", "events")
    if mode not in {"events", "snapshot"}:
        raise Problem(Code.INVALID_INPUT, "mode must be events or snapshot.", field="mode")
    return mode == "snapshot" and not _cursor()


def _cursor() -> int:
    """The number of the last event that the client has; a browser's own header counts before the address."""
    for name, text in (
        ("Last-Event-ID", request.headers.get("Last-Event-ID")),
        ("after", request.args.get("after")),
    ):
        try:
            cursor = sse.parse_cursor(text)
        except ValueError:
            raise Problem(Code.INVALID_INPUT, f"{name} must be the number of an event.", field=name) from None
        if cursor is not None:
            return cursor
    return 0
