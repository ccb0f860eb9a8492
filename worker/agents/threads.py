"""Names of conversations for whoever remembers them behind an agent."""

from __future__ import annotations

from shared.runs.identity import short_digest
from worker.context import RunContext


def private_thread(ctx: RunContext) -> str:
    """The run's thread under a name that no other actor's thread can have.

    A client chooses its thread ids, and two actors may choose the same; what keeps a memory per thread
    would show one what the other said. The name is a digest of both, so it tells nobody who the actor is.
    Outside of a worker, where there is no actor, it is the thread id itself.
    """
    actor: str | None = getattr(ctx, "actor", None)
    return ctx.thread_id if actor is None else f"t-{short_digest(actor, ctx.thread_id)}"
