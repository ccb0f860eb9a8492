"""What the worker executes under measurement; forwardedProps say how many deltas and how far apart."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from worker.agents import RunContext


def prop(ctx: RunContext, name: str, default: Any) -> Any:
    return (ctx.forwarded_props or {}).get(name, default)


async def burst(ctx: RunContext) -> None:
    """Deltas as fast as they can be made."""
    with ctx.message() as message:
        for _ in range(prop(ctx, "deltas", 1)):
            message.delta("word ")


async def paced(ctx: RunContext) -> None:
    """Deltas at a fixed pause; each says when it was made."""
    pause = prop(ctx, "pause", 0.02)
    with ctx.message() as message:
        for _ in range(prop(ctx, "deltas", 1)):
            message.delta(str(time.monotonic_ns()))
            await asyncio.sleep(pause)


def paced_plain(ctx: RunContext) -> None:
    """The same as a plain function, which emits in its own thread."""
    pause = prop(ctx, "pause", 0.02)
    with ctx.message() as message:
        for _ in range(prop(ctx, "deltas", 1)):
            message.delta(str(time.monotonic_ns()))
            time.sleep(pause)


async def waits(ctx: RunContext) -> None:
    """Says a word and waits for its cancel."""
    with ctx.message() as message:
        message.delta("waiting")
        await ctx.until_cancelled(asyncio.sleep(120))
        ctx.check_cancelled()


AGENTS = {"burst": burst, "paced": paced, "paced_plain": paced_plain, "waits": waits}
