"""Agents of the journeys, found through PYTHONPATH as a user's would be; forwardedProps say what they do.

Each appends JSON lines [run id, attempt, pid, word] to the effects file: START and END of its body, EFFECT
for what it did. That file is the only honest counter of executions.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
from ag_ui.core import (
    BaseEvent,
    Event,
    EventType,
    RunAgentInput,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)
from pydantic import TypeAdapter

from worker.agents import AgentError, RunContext, current_run

EFFECTS = os.environ.get("EFFECTS_FILE", os.devnull)


def note(run_id: str, word: str, attempt: int = 1) -> None:
    line = json.dumps([run_id, attempt, os.getpid(), word]) + "\n"
    handle = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def prop(ctx: RunContext, name: str, default: Any) -> Any:
    return (ctx.forwarded_props or {}).get(name, default)


# --- what waits, and how it hears of a cancel ------------------------------------------------------------


async def waits(ctx: RunContext) -> None:
    """Asks: waits with a message open until the time is over or somebody cancels."""
    note(ctx.run_id, "START")
    with ctx.message() as message:
        message.delta("waiting")
        await ctx.until_cancelled(asyncio.sleep(prop(ctx, "seconds", 30)))
        ctx.check_cancelled()
        message.delta(" is over")
    note(ctx.run_id, "END")


async def never_asks(ctx: RunContext) -> None:
    """Emits now and then and never asks: stopped by its next emit."""
    note(ctx.run_id, "START")
    with ctx.message() as message:
        for number in range(600):
            message.delta(f"{number} ")
            await asyncio.sleep(0.05)
    note(ctx.run_id, "END")


async def says_nothing(ctx: RunContext) -> None:
    """Neither asks nor emits: its task is cancelled after the grace."""
    note(ctx.run_id, "START")
    ctx.say("going to be quiet")
    await asyncio.sleep(30)
    note(ctx.run_id, "END")


def sync_on_cancel(ctx: RunContext) -> None:
    """Blocks on something that it can be woken from."""
    note(ctx.run_id, "START")
    woken = threading.Event()
    ctx.on_cancel(woken.set)
    with ctx.message() as message:
        message.delta("blocking")
        woken.wait(30)
        message.delta("never sent after a cancel")
    note(ctx.run_id, "END")


def sync_emits(ctx: RunContext) -> None:
    """Emits in a loop and asks nothing."""
    note(ctx.run_id, "START")
    with ctx.tool_call("search") as call:
        for number in range(1500):
            call.args(f"{number},")
            time.sleep(0.02)
        call.result({})
    note(ctx.run_id, "END")


async def async_generator(run_input: RunAgentInput) -> AsyncIterator[BaseEvent]:
    """The form of other AG-UI integrations; waits in mid-message."""
    run_id, seconds = run_input.run_id, (run_input.forwarded_props or {}).get("seconds", 30)
    note(run_id, "START")
    yield RunStartedEvent(type=EventType.RUN_STARTED, thread_id=run_input.thread_id, run_id=run_id)
    yield TextMessageStartEvent(type=EventType.TEXT_MESSAGE_START, message_id=f"{run_id}-m")
    yield TextMessageContentEvent(
        type=EventType.TEXT_MESSAGE_CONTENT, message_id=f"{run_id}-m", delta="generated"
    )
    try:
        await asyncio.sleep(seconds)
    finally:
        note(run_id, "EFFECT")
    yield TextMessageEndEvent(type=EventType.TEXT_MESSAGE_END, message_id=f"{run_id}-m")
    note(run_id, "END")
    yield RunFinishedEvent(type=EventType.RUN_FINISHED, thread_id=run_input.thread_id, run_id=run_id)


def sync_generator(run_input: RunAgentInput) -> Iterator[BaseEvent]:
    """The same, synchronous; yields in a loop, and can be woken."""
    run_id, pauses = run_input.run_id, (run_input.forwarded_props or {}).get("pauses", 600)
    note(run_id, "START")
    woken = threading.Event()
    current_run().on_cancel(woken.set)
    yield TextMessageStartEvent(type=EventType.TEXT_MESSAGE_START, message_id=f"{run_id}-m")
    try:
        for number in range(pauses):
            yield TextMessageContentEvent(
                type=EventType.TEXT_MESSAGE_CONTENT, message_id=f"{run_id}-m", delta=f"{number} "
            )
            woken.wait(0.05)
    finally:
        note(run_id, "EFFECT")
    yield TextMessageEndEvent(type=EventType.TEXT_MESSAGE_END, message_id=f"{run_id}-m")
    note(run_id, "END")


# --- what counts -----------------------------------------------------------------------------------------


async def counts(ctx: RunContext) -> None:
    """``deltas`` numbered deltas in one message, ``pause`` seconds apart."""
    note(ctx.run_id, "START")
    with ctx.message() as message:
        for number in range(prop(ctx, "deltas", 20)):
            message.delta(f"{number} ")
            await asyncio.sleep(prop(ctx, "pause", 0))
    note(ctx.run_id, "END")


def sync_counts(ctx: RunContext) -> None:
    """The same, synchronous."""
    note(ctx.run_id, "START")
    with ctx.message() as message:
        for number in range(prop(ctx, "deltas", 20)):
            message.delta(f"{number} ")
            time.sleep(prop(ctx, "pause", 0))
    note(ctx.run_id, "END")


# --- what asks a provider --------------------------------------------------------------------------------


async def asks_provider(ctx: RunContext) -> None:
    """Streams from ``url`` with a timeout of ``timeout`` seconds, and says what came."""
    note(ctx.run_id, "START")
    async with httpx.AsyncClient(timeout=prop(ctx, "timeout", 0.5)) as client:
        with ctx.message() as message, ctx.provider_call():
            message.delta("asking ")
            async with client.stream("POST", prop(ctx, "url", ""), json={}) as answer:
                async for text in answer.aiter_text():
                    message.delta(text)
    note(ctx.run_id, "END")


def sync_asks_provider(ctx: RunContext) -> None:
    """The same, synchronous, without telling that it is a provider's call."""
    note(ctx.run_id, "START")
    with httpx.Client(timeout=prop(ctx, "timeout", 0.5)) as client, ctx.message() as message:
        message.delta("asking ")
        with client.stream("POST", prop(ctx, "url", ""), json={}) as answer:
            for text in answer.iter_text():
                message.delta(text)
    note(ctx.run_id, "END")


