"""Agents: which there are, and the AG-UI endpoint of each."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request

from web import schemas
from web.api import accept, catalogue, joins
from web.api.answers import RUN_KEY_HEADER, follow, json_answer, name_run, stream_answer
from web.negotiation import JSON, SSE, accepts, choose, prefers, require_json_body
from web.openapi import Answer, Operation, Parameter, operation
from web.problems import Code, Problem
from web.services import services

blueprint = Blueprint("agents", __name__)

_RESPOND_ASYNC = "respond-async"


@blueprint.post("/agents/<agent>")
@operation(
    Operation(
        "Start a run and follow it; the same ids again join the run that they name",
        "agents",
        answers={
            200: Answer(
                "The run's events as they happen.", {SSE: schemas.ref("Event")}, ("Location", RUN_KEY_HEADER)
            ),
            202: Answer(
                "The record, where Prefer: respond-async was sent.",
                {JSON: schemas.ref("Run")},
                ("Location", RUN_KEY_HEADER, "Preference-Applied"),
            ),
        },
        parameters=(
            Parameter(
                "on_busy",
                {"type": "string", "enum": list(accept.POLICIES)},
                "What to do when another run of the thread is active; the agent's own policy when absent.",
            ),
            Parameter(
                "Prefer",
                {"type": "string", "examples": [_RESPOND_ASYNC]},
                "respond-async: do not stream.",
                "header",
            ),
        ),
        body=schemas.ref("RunAgentInput"),
        problems=(
            Code.INVALID_INPUT,
            Code.UNKNOWN_AGENT,
            Code.NOT_ACCEPTABLE,
            Code.RUN_CONFLICT,
            Code.THREAD_BUSY,
            Code.INTERRUPT_OPEN,
            Code.INTERRUPT_ANSWERED,
            Code.INTERRUPT_EXPIRED,
            Code.RUN_EXPIRED,
            Code.INVALID_BODY,
            Code.UNSUPPORTED_MEDIA_TYPE,
            Code.TOO_MANY_RUNS,
            Code.NO_WORKER,
            Code.TOO_MANY_STREAMS,
            Code.STORE_UNCERTAIN,
            Code.STORE_FULL,
        ),
    )
)
def start(agent: str) -> Response:
    """The AG-UI endpoint: RunAgentInput in, the run's events out."""
    in_background = _in_background()
    require_json_body()
    submission = accept.read_submission(agent)
    policy = accept.admit(submission)
    key = submission.identity.key
    if in_background:
        accept.settle(submission, policy)
        response = json_answer(_record(key), status=202)
        response.headers["Preference-Applied"] = _RESPOND_ASYNC
        response.headers["Vary"] = "Accept, Prefer"
        return name_run(response, key, location=True)
    opened = follow(key)
    try:
        started = accept.settle(submission, policy)
    except BaseException:
        opened.close()
        raise
    if started is not None:
        opened.begin(started)
        response = stream_answer(opened)
    else:
        # Opened before it was known that this identity was accepted earlier.
        opened.close()
        response = stream_answer(joins.join(key))
    response.headers["Vary"] = "Accept, Prefer"
    return name_run(response, key, location=True)


@blueprint.get("/agents")
@operation(
    Operation(
        "The agents that workers offer",
        "agents",
        answers={200: Answer("By name.", {JSON: schemas.ref("Agents")})},
        problems=(Code.NO_WORKER,),
    )
)
def list_agents() -> Response:
    """The agents that runs may be started of."""
    return json_answer({"agents": [_shown(name, facts) for name, facts in _offered().items()]})


@blueprint.get("/agents/<agent>")
@operation(
    Operation(
        "One agent",
        "agents",
        answers={200: Answer("Its description.", {JSON: schemas.ref("Agent")})},
        problems=(Code.UNKNOWN_AGENT, Code.NO_WORKER),
    )
)
def show_agent(agent: str) -> Response:
    """What is known of one agent."""
    offered = _offered()
    if agent not in offered:
        raise catalogue.unknown_agent(agent, offered)
    return json_answer(_shown(agent, offered[agent]))


def _in_background() -> bool:
    """Whether the client gets a record instead of a stream; raises the 406 when it admits neither.

    A preference whose answer the header Accept refuses is not followed, as RFC 7240 allows.
    """
    if not prefers(_RESPOND_ASYNC):
        choose((SSE,))
        return False
    choose((SSE, JSON))
    return accepts(JSON)


def _offered() -> dict[str, dict[str, Any]]:
    offered = catalogue.offered()
    if not offered:
        raise Problem(Code.NO_WORKER, catalogue.NO_WORKER_YET)
    return offered


def _shown(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    members = ("description", "capabilities", "policy")
    shown = {"name": name} | {member: facts[member] for member in members if facts.get(member) is not None}
    return shown if facts["offered"] == "now" else shown | {"available": False}


def _record(key: str) -> dict[str, Any]:
    record = services().store.runs.get(key)
    if record is None:
        raise Problem(
            Code.STORE_UNCERTAIN, f"The record is gone already. Ask for {request.script_root}/runs/{key}."
        )
    return record.public()
