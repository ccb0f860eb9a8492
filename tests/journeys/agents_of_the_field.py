"""Agents of the field reports: values that JSON cannot hold, too much memory, a client kept between runs."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

import httpx
from ag_ui.core import CustomEvent, EventType, StateSnapshotEvent
from agents_under_test import note, prop

from worker.agents import AgentError, RunContext


def nested(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


def _circle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


VALUES: dict[str, Callable[[], Any]] = {
    "not a number": lambda: math.nan,
    "infinity": lambda: {"deep": [math.inf]},
    "5000 digits": lambda: 10**5000,
    "400 digits": lambda: 10**400,
    "half a character": lambda: "a\ud800b",
    "half a character as a name": lambda: {"\ud800": 1},
    "bytes": lambda: b"\xff",
    "an object": object,
    "in a circle": _circle,
    "150 levels": lambda: nested(150),
    "100000 levels": lambda: nested(100_000),
    "120 levels": lambda: nested(120),
    "20 digits": lambda: 10**20,
    "line breaks": lambda: "\u2028\u2029\x85\r\n\x00\x0b\x1cdata: x\nevent: y\n\n",
}


def shows(ctx: RunContext) -> None:
    """Shows a value in the way that ``where`` names."""
    value = VALUES[prop(ctx, "kind", "")]()
    match prop(ctx, "where", "state"):
        case "state":
            ctx.state["value"] = value
            ctx.publish_state()
        case "patch":
            ctx.state["value"] = 0
            ctx.publish_state()
            ctx.state["value"] = value
            ctx.publish_state()
        case "result":
            with ctx.tool_call("search") as call:
                call.result({"value": value})
        case "custom":
            ctx.emit(CustomEvent(name="value", value=value))
        case "delta":
            ctx.say(value)
        case "error":
            raise AgentError(value)


def assigns(ctx: RunContext) -> None:
    """Changes an event after it was made, where nothing checks it: a time in nanoseconds."""
    event = StateSnapshotEvent(type=EventType.STATE_SNAPSHOT, snapshot={})
    event.timestamp = time.time_ns()
    ctx.emit(event)


def large(ctx: RunContext) -> None:
    """One delta of so many bytes."""
    ctx.say("x" * int(prop(ctx, "size", 1)))


def hungry(ctx: RunContext) -> None:
    """Takes memory until there is none."""
    ctx.say("eating")
    kept = []
    while True:
        kept.append(bytearray(20_000_000))


_client: list[httpx.AsyncClient] = []


async def keeps_a_client(ctx: RunContext) -> None:
    """Asks with a client that was made by the first run of this process."""
    if not _client:
        _client.append(httpx.AsyncClient(timeout=5))
    answer = await _client[0].get(prop(ctx, "url", ""))
    ctx.say(str(answer.status_code))


async def swallows(ctx: RunContext) -> None:
    """Catches whatever a stop raises and goes on."""
    note(ctx.run_id, "START")
    while True:
        try:
            ctx.say("again")
            await asyncio.sleep(0.05)
        except BaseException:  # noqa: BLE001 - that is what it is for
            await asyncio.sleep(0.01)


AGENTS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (shows, assigns, large, hungry, keeps_a_client, swallows)
}
