"""Agents for journeys in which workers die: what may be executed again, and what must not."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from agents_under_test import note, prop

from worker.agents import RunContext, agent


async def _lives_at_last(ctx: RunContext) -> None:
    """Waits to be killed in its first ``deadly`` attempts; the one after them waits for the file ``gate``."""
    note(ctx.run_id, "START", ctx.attempt)
    with ctx.reasoning() as thought:
        thought.delta(f"thinking for the {ctx.attempt}. time")
    ctx.activity("PLAN", {"attempt": ctx.attempt})
    ctx.state["attempt"] = ctx.attempt
    ctx.publish_state()
    with ctx.tool_call("search") as call:
        call.args({"attempt": ctx.attempt})
        call.result({"attempt": ctx.attempt})
    with ctx.message() as message:
        message.delta(f"attempt {ctx.attempt}")
        if ctx.attempt <= prop(ctx, "deadly", 1):
            await ctx.until_cancelled(asyncio.sleep(60))
        gate = prop(ctx, "gate", os.devnull)
        while not os.path.exists(gate):  # noqa: ASYNC110, ASYNC240, PTH110 - another process makes it
            await asyncio.sleep(0.01)
        message.delta(" lived")
    note(ctx.run_id, "END", ctx.attempt)


async def pays(ctx: RunContext) -> None:
    """Is in the middle of a call that may have had its effect."""
    note(ctx.run_id, "START", ctx.attempt)
    with ctx.tool_call("search") as call:
        call.args({})
        call.result({})
    with ctx.tool_call("pay") as call:
        call.args({"amount": 5})
        note(ctx.run_id, "EFFECT", ctx.attempt)
        await ctx.until_cancelled(asyncio.sleep(60))
        call.result({"paid": True})
    note(ctx.run_id, "END", ctx.attempt)


AGENTS: dict[str, Any] = {
    "lives_at_last": agent(_lives_at_last, retry_on_worker_lost=1),
    "pays": pays,
}
