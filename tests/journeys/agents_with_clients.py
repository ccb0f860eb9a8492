"""Agents that keep their model client between runs, in the ways people do it; each says whom it asked.

Importing this module connects, as a warm-up request or a login at import does.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
from ag_ui.core import BaseEvent, RunAgentInput, TextMessageChunkEvent

from worker.agents import AgentError, RunContext

URL = os.environ.get("MODEL_URL", "")
QUESTIONS = 4

# Other clients than httpx keep an idle connection for as long as its server does.
WARM = httpx.Client(timeout=10, limits=httpx.Limits(keepalive_expiry=60))
if URL:
    WARM.get(URL)
COLD = httpx.Client(timeout=10)
COLD_ASYNC = httpx.AsyncClient(timeout=10)


def ask(ctx: RunContext, client: httpx.Client) -> None:
    for number in range(QUESTIONS):
        token = f"{ctx.run_id} {number}"
        check(token, client.post(URL, content=token).text)
    ctx.say(str(os.getpid()))


async def ask_async(ctx: RunContext, client: httpx.AsyncClient) -> None:
    for number in range(QUESTIONS):
        token = f"{ctx.run_id} {number}"
        check(token, (await client.post(URL, content=token)).text)
    ctx.say(str(os.getpid()))


def check(asked: str, told: str) -> None:
    if told != asked:
        raise AgentError(f"asked for {asked}, was told {told}")


def connected_at_import(ctx: RunContext) -> None:
    ask(ctx, WARM)


def made_at_import(ctx: RunContext) -> None:
    ask(ctx, COLD)


async def async_made_at_import(ctx: RunContext) -> None:
    await ask_async(ctx, COLD_ASYNC)


def a_resource(ctx: RunContext) -> None:
    ask(ctx, ctx.resources.get("model", lambda: httpx.Client(timeout=10)))


async def a_resource_of_the_loop(ctx: RunContext) -> None:
    await ask_async(ctx, await ctx.resources.on_loop("model", lambda: httpx.AsyncClient(timeout=10)))


def _loop() -> str:
    """The process and a mark that its running loop keeps from the first run on."""
    loop: Any = asyncio.get_running_loop()
    mark = getattr(loop, "mark", None)
    if mark is None:
        mark = loop.mark = secrets.token_hex(8)
    return f"{os.getpid()} {mark}"


async def loop_of_a_coroutine(ctx: RunContext) -> None:
    await asyncio.sleep(0.05)
    ctx.say(_loop())


async def loop_of_a_generator(run_input: RunAgentInput) -> AsyncIterator[BaseEvent]:
    await asyncio.sleep(0.05)
    yield TextMessageChunkEvent(message_id=f"{run_input.run_id}-m", role="assistant", delta=_loop())


CLIENTS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        connected_at_import,
        made_at_import,
        async_made_at_import,
        a_resource,
        a_resource_of_the_loop,
    )
}
LOOPS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (loop_of_a_coroutine, loop_of_a_generator)
}
AGENTS = CLIENTS | LOOPS
