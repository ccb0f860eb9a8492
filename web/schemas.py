"""JSON Schemas of the bodies this server sends and takes besides the protocol's own."""

from __future__ import annotations

from typing import Any

from shared.runs.lifecycle import Status
from shared.runs.outcome import FailureCode
from web.problems import Code

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
SECONDS: Schema = {"type": "number", "minimum": 0}
_TIME: Schema = {"type": "string", "format": "date-time"}
_ID: Schema = {"type": "string", "minLength": 1, "maxLength": 256}


def ref(name: str) -> Schema:
    """A reference to one of the document's components."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(
    properties: dict[str, Schema], *, optional: tuple[str, ...] = (), description: str = ""
) -> Schema:
    schema: Schema = {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }
    return schema | ({"description": description} if description else {})


_RUN: dict[str, Schema] = {
    "key": TEXT | {"description": "The run key: names the run in paths, whatever its ids hold."},
    "actor": TEXT,
    "thread_id": _ID,
    "run_id": _ID,
    "agent": TEXT,
    "status": {"type": "string", "enum": [str(status) for status in Status]},
    "last_seq": COUNT | {"description": "The number of the newest event in the log."},
    "code": {"type": "string", "enum": [str(code) for code in FailureCode], "description": "Why it failed."},
    "message": TEXT | {"description": "One safe sentence about the failure."},
    "outcome": {"type": "object", "description": "The AG-UI outcome object of a run that did not fail."},
    "created_at": _TIME,
    "started_at": _TIME,
    "finished_at": _TIME,
    "cancel_requested_at": _TIME,
    "cancel_reason": TEXT,
    "attempt": COUNT,
    "worker": TEXT,
    "incident": TEXT | {"description": "Names the failure in the operator's log."},
    "parent_run_id": TEXT,
    "unknown_calls": {
        "type": "array",
        "items": _object({"id": TEXT, "name": TEXT}),
        "description": "Tool calls of which nobody knows whether they took effect: the worker could not say.",
    },
    "answered_by": TEXT | {"description": "The run id of the run that answered this one's interrupts."},
}
_RUN_ALWAYS = ("key", "actor", "thread_id", "run_id", "agent", "status", "last_seq", "created_at")

RUN: Schema = _object(
    _RUN,
    optional=tuple(name for name in _RUN if name not in _RUN_ALWAYS),
    description="The record of a run; what is not known yet is absent.",
)

CANCEL_REQUESTED: Schema = _object(
    _RUN | {"status": {"const": "requested"}},
    optional=tuple(name for name in _RUN if name not in (*_RUN_ALWAYS, "cancel_requested_at")),
    description="The record of a running run that was asked to stop; the outcome is not known yet.",
)

RUNS: Schema = _object(
    {
        "runs": {"type": "array", "items": ref("Run")},
        "next": TEXT | {"description": "Ask for the next page with ?cursor=; absent on the last page."},
    },
    optional=("next",),
)

EVENTS: Schema = _object(
    {
        "events": {"type": "array", "items": _object({"seq": COUNT, "event": ref("Event")})},
        "next": COUNT
        | {"description": "Ask for what follows with ?after=; absent after the terminal event."},
    },
    optional=("next",),
)

AGENT: Schema = _object(
    {
        "name": TEXT,
        "description": TEXT,
        "capabilities": {"type": "object", "description": "AG-UI AgentCapabilities."},
        "policy": {"type": "string", "enum": ["enqueue", "reject", "interrupt"]},
        "available": {
            "const": False,
            "description": "There while no live worker offers it; its runs wait for one that does.",
        },
    },
    optional=("description", "capabilities", "policy", "available"),
)

AGENTS: Schema = _object({"agents": {"type": "array", "items": ref("Agent")}})

CANCEL: Schema = _object(
    {"reason": {"type": ["string", "null"], "maxLength": 1000}},
    optional=("reason",),
)

PROBLEM: Schema = _object(
    {
        "type": TEXT,
        "title": TEXT,
        "status": {"type": "integer"},
        "detail": TEXT,
        "instance": TEXT,
        "code": {"type": "string", "enum": [str(code) for code in Code]},
        "field": TEXT | {"description": "The part of the request that is wrong."},
        "run": ref("Run") | {"description": "The record that stands in the way."},
        "run_id": TEXT | {"description": "Of THREAD_BUSY: the run that is active."},
        "interrupts": {
            "type": "array",
            "items": {"type": "object", "properties": {"id": TEXT}, "required": ["id"]},
            "description": "Of the codes INTERRUPT_*: the AG-UI interrupts that are meant.",
        },
        "offers": {"type": "array", "items": TEXT, "description": "Of NOT_ACCEPTABLE: what could be sent."},
        "incident": TEXT | {"description": "Of INTERNAL: names the failure in the operator's log."},
    },
    optional=("field", "run", "run_id", "interrupts", "offers", "incident"),
    description="A refusal: the members of RFC 9457 plus a stable code, sent as application/json.",
)

COMPONENTS: dict[str, Schema] = {
    "Run": RUN,
    "CancelRequested": CANCEL_REQUESTED,
    "Runs": RUNS,
    "Events": EVENTS,
    "Agent": AGENT,
    "Agents": AGENTS,
    "Cancel": CANCEL,
    "Problem": PROBLEM,
}