async def own_timeout(ctx: RunContext) -> None:
    """Times out in its own code, not at a provider's."""
    note(ctx.run_id, "START")
    async with asyncio.timeout(0.05):
        await asyncio.sleep(5)


# --- what escapes ----------------------------------------------------------------------------------------


class Mute(Exception):
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def _recurse() -> None:
    _recurse()


def _raise(error: BaseException) -> None:
    raise error


ESCAPES: dict[str, Callable[[], object]] = {
    "SystemExit": lambda: _raise(SystemExit(3)),
    "KeyboardInterrupt": lambda: _raise(KeyboardInterrupt()),
    "MemoryError": lambda: _raise(MemoryError()),
    "GeneratorExit": lambda: _raise(GeneratorExit()),
    "RecursionError": _recurse,
    "CancelledError": lambda: _raise(asyncio.CancelledError()),
    "Mute": lambda: _raise(Mute()),
    "Surrogate": lambda: _raise(ValueError("half a pair \ud800")),
    "StopIteration": lambda: _raise(StopIteration()),
    "AgentError": lambda: _raise(AgentError("no such city")),
    "Exit": lambda: os._exit(7),
}


async def raises(ctx: RunContext) -> None:
    note(ctx.run_id, "START")
    with ctx.message() as message:
        message.delta("about to fail")
        await asyncio.sleep(0)
        ESCAPES[prop(ctx, "kind", "AgentError")]()


def sync_raises(ctx: RunContext) -> None:
    note(ctx.run_id, "START")
    with ctx.message() as message:
        message.delta("about to fail")
        ESCAPES[prop(ctx, "kind", "AgentError")]()


# --- what plays a given run ------------------------------------------------------------------------------

_EVENT: TypeAdapter[Any] = TypeAdapter(Event)


async def plays(ctx: RunContext) -> None:
    """Emits ``events`` as they are, waits for the file ``gate`` after ``hold``, ends as ``ending`` says.

    Without a gate it pauses ``pause`` seconds after every ``every`` events, if that is given.
    """
    note(ctx.run_id, "START")
    hold, gate, every = prop(ctx, "hold", -1), prop(ctx, "gate", os.devnull), prop(ctx, "every", 0)
    for number, event in enumerate([*prop(ctx, "events", []), None]):
        if number == hold:
            async with asyncio.timeout(30):
                while not os.path.exists(gate):  # noqa: ASYNC110, ASYNC240, PTH110 - another process makes it
                    await asyncio.sleep(0.01)
        if event is not None:
            ctx.emit(_EVENT.validate_python(event))
        if every and number % every == 0:
            await asyncio.sleep(prop(ctx, "pause", 0))
    note(ctx.run_id, "END")
    if prop(ctx, "ending", "success") == "error":
        raise AgentError("as it was asked to")


AGENTS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        waits,
        never_asks,
        says_nothing,
        sync_on_cancel,
        sync_emits,
        async_generator,
        sync_generator,
        counts,
        sync_counts,
        asks_provider,
        sync_asks_provider,
        own_timeout,
        raises,
        sync_raises,
        plays,
    )
}
