"""Agents for real worker processes."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from worker.context import RunContext


def pid(ctx: RunContext) -> None:
    ctx.say(str(os.getpid()))


async def waits(ctx: RunContext) -> None:
    ctx.say(str(os.getpid()))
    await ctx.until_cancelled(asyncio.Event().wait())


def sync_waits(ctx: RunContext) -> None:
    ctx.say(str(os.getpid()))
    ctx.wait_cancelled(60)


def deaf(ctx: RunContext) -> None:
    ctx.say(str(os.getpid()))
    time.sleep(60)


async def blocks_the_loop(ctx: RunContext) -> None:
    ctx.say(str(os.getpid()))
    await asyncio.sleep(0.2)
    time.sleep(60)  # noqa: ASYNC251 - the very mistake


def short(ctx: RunContext) -> None:
    ctx.say(str(os.getpid()))
    time.sleep(float(ctx.forwarded_props.get("seconds", 1)))
    ctx.say("done")


def out_of_memory(ctx: RunContext) -> None:
    raise MemoryError


def leaves(ctx: RunContext) -> None:
    raise SystemExit(3)


def imports_late(ctx: RunContext) -> None:
    # The working folder is on the path only while Celery loads the app.
    import shared.local.program
    import tests.worker.late

    ctx.say(tests.worker.late.WORD + shared.local.program.__name__)


AGENTS: dict[str, Any] = {
    "pid": pid,
    "waits": waits,
    "sync_waits": sync_waits,
    "deaf": deaf,
    "blocks_the_loop": blocks_the_loop,
    "short": short,
    "out_of_memory": out_of_memory,
    "leaves": leaves,
    "imports_late": imports_late,
}
