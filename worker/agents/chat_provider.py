"""The endpoint that a chat agent asks: one request per answer, repeats before the first byte, one client."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

import httpx2
import orjson

from shared.logs import get_logger
from shared.protocol import events as ag
from worker.agents.chat_reply import Reply
from worker.agents.chat_wire import (
    LONGEST_PAUSE_SECONDS,
    ProviderStatusError,
    data_of,
    parse_chunk,
    pause_before_repeat,
    refuse_errors,
    sanitised,
)
from worker.agents.connection import new_client, read_out, trusted
from worker.context import RunContext
from worker.failures import ProviderStreamBroken

log = get_logger(__name__)

_DONE = b"[DONE]"
_CLIENT = "outlast.chat"


class Provider:
    """An endpoint that speaks OpenAI's chat completions.

    All of a process share one HTTP client, made at its first use, so nothing is opened before a fork.
    Every read may take ``seconds``; comments of a provider that is still busy count as life, so what
    bounds a whole answer is the run's deadline. Raises ValueError for an address that cannot be asked.
    """

    def __init__(self, *, base_url: str, key: str, model: str, seconds: float, repeats: int) -> None:
        self.model = model
        self._key = key
        self._url = _completions_url(base_url)
        self._seconds = seconds
        self._repeats = repeats
        trusted()

    async def answer(self, ctx: RunContext, body: Mapping[str, Any], messages: Sequence[ag.Message]) -> Reply:
        """Asks until an answer begins and streams it; from its first byte on nothing is repeated.

        Raises AgentError for an answer that was filtered or cut off inside a tool call, ProviderStatusError,
        ProviderStreamBroken, and httpx2's transport errors.
        """
        content = orjson.dumps(body)
        for attempt in itertools.count(1):
            ctx.check_cancelled()
            with Reply(ctx, messages) as reply:
                try:
                    with ctx.provider_call("chat"):
                        await self._ask(ctx, content, reply)
                    reply.conclude()
                    return reply
                except (httpx2.TransportError, ProviderStatusError, ProviderStreamBroken) as error:
                    last = reply.begun or attempt > self._repeats
                    pause = None if last else pause_before_repeat(error, attempt)
                    if pause is None or pause > max(self._seconds, LONGEST_PAUSE_SECONDS):
                        raise
                    log.warning("chat.repeated", attempt=attempt, pause=pause, error=type(error).__name__)
            await asyncio.sleep(pause)
        raise AssertionError("the attempts do not end by themselves")

    async def _ask(self, ctx: RunContext, content: bytes, reply: Reply) -> None:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        client = await ctx.resources.on_loop(_CLIENT, new_client)
        request = client.stream(
            "POST", self._url, content=content, headers=headers, timeout=httpx2.Timeout(self._seconds)
        )
        async with request as response:
            await refuse_errors(response, self._key)
            try:
                await self._stream(ctx, response, reply)
            except (httpx2.TransportError, ProviderStreamBroken):
                if not reply.finished:
                    raise
                # The answer is whole; what is missing is its tail, usage and the closing mark.
                log.warning("chat.tail_lost")

    async def _stream(self, ctx: RunContext, response: httpx2.Response, reply: Reply) -> None:
        pieces = response.aiter_bytes()
        async with aclosing(data_of(pieces)) as groups:
            async for group in groups:
                reply.begun = True
                for data in group:
                    if data.strip() == _DONE:
                        reply.finish()
                        await read_out(pieces)
                        return
                    chunk = parse_chunk(data, self.model)
                    if chunk.error is not None:
                        raise ProviderStatusError(sanitised(chunk.error, self._key), response)
                    reply.take(chunk)
                await ctx.drained()
        if not reply.finished:
            raise ProviderStreamBroken("the provider's answer ended before it was complete")


def _completions_url(base_url: str) -> httpx2.URL:
    """The address of the method; a query of the base, such as an API version, stays."""
    try:
        base = httpx2.URL(base_url)
    except httpx2.InvalidURL as error:
        raise ValueError(f"OUTLAST_CHAT_BASE_URL is no address: {error}") from error
    if base.scheme not in {"http", "https"} or not base.host:
        raise ValueError("OUTLAST_CHAT_BASE_URL must start with http:// or https://")
    return base.copy_with(path=base.path.rstrip("/") + "/chat/completions")
