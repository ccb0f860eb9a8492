"""An agent that pays, and that asks a person before it does. Say "pay Ada 20"."""

import os
from pathlib import Path

from worker.agents import AgentError, Interrupt, RunContext

BOOK = Path(os.environ.get("PAYMENTS", "payments.txt"))

# What an answer must look like; the executor refuses others before the run.
ANSWER = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}


def pay(to: str, euros: int) -> dict:
    """The effect that needs approval: a line in the book of payments."""
    with BOOK.open("a") as book:
        book.write(f"{to} {euros}\n")
    return {"paid": euros, "to": to}


async def cashier(ctx: RunContext) -> Interrupt | None:
    """Pays after a person approved it; try "pay Ada 20"."""
    if ctx.resume:
        return settle(ctx)
    words = (ctx.last_user_text or "").split()
    if len(words) != 3 or words[0] != "pay" or not words[2].isdecimal():
        raise AgentError('say "pay", a name and a number')
    to, euros = words[1], int(words[2])
    with ctx.tool_call("pay") as call:
        call.args({"to": to, "euros": euros})
    # The id carries what is asked. The executor lets an answer in only if exactly this id was asked on this
    # thread and is open, once; the conversation that the client sends back proves nothing.
    return Interrupt(
        id=f"{call.id} {to} {euros}",
        reason="tool_call",
        message=f"Pay {euros} euros to {to}?",
        tool_call_id=call.id,
        response_schema=ANSWER,
    )


def settle(ctx: RunContext) -> None:
    """The next run: the answers are there, checked and redeemed."""
    for answer in ctx.resume:
        call_id, to, euros = answer.interrupt_id.rsplit(" ", 2)
        approved = answer.status == "resolved" and answer.payload["approved"]
        # Everything that may speak against it comes before the payment. A stop is the last of it.
        ctx.check_cancelled()
        result = pay(to, int(euros)) if approved else {"paid": 0, "why": "not approved"}
        # It belongs to the call of the run before, which the question named by its tool_call_id.
        ctx.tool_result(call_id, result)
        ctx.say("Paid." if approved else "Not paid.")


AGENTS = {"cashier": cashier}
