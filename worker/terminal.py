"""The terminal event as an agent or the worker says it: made complete, and what outcome it tells."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from shared.logs import get_logger
from shared.protocol import events as ag
from shared.protocol.events import Event, TokenUsage
from shared.protocol.verifier import Verifier
from shared.runs.lifecycle import Status
from shared.runs.outcome import Outcome
from worker.failures import upstream_code

TERMINAL = (ag.RunFinishedEvent, ag.RunErrorEvent)

log = get_logger(__name__)


def completed(event: Event, verifier: Verifier, usage: Iterable[Any]) -> Event:
    """A terminal event with the run's usage and, for a success, the calls left to the client.

    What the event says of them itself stays; other events are given back as they are.
    """
    if not isinstance(event, TERMINAL):
        return event
    found: dict[str, Any] = {}
    if event.usage is None and (known := usage_of(usage)):
        found["usage"] = known
    if isinstance(event, ag.RunFinishedEvent):
        calls = list(verifier.unanswered_calls)
        said = event.outcome
        if calls and (said is None or _lists_none(said)):
            found["outcome"] = ag.RunFinishedSuccessOutcome(type="success", pending_tool_call_ids=calls)
    return event.model_copy(update=found) if found else event


def _lists_none(outcome: Any) -> bool:
    return isinstance(outcome, ag.RunFinishedSuccessOutcome) and outcome.pending_tool_call_ids is None


def usage_of(reported: object) -> list[TokenUsage]:
    """What an agent reported, mappings too; one that does not fit is left out: the ending matters more."""
    kept: list[TokenUsage] = []
    if not isinstance(reported, Iterable):
        log.warning("run.usage_refused")
        return kept
    for one in list(reported):
        try:
            known = one.model_dump(exclude_none=True, warnings=False) if isinstance(one, TokenUsage) else one
            kept.append(TokenUsage.model_validate(known))
        except ValidationError:
            log.warning("run.usage_refused")
    return kept


def told_by(event: Event) -> Outcome:
    """The outcome that an agent's own terminal event tells; raises as ``wire_of``."""
    if isinstance(event, ag.RunErrorEvent):
        return Outcome.failed(upstream_code(event.code), message=event.message)
    wire = wire_of(event)
    kind = wire.get("type", "success")
    status = {"cancelled": Status.CANCELLED, "interrupt": Status.INTERRUPTED}.get(kind, Status.SUCCEEDED)
    return Outcome(status, wire=wire or {"type": "success"})


def wire_of(event: Event) -> dict[str, Any]:
    """The outcome object of RUN_FINISHED as it travels; empty when it is absent.

    Raises SerializationError for an event that could not travel.
    """
    told: dict[str, Any] = json.loads(ag.dump(event))
    return told.get("outcome") or {}
