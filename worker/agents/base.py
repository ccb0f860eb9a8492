"""What an agent is, what it may return, and the entry that the worker runs it by."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError

from shared.protocol import events as ag
from shared.runs.outcome import Outcome
from worker.context import RunContext, current_run
from worker.failures import AgentError, ProtocolError, UpstreamError
from worker.transformation import Transformer

__all__ = ["Agent", "AgentEntry", "AgentError", "Interrupt", "ProtocolError", "UpstreamError"]

POLICIES = frozenset({"enqueue", "reject", "interrupt"})
"""What a request does that meets an active run on its thread."""

MOST_RETRIES = 10
"""How often an agent may ask to be executed again; a run that kills its worker kills that many more."""


class Agent(Protocol):
    """An agent as an object; a plain function of the context is one too.

    ``run`` may be ``async def``, ``def``, or a sync or async generator function; the last two take
    the RunAgentInput instead of the context and yield AG-UI events.
    """

    def run(self, ctx: RunContext) -> Any:
        """Executes one run: returns None for success or an Interrupt to pause."""


class Interrupt:
    """Returned by an agent to pause its run until people answer (AG-UI 1.0, interrupts).

    One question by keywords, or several as the protocol's own ``events.Interrupt``. Without an id
    a question gets the run's next one, ``<runId>-int-N``. Raises ProtocolError for none at all and
    for values that the protocol refuses, SerializationError for those without a JSON form.
    """

    __slots__ = ("interrupts",)

    def __init__(self, *questions: ag.Interrupt, reason: str | None = None, **members: Any) -> None:
        asked = list(questions)
        if reason is not None:
            members.setdefault("id", None)
            members["id"] = members["id"] or current_run().new_id("int")
            try:
                asked.append(ag.Interrupt(reason=reason, **members))
            except ValidationError as error:
                raise ProtocolError(f"not an interrupt: {error.error_count()} members do not fit") from error
        if not asked:
            raise ProtocolError("an interrupt asks at least one question")
        if len({question.id for question in asked}) < len(asked):
            raise ProtocolError("two questions of an interrupt have the same id")
        outcome = ag.RunFinishedInterruptOutcome(type="interrupt", interrupts=asked)
        # Written as it will travel, which refuses what cannot; a model's own JSON makes null of NaN.
        told = json.loads(ag.dump(ag.RunFinishedEvent(thread_id="-", run_id="-", outcome=outcome)))
        self.interrupts: list[dict[str, Any]] = told["outcome"]["interrupts"]

    def outcome(self) -> Outcome:
        """The outcome of a run that returns this."""
        return Outcome.interrupted(self.interrupts)


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """An agent under its name, in the one form that the worker runs.

    ``run`` takes the context; it is a coroutine function if ``is_async``. ``cancel_at_once`` says
    that a stop cancels its task without waiting for the grace. ``policy`` is one of ``POLICIES``.
    ``transformers`` are called once per run, each to make its transformer. ``state_model`` is what the
    request's state must fit. ``echo_input`` puts the whole request into RUN_STARTED.
    ``retry_on_worker_lost`` is how often a run is executed again, from its start, when its worker is lost:
    for agents whose effects may happen twice.
    """

    name: str
    run: Callable[[RunContext], Any]
    is_async: bool = True
    cancel_at_once: bool = False
    description: str | None = None
    capabilities: dict[str, Any] | None = field(default=None, hash=False)
    policy: str = "enqueue"
    transformers: tuple[Callable[[], Transformer], ...] = ()
    state_model: type[BaseModel] | None = None
    echo_input: bool = False
    retry_on_worker_lost: int = 0

    def facts(self) -> dict[str, Any]:
        """What the catalogue tells about the agent; absent facts are left out."""
        shown: dict[str, Any] = {"policy": self.policy}
        if self.description:
            shown["description"] = self.description
        if self.capabilities:
            shown["capabilities"] = self.capabilities
        if self.echo_input:
            shown["echo_input"] = True
        if self.retry_on_worker_lost:
            shown["retry_on_worker_lost"] = self.retry_on_worker_lost
        return shown
