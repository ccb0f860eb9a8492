"""Agents that cannot be talked to, found through PYTHONPATH as a user's would be."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from worker.agents import Interrupt, RunContext


def deaf(ctx: RunContext) -> None:
    """Says one thing, then blocks its thread and hears nothing."""
    ctx.say("I will not listen.")
    time.sleep((ctx.forwarded_props or {}).get("seconds", 60))


def answers(ctx: RunContext) -> None:
    """A run worth reading: reasoning, a tool call, a message of many deltas."""
    with ctx.step("look it up"), ctx.tool_call("search") as call:
        for part in ('{"city": ', '"Lisbon", ', '"days": 2}'):
            call.args(part)
        call.result({"degrees": 21, "sky": "clear"})
    with ctx.message() as message:
        for word in ("It will ", "be warm ", "in Lisbon, ", "with a ", "clear sky ", "on both ", "days."):
            message.delta(word)


def asks(ctx: RunContext) -> Interrupt:
    """Pauses for a person's word."""
    ctx.say("The letter is ready.")
    return Interrupt(reason="confirmation", message="Shall it be sent?")


async def calls(ctx: RunContext) -> None:
    """Calls its provider: one call fails, the last one hangs."""
    for name, seconds in (("gpt-mini", 0.05), ("claude", 0.2), ("gpt-mini", 0.1)):
        with suppress(ConnectionError), ctx.provider_call(name):
            await asyncio.sleep(seconds)
            if name == "claude":
                raise ConnectionError
    with ctx.provider_call("claude"):
        await ctx.until_cancelled(asyncio.sleep(120))


AGENTS: dict[str, Any] = {"deaf": deaf, "answers": answers, "asks": asks, "calls": calls}
