"""Accepting a run: the request, the checks before Redis, the one script, and what follows from its answer."""

from __future__ import annotations

from dataclasses import dataclass

from flask import request

from shared import tracing
from shared.logs import get_logger
from shared.protocol import sse
from shared.protocol.events import (
    InvalidInput,
    RunAgentInput,
    SerializationError,
    dump,
    dump_input,
    parse_input,
    run_started,
)
from shared.runs.identity import RunIdentity
from shared.store.answers import Accepted
from web import bodies
from web.api import catalogue, joins, resumes
from web.api.lookup import expired_run
from web.api.resubmission import require_same_run
from web.identity import current_actor
from web.problems import Code, Problem
from web.request_context import concerns
from web.services import services
from web.stops import make_way

POLICIES = ("enqueue", "reject", "interrupt")
"""What happens when the thread is busy: wait for the turn, refuse, or stop the runs in front."""

_LOOKS = 3
"""How often answers are checked anew because another run asks by now."""

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Submission:
    """A well-formed request to run an agent; ``policy`` is what the request itself chose."""

    agent: str
    identity: RunIdentity
    run_input: RunAgentInput
    policy: str | None


def read_submission(agent: str) -> Submission:
    """The current request's body and query; raises the 413 and the 400 that names the field."""
    limits = services().settings
    body = bodies.read(limits.max_bytes_per_request, setting="OUTLAST_MAX_BYTES_PER_REQUEST")
    policy = request.args.get("on_busy")
    if policy is not None and policy not in POLICIES:
        raise Problem(Code.INVALID_INPUT, f"on_busy must be one of {', '.join(POLICIES)}.", field="on_busy")
    if not body.strip():
        raise Problem(Code.INVALID_INPUT, "The body is empty; it must be a RunAgentInput.")
    try:
        run_input = parse_input(body, max_depth=limits.max_input_depth)
    except InvalidInput as error:
        detail = f"{error.field or 'The body'} {error.reason}."
        raise Problem(Code.INVALID_INPUT, detail, field=error.field or None) from None
    identity = RunIdentity(current_actor().name, run_input.thread_id, run_input.run_id)
    concerns(identity.key)
    return Submission(agent, identity, run_input, policy)


def admit(submission: Submission) -> str:
    """The thread policy that counts; raises the 404, 429 and 503 of a run that is not to be accepted.

    None of them stands in the way of a run that was accepted before.
    """
    held = services()
    offered = catalogue.offered()
    entry = offered.get(submission.agent)
    refusal = None
    if not offered:
        refusal = Problem(Code.NO_WORKER, catalogue.NO_WORKER_YET)
    elif entry is None:
        refusal = catalogue.unknown_agent(submission.agent, offered)
    elif not held.quota.has_room(submission.identity.actor):
        detail = f"You have {held.settings.max_active_runs_per_actor} active runs; wait until one has ended."
        refusal = Problem(Code.TOO_MANY_RUNS, detail)
    if refusal is not None and held.store.runs.get(submission.identity.key) is None:
        raise refusal
    return submission.policy or str((entry or {}).get("policy", POLICIES[0]))


def settle(submission: Submission, policy: str) -> bytes | None:
    """Accepts the run and gives its first frame; None when it was accepted before.

    Raises the 409 and 410 of an identity or a thread that refuses, the 400 and 409 of its answers to
    interrupts, and ``StoreError``.
    """
    held, key = services(), submission.identity.key
    traceparent = tracing.current_traceparent()
    hint = held.queue.hint(key, traceparent)
    accepted, started = _accept(submission, policy, traceparent, hint)
    match accepted.state:
        case "known":
            _join(submission)
            return None
        case "expired":
            raise expired_run()
        case "busy" | "crowded":
            raise _thread_refuses(accepted)
        case "uncovered" | "foreclosed" | "taken":
            raise resumes.refusal(accepted)
        case "changed":
            raise resumes.changing()
        case "ready":
            if hint is None:
                held.queue.enqueue(key, traceparent)
        case "waiting":
            if policy == "interrupt":
                make_way(held.store, held.queue, accepted.front, submission.identity.actor)
    held.quota.note_accepted(submission.identity.actor)
    log.info("run.accepted", agent=submission.agent, state=accepted.state)
    if accepted.interrupts:
        # What a client sends is as long as it likes.
        shown = [interrupt[:100] for interrupt in accepted.interrupts[:10]]
        log.warning("resume.unknown", interrupts=shown, count=len(accepted.interrupts))
    return started


def _accept(
    submission: Submission, policy: str, traceparent: str | None, hint: tuple[str, bytes] | None
) -> tuple[Accepted, bytes]:
    run_input = submission.run_input
    stored, started = _written(submission)
    looks = 0
    while True:
        looks += 1
        accepted = services().store.runs.accept(
            submission.identity,
            agent=submission.agent,
            run_input=stored,
            started_frame=started,
            policy=policy,
            parent_run_id=run_input.parent_run_id,
            traceparent=traceparent,
            hint=hint,
            answers=resumes.judged(submission.identity, run_input.resume),
        )
        if accepted.state != "changed" or looks == _LOOKS:
            return accepted, started


def _written(submission: Submission) -> tuple[bytes, bytes]:
    """The input as it is stored, and RUN_STARTED as a frame.

    That echoes the input where the agent asks so, unless the event would be larger than one may be.
    """
    run_input = submission.run_input
    event = run_started(run_input.thread_id, run_input.run_id, run_input.parent_run_id)
    echoes = services().agents().get(submission.agent, {}).get("echo_input")
    most = services().settings.max_bytes_per_event
    try:
        stored, data = dump_input(run_input), dump(event)
        if echoes:
            echo = dump(event.model_copy(update={"input": run_input}))
            if len(echo) <= most:
                data = echo
            else:
                log.warning("run.input_not_echoed", bytes=len(echo), most=most)
        return stored, sse.frame(1, data)
    except SerializationError as error:
        raise Problem(Code.INVALID_INPUT, f"The body cannot be stored: {error}.") from None


def _join(submission: Submission) -> None:
    key = submission.identity.key
    record = services().store.runs.get(key)
    if record is None:
        raise expired_run()
    accepted = joins.accepted_input(key)
    require_same_run(record, accepted, submission.run_input, submission.agent, joins.frames_of(key))


def _thread_refuses(accepted: Accepted) -> Problem:
    why = (
        "A run of this thread is active"
        if accepted.state == "busy"
        else "As many runs of this thread wait for their turn as may"
    )
    active = services().store.listing.records(list(accepted.front[:1]))
    if not active:
        return Problem(Code.THREAD_BUSY, f"{why}.")
    run_id = active[0].identity.run_id
    return Problem(Code.THREAD_BUSY, f"{why}; active is {run_id!r}.", run_id=run_id, run=active[0].public())
