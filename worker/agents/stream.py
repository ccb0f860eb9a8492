"""Generators of AG-UI events as agents: the form that existing integrations speak."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final

from shared.logs import get_logger
from shared.protocol import events as ag
from shared.protocol.events import RunAgentInput
from worker.agents.base import Interrupt
from worker.agents.wire_events import WireEvents
from worker.context import RunContext
from worker.failures import UpstreamError

log = get_logger(__name__)

_GOES_ON: Final = object()


def of_async_generator(
    produce: Callable[[RunAgentInput], AsyncIterator[Any]],
) -> Callable[[RunContext], Awaitable[Any]]:
    """An agent from an async generator function; the generator is closed on every way out.

    It yields events, mappings of their members, JSON texts, or SSE frames as an encoder makes them. Its
    own RUN_STARTED is dropped, its RUN_FINISHED ends the run with the outcome it names, under the run's
    own ids, its RUN_ERROR raises UpstreamError. A generator that ends without a terminal event has succeeded.
    """

    async def run(ctx: RunContext) -> Any:
        stream, wire = produce(ctx.input), WireEvents()
        try:
            async for item in stream:
                for event in wire.of(item):
                    ended = _take(ctx, event)
                    if ended is not _GOES_ON:
                        return ended
                await ctx.drained()
        finally:
            await _aclose(stream)
        wire.finish()
        return None

    return run


def of_generator(produce: Callable[[RunAgentInput], Iterator[Any]]) -> Callable[[RunContext], Any]:
    """An agent from a generator function; as ``of_async_generator``, in a thread."""

    def run(ctx: RunContext) -> Any:
        stream, wire = produce(ctx.input), WireEvents()
        try:
            for item in stream:
                for event in wire.of(item):
                    ended = _take(ctx, event)
                    if ended is not _GOES_ON:
                        return ended
        finally:
            _close(stream)
        wire.finish()
        return None

    return run


def _take(ctx: RunContext, event: ag.Event) -> Any:
    """Emits an event; what the agent is to return if the event ends the run, else ``_GOES_ON``."""
    if isinstance(event, ag.RunStartedEvent):
        ctx.check_cancelled()
        return _GOES_ON
    if isinstance(event, ag.RunErrorEvent):
        _keep_usage(ctx, event)
        raise UpstreamError(event.message, event.code)
    if isinstance(event, ag.RunFinishedEvent):
        return _finished(ctx, event)
    ctx.emit(event)
    return _GOES_ON


def _finished(ctx: RunContext, event: ag.RunFinishedEvent) -> Any:
    outcome = event.outcome
    if isinstance(outcome, ag.RunFinishedInterruptOutcome):
        _keep_usage(ctx, event)
        return Interrupt(*outcome.interrupts)
    if isinstance(outcome, ag.RunFinishedCancelledOutcome):
        ctx.check_cancelled()
        raise UpstreamError(
            "the generator reported a cancelled run, but nobody asked for a stop", "CANCELLED"
        )
    # Said again under the run's own ids: result and usage travel on it, and the order is checked.
    own: dict[str, Any] = {"thread_id": ctx.thread_id, "run_id": ctx.run_id}
    if outcome is None:
        calls = list(ctx.sink.verifier.unanswered_calls)
        own["outcome"] = ag.RunFinishedSuccessOutcome(type="success", pending_tool_call_ids=calls or None)
    ctx.emit(event.model_copy(update=own))
    return None


def _keep_usage(ctx: RunContext, event: ag.RunFinishedEvent | ag.RunErrorEvent) -> None:
    """What a terminal event said of usage, for the one that the worker says in its place."""
    if event.usage is not None:
        ctx.usage = list(event.usage)


async def _aclose(stream: Any) -> None:
    close = getattr(stream, "aclose", None)
    if close is None:
        return
    try:
        await close()
    except Exception:  # its run has its outcome already
        log.warning("agent.generator_not_closed", exc_info=True)


def _close(stream: Any) -> None:
    close = getattr(stream, "close", None)
    if close is None:
        return
    try:
        close()
    except Exception:  # its run has its outcome already
        log.warning("agent.generator_not_closed", exc_info=True)
