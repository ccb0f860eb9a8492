"""A run without a driver, a store or a queue: for testing agents. Its events compare exactly."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from shared.protocol import events as ag
from shared.protocol.events import Event, RunAgentInput
from shared.protocol.verifier import VerificationError, Verifier
from shared.runs.identity import RunIdentity
from shared.runs.outcome import Outcome, StopCause
from worker.agents.base import AgentEntry, Interrupt
from worker.agents.entries import entry_for
from worker.cancellation import CancellationToken
from worker.context import RunContext, Transformer
from worker.ending import Ending
from worker.failures import classify
from worker.resources import Resources
from worker.stops import stopped
from worker.terminal import TERMINAL, told_by

__all__ = ["CancellationToken", "RecordingSink", "StopCause", "record", "recorded_context", "run_input"]

ACTOR = "tester"
"""Who asks for the runs that are made here."""


def run_input(
    text: str | None = None, *, thread_id: str = "thread", run_id: str = "run", **members: Any
) -> RunAgentInput:
    """An input whose last message is the user's ``text``; ``members`` by their wire names."""
    messages = list(members.pop("messages", []))
    if text is not None:
        messages.append({"id": f"user-{len(messages) + 1}", "role": "user", "content": text})
    document = {"threadId": thread_id, "runId": run_id, "messages": messages, **members}
    return RunAgentInput.model_validate(document)


@dataclass
class RecordingSink:
    """Keeps events in a list, each verified and serialised as in a real run."""

    verifier: Verifier
    events: list[Event] = field(default_factory=list)
    refused_terminal: VerificationError | None = None

    def await_room(self) -> None:
        """There is always room here."""

    def flush(self) -> None:
        """Nothing is ever waiting here."""

    def take(self, event: Event) -> None:
        """Takes an event; raises VerificationError or SerializationError for one that a run refuses."""
        data = ag.dump(event)
        try:
            self.verifier.observe(event)
        except VerificationError as error:
            if isinstance(event, TERMINAL) and not self.verifier.terminated:
                self.refused_terminal = error
            raise
        self.events.append(ag.parse(data))

    async def drained(self) -> None:
        """Nothing is ever waiting here."""


def recorded_context(
    given: RunAgentInput | None = None,
    *,
    token: CancellationToken | None = None,
    transformers: Sequence[Transformer] = (),
    state: type[BaseModel] | None = None,
) -> tuple[RunContext, list[Event]]:
    """A context and the list that its events go to, RUN_STARTED first.

    ``transformers`` are instances; ``state`` is the agent's state model.
    """
    return _recorded(given or run_input(), token, transformers, state)


def record(
    agent: Any,
    given: RunAgentInput | None = None,
    *,
    token: CancellationToken | None = None,
    transformers: Sequence[Transformer] = (),
) -> list[Event]:
    """Runs an agent in any of its forms and returns all events, RUN_STARTED to the terminal event.

    What was registered with the agent counts; ``transformers`` are instances behind its own. The ending is
    the one that a worker would record, without an incident id. Call it from sync code: async agents get an
    event loop of their own.
    """
    entry = agent if isinstance(agent, AgentEntry) else entry_for("agent", agent)
    given = given or run_input()
    resources = Resources()
    made = [*(make() for make in entry.transformers), *transformers]
    ctx, recorded = _recorded(given, token, made, entry.state_model, resources, echo=entry.echo_input)
    try:
        failure, returned = _ran(entry, ctx, resources)
    finally:
        resources.close()
    said = recorded.pop() if ctx.sink.verifier.terminated else None
    ending = Ending(
        RunIdentity(ACTOR, given.thread_id, given.run_id),
        told_by(said) if said is not None else _decided(ctx, failure, returned),
        verifier=ctx.sink.verifier,
        transformation=ctx.transformation,
        usage=ctx.usage,
        said=said,
        incidents=False,
    )
    ending.carry_out()
    recorded.extend(ag.parse(line) for line in ending.lines)
    return recorded


def _recorded(
    given: RunAgentInput,
    token: CancellationToken | None,
    transformers: Sequence[Transformer],
    state: type[BaseModel] | None,
    resources: Resources | None = None,
    *,
    echo: bool = False,
) -> tuple[RunContext, list[Event]]:
    verifier = Verifier(given.messages, thread_id=given.thread_id, run_id=given.run_id, debug=True)
    sink = RecordingSink(verifier)
    started = ag.run_started(given.thread_id, given.run_id, given.parent_run_id)
    sink.take(started.model_copy(update={"input": given}) if echo else started)
    ctx = RunContext(
        given,
        sink=sink,
        token=token or CancellationToken(),
        actor=ACTOR,
        transformers=transformers,
        state_model=state,
        resources=resources,
    )
    return ctx, sink.events


def _ran(entry: AgentEntry, ctx: RunContext, resources: Resources) -> tuple[BaseException | None, Any]:
    try:
        ctx.load_state()
        returned = entry.run(ctx)
        if inspect.isawaitable(returned):
            returned = asyncio.run(_awaited(returned, resources))
    except BaseException as error:  # noqa: BLE001 - whatever escapes, the run gets its ending
        return error, None
    return None, returned


async def _awaited(work: Awaitable[Any], resources: Resources) -> Any:
    try:
        return await work
    finally:
        # Here, because what is bound to this loop closes on it.
        await asyncio.to_thread(resources.close)


def _decided(ctx: RunContext, failure: BaseException | None, returned: Any) -> Outcome:
    stop = stopped(ctx.token, failure)
    if stop is not None:
        return stop
    sink = ctx.sink
    refused = sink.refused_terminal if isinstance(sink, RecordingSink) else None
    failure = failure or refused
    if failure is not None:
        return classify(failure)
    return returned.outcome() if isinstance(returned, Interrupt) else Outcome.succeeded()
