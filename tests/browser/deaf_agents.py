"""Agents that cannot be talked to, found through PYTHONPATH as a user's would be."""

from __future__ import annotations

import time
from typing import Any

from worker.agents import RunContext


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


AGENTS: dict[str, Any] = {"deaf": deaf, "answers": answers}
