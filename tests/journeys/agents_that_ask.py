"""Agents that pause for people's answers, as a user's module would hold them."""

from __future__ import annotations

import asyncio

from ag_ui.core import Interrupt as Question
from agents_under_test import note, prop

from worker.agents import AgentError, Interrupt, RunContext

ANSWER = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}},
    "required": ["approved"],
}


async def approval(ctx: RunContext) -> Interrupt | None:
    """A tool that is carried out only when somebody said yes; the call keeps its id over both runs."""
    if not ctx.resume:
        with ctx.tool_call("delete_file") as call:
            call.args({"path": "/tmp/report"})
        return Interrupt(
            id=f"approve:{call.id}",
            reason="tool_approval",
            message="Delete /tmp/report?",
            tool_call_id=call.id,
            response_schema=ANSWER,
        )
    for answer in ctx.resume:
        approved = answer.status == "resolved" and answer.payload["approved"]
        if approved:
            note(ctx.run_id, "EFFECT")
        ctx.tool_result(answer.interrupt_id.removeprefix("approve:"), "deleted" if approved else "declined")
    ctx.say("Done.")
    return None


async def asks_twice(ctx: RunContext) -> Interrupt | None:
    """Two questions at once, the second of which expires when it is told to."""
    if ctx.resume:
        ctx.say(" ".join(f"{answer.interrupt_id}={answer.payload}" for answer in ctx.resume))
        return None
    second = Question(id="second", reason="choice", expires_at=prop(ctx, "expires_at", None))
    return Interrupt(Question(id="first", reason="choice"), second)


async def slowly_asks(ctx: RunContext) -> Interrupt:
    """Pauses when its time is over, so that others can wait behind it."""
    await ctx.until_cancelled(asyncio.sleep(prop(ctx, "seconds", 0.5)))
    ctx.check_cancelled()
    return Interrupt(id=f"{ctx.run_id}-q", reason="choice")


async def fails_when_resumed(ctx: RunContext) -> Interrupt | None:
    """Cannot make use of an answer."""
    if ctx.resume:
        raise AgentError("the answer does not help")
    if ctx.last_user_text == "go on":
        ctx.say("Going on.")
        return None
    return Interrupt(id="q", reason="choice")


AGENTS = {
    "approval": approval,
    "asks_twice": asks_twice,
    "slowly_asks": slowly_asks,
    "fails_when_resumed": fails_when_resumed,
}
