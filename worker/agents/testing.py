"""A run without a driver, a store or a queue: for testing agents. Its events compare exactly."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.protocol import events as ag
from shared.protocol.events import Event, RunAgentInput
from shared.protocol.verifier import Verifier
from shared.runs.lifecycle import Status
from shared.runs.outcome import CANCEL_CAUSES, Outcome
from worker.agents.base import AgentEntry, Interrupt
from worker.agents.entries import entry_for
from worker.cancellation import CancellationToken
from worker.context import RunContext, Transformer
from worker.failures import classify, is_transport_timeout

__all__ = ["RecordingSink", "record", "recorded_context", "run_input"]


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

    def put(self, event: Event) -> None:
        """Takes an event; raises VerificationError or SerializationError for one that a run refuses."""
        data = ag.dump(event)
        self.verifier.observe(event)
        self.events.append(ag.parse(data))

    async def drained(self) -> None:
        """Nothing is ever waiting here."""


def recorded_context(
    given: RunAgentInput | None = None,
    *,
    token: CancellationToken | None = None,
    transformers: Sequence[Transformer] = (),
) -> tuple[RunContext, list[Event]]:
    """A context and the list that its events go to, RUN_STARTED first."""
    given = given or run_input()
    verifier = Verifier(given.messages, thread_id=given.thread_id, run_id=given.run_id, debug=True)
    sink = RecordingSink(verifier)
    sink.put(ag.run_started(given.thread_id, given.run_id, given.parent_run_id))
    ctx = RunContext(given, sink=sink, token=token or CancellationToken(), transformers=transformers)
    return ctx, sink.events


def record(
    agent: Any,
    given: RunAgentInput | None = None,
    *,
    token: CancellationToken | None = None,
    transformers: Sequence[Transformer] = (),
) -> list[Event]:
    """Runs an agent in any of its forms and returns all events, RUN_STARTED to the terminal event.

    The ending is the one that a worker would record, without an incident id. Call it from sync
    code: async agents get an event loop of their own.
    """
    entry = agent if isinstance(agent, AgentEntry) else entry_for("agent", agent)
    ctx, events = recorded_context(given, token=token, transformers=transformers)
    sink = ctx.sink
    outcome = _outcome(entry, ctx)
    verifier = sink.verifier
    if verifier.terminated:
        return events
    for event in [
        *verifier.closing_events(subagent_code=str(outcome.code or "CANCELLED")),
        _terminal(ctx, outcome),
    ]:
        sink.put(event)
    return events


def _outcome(entry: AgentEntry, ctx: RunContext) -> Outcome:
    failure: BaseException | None = None
    returned: Any = None
    try:
        returned = entry.run(ctx)
        if inspect.isawaitable(returned):
            returned = asyncio.run(_awaited(returned))
    except BaseException as error:  # noqa: BLE001 - whatever escapes, the run gets its ending
        failure = error
    told = ctx.token.delivered and ctx.token.cause in CANCEL_CAUSES
    if told and not (failure and is_transport_timeout(failure)):
        return Outcome.cancelled()
    if failure is not None:
        return classify(failure)
    if isinstance(returned, Interrupt):
        return returned.outcome()
    calls = [] if ctx.sink.verifier.terminated else list(ctx.sink.verifier.unanswered_calls)
    return Outcome.succeeded({"type": "success", **({"pendingToolCallIds": calls} if calls else {})})


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def _terminal(ctx: RunContext, outcome: Outcome) -> Event:
    usage = ctx.usage or None
    if outcome.status is Status.FAILED:
        return ag.run_error(outcome.message or "", str(outcome.code), usage)
    return ag.run_finished(ctx.thread_id, ctx.run_id, outcome.wire, outcome.result, usage)
