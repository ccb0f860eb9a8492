"""Names of conversations for whoever remembers them behind an agent."""

from __future__ import annotations

from shared.runs.identity import short_digest
from worker.context import RunContext


def private_thread(ctx: RunContext) -> str:
    """The run's thread under a name that no other actor's thread can have.

    A client chooses its thread ids, and two actors may choose the same; what keeps a memory per thread
    would show one what the other said. The name is a digest of both, so it tells nobody who the actor is.
    A context without an actor keeps the thread id itself.
    """
    return ctx.thread_id if ctx.actor is None else f"t-{short_digest(ctx.actor, ctx.thread_id)}"
