"""The ``chat`` agent: one turn of a model behind any endpoint that speaks OpenAI's chat completions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

import httpx2
import orjson

from shared.logs import get_logger
from shared.protocol.events import AssistantMessage, CustomEvent, TokenUsage
from shared.settings import Settings
from worker.agents.chat_messages import request_body
from worker.agents.chat_wire import (
    LONGEST_PAUSE_SECONDS,
    CallPart,
    Chunk,
    ProviderStatusError,
    data_of,
    parse_chunk,
    pause_before_repeat,
    refuse_errors,
    sanitised,
)
from worker.blocks import Message, Reasoning, ToolCall
from worker.context import RunContext
from worker.failures import AgentError, ProviderStreamBroken

log = get_logger(__name__)

DEFAULT_BASE_URL = "https://api.openai.com/v1"
"""Where a model is asked if only model and key are set."""

_TAIL_SECONDS = 0.05
_DONE = b"[DONE]"


def make_chat(settings: Settings) -> Chat:
    """The agent for these settings. Raises ValueError if they name no model or no usable address."""
    return Chat(settings)


class Chat:
    """Asks a model once per run and streams its answer; tool calls are left to the client.

    One HTTP client per event loop, made at its first use there, so nothing is opened before a fork.
    Every read may take ``chat_timeout_seconds``; comments of a provider that is still busy count as
    life, so what bounds a whole answer is the run's deadline.
    """

    description = "Asks a language model and streams its answer."

    def __init__(self, settings: Settings) -> None:
        if not settings.chat_model:
            raise ValueError("chat needs a model: set OUTLAST_CHAT_MODEL")
        self._model = settings.chat_model
        self._key = settings.chat_api_key.get_secret_value() if settings.chat_api_key else ""
        self._url = _completions_url(settings.chat_base_url or DEFAULT_BASE_URL)
        self._seconds = settings.chat_timeout_seconds
        self._repeats = settings.chat_max_retries
        # Loading the trusted certificates takes a tenth of a second, which no event loop should wait for.
        self._tls = httpx2.create_ssl_context()
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = WeakKeyDictionary()

    @property
    def capabilities(self) -> dict[str, Any]:
        """AG-UI capabilities; what the model itself can do is not known here and stays undeclared."""
        return {
            "transport": {"streaming": True},
            "tools": {"supported": True, "parallelCalls": True, "clientProvided": True},
        }

    async def __call__(self, ctx: RunContext) -> None:
        """Executes one run.

        Raises AgentError for an input that cannot be sent and for an answer that was filtered or cut off
        inside a tool call, ProviderStatusError, ProviderStreamBroken, and httpx2's transport errors.
        """
        body = orjson.dumps(request_body(ctx.input, self._model))
        await ctx.until_cancelled(self._answer(ctx, body))
        ctx.check_cancelled()

    async def aclose(self) -> None:
        """Closes this loop's connections; for whoever ends a loop while the process lives on."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def _answer(self, ctx: RunContext, body: bytes) -> None:
        """Asks until an answer begins; from its first byte on nothing is repeated."""
        for attempt in itertools.count(1):
            ctx.check_cancelled()
            with Reply(ctx) as reply:
                try:
                    await self._ask(ctx, body, reply)
                    return
                except (httpx2.TransportError, ProviderStatusError, ProviderStreamBroken) as error:
                    last = reply.begun or attempt > self._repeats
                    pause = None if last else pause_before_repeat(error, attempt)
                    if pause is None or pause > max(self._seconds, LONGEST_PAUSE_SECONDS):
                        raise
                    log.warning("chat.repeating", attempt=attempt, pause=pause, error=type(error).__name__)
            await asyncio.sleep(pause)

    async def _ask(self, ctx: RunContext, body: bytes, reply: Reply) -> None:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        async with self._client().stream("POST", self._url, content=body, headers=headers) as response:
            await refuse_errors(response, self._key)
            try:
                await self._stream(ctx, response, reply)
            except (httpx2.TransportError, ProviderStreamBroken):
                if not reply.finished:
                    raise
                # The answer is whole; what is missing is its tail, usage and the closing mark.
                log.warning("chat.tail_lost")
        reply.conclude()

    async def _stream(self, ctx: RunContext, response: httpx2.Response, reply: Reply) -> None:
        pieces = response.aiter_bytes()
        async with aclosing(data_of(pieces)) as groups:
            async for group in groups:
                reply.begun = True
                for data in group:
                    if data.strip() == _DONE:
                        reply.finish()
                        await _read_out(pieces)
                        return
                    chunk = parse_chunk(data, self._model)
                    if chunk.error is not None:
                        raise ProviderStatusError(sanitised(chunk.error, self._key), response)
                    reply.take(chunk)
                await ctx.drained()
        if not reply.finished:
            raise ProviderStreamBroken("the provider's answer ended before it was complete")

    def _client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            seconds = self._seconds
            client = self._clients[loop] = httpx2.AsyncClient(
                verify=self._tls,
                timeout=httpx2.Timeout(connect=seconds, read=seconds, write=seconds, pool=seconds),
                # A worker's concurrency is the bound; a second one here would only turn into timeouts.
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
                follow_redirects=False,
            )
        return client


class Reply:
    """One answer on its way into a run; leaving the scope closes what is open and notes what it cost.

    One block is open at a time: fragments of a call behind another one wait until that is whole.
    """

    def __init__(self, ctx: RunContext) -> None:
        self.begun = False
        self.finished = False
        self._reason: str | None = None
        self._ctx = ctx
        self._block: Message | Reasoning | None = None
        self._parent: str | None = None
        self._calls: list[_Call] = []
        self._front = 0
        self._late_text: list[str] = []
        self._usage: TokenUsage | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._usage is not None:
            self._ctx.usage.append(self._usage)
        for handle in (self._block, *(call.handle for call in self._calls)):
            if handle is not None:
                handle.__exit__(kind, error, trace)

    def take(self, chunk: Chunk) -> None:
        """Passes on what a chunk says. Raises ProviderStreamBroken for a fragment of a call that is over."""
        if chunk.usage is not None:
            # Some endpoints count up in every chunk, so the last one is the whole.
            self._usage = chunk.usage
        if chunk.reasoning:
            self._open_reasoning().delta(chunk.reasoning)
        if chunk.text and self._calls:
            self._late_text.append(chunk.text)
        elif chunk.text:
            self._open_message().delta(chunk.text)
        for part in chunk.calls:
            self._take_part(part)
        if chunk.finish_reason:
            self._reason = self._reason or chunk.finish_reason
            self.finish()

    def finish(self) -> None:
        """The answer is over: closes everything, the calls in their order; asking again does nothing."""
        if self.finished:
            return
        self._close_block()
        for call in self._calls[self._front :]:
            self._send(call)
            if call.handle is None:
                raise ProviderStreamBroken("the provider sent a tool call without a name")
            if self._reason != "length" and not call.text.strip():
                call.handle.args("{}")
            call.handle.end()
        if self._late_text:
            self._ctx.say("".join(self._late_text))
        self.finished = True

    def conclude(self) -> None:
        """Judges how a finished answer ended.

        Raises AgentError if the provider withheld it, or cut it off inside a tool call, whose arguments
        nobody may act upon. Text that reached the model's limit stands; CUSTOM ``finish_reason`` says so.
        """
        if self._reason == "content_filter":
            raise AgentError("the provider's content filter stopped the answer")
        if self._reason == "length":
            if not all(call.is_whole() for call in self._calls):
                raise AgentError("the answer reached its length limit inside a tool call")
            self._ctx.emit(CustomEvent(name="finish_reason", value="length"))

    def _open_reasoning(self) -> Reasoning:
        if not isinstance(self._block, Reasoning):
            self._close_block()
            self._block = self._ctx.reasoning().open()
        return self._block

    def _open_message(self) -> Message:
        if not isinstance(self._block, Message):
            self._close_block()
            self._block = self._ctx.message().open()
            self._parent = self._block.id
        return self._block

    def _close_block(self) -> None:
        if self._block is not None:
            self._block.end()
            self._block = None

    def _take_part(self, part: CallPart) -> None:
        self._close_block()
        call = self._call_of(part)
        call.name = call.name or part.name
        if call.ended:
            if part.arguments.strip():
                raise ProviderStreamBroken("the provider went on with a tool call that was whole")
            return
        call.fragments.append(part.arguments)
        while True:
            front = self._calls[self._front]
            self._send(front)
            if front is self._calls[-1] or front.handle is None or not front.is_whole():
                return
            front.handle.end()
            front.ended = True
            self._front += 1

    def _call_of(self, part: CallPart) -> _Call:
        """The call of a fragment: by index, and by id where an endpoint gives all calls one index or none."""
        for call in reversed(self._calls):
            same_id = part.call_id is None or call.provider_id in {None, part.call_id}
            if same_id and part.index in {None, call.index}:
                return call
        call = _Call(part.index, part.call_id)
        self._calls.append(call)
        return call

    def _send(self, call: _Call) -> None:
        if call.handle is None:
            if not call.name:
                return
            # One parent for all, so that clients show parallel calls in one message.
            self._parent = self._parent or self._ctx.new_id("msg")
            call.handle = self._ctx.tool_call(
                call.name, call_id=self._free_id(call), parent_message_id=self._parent
            ).open()
        for fragment in call.fragments[call.sent :]:
            call.handle.args(fragment)
        call.sent = len(call.fragments)

    def _free_id(self, call: _Call) -> str | None:
        """The provider's own id, which it likes best to see again, unless the conversation has it already."""
        taken = {
            known.id
            for message in self._ctx.messages
            if isinstance(message, AssistantMessage)
            for known in message.tool_calls or ()
        }
        taken |= {other.handle.id for other in self._calls if other.handle}
        return None if call.provider_id in taken else call.provider_id


class _Call:
    """One tool call as far as it has arrived."""

    def __init__(self, index: int | None, provider_id: str | None) -> None:
        self.index = index
        self.provider_id = provider_id
        self.name: str | None = None
        self.fragments: list[str] = []
        self.sent = 0
        self.handle: ToolCall | None = None
        self.ended = False

    @property
    def text(self) -> str:
        return "".join(self.fragments)

    def is_whole(self) -> bool:
        """Whether the arguments are a whole JSON value; parsed only where an object could end."""
        last = next((piece for piece in reversed(self.fragments) if piece.strip()), "")
        if not last.rstrip().endswith("}"):
            return False
        try:
            orjson.loads(self.text)
        except orjson.JSONDecodeError:
            return False
        return True


def _completions_url(base_url: str) -> httpx2.URL:
    """The address of the method; a query of the base, such as an API version, stays."""
    try:
        base = httpx2.URL(base_url)
    except httpx2.InvalidURL as error:
        raise ValueError(f"OUTLAST_CHAT_BASE_URL is no address: {error}") from error
    if base.scheme not in {"http", "https"} or not base.host:
        raise ValueError("OUTLAST_CHAT_BASE_URL must start with http:// or https://")
    return base.copy_with(path=base.path.rstrip("/") + "/chat/completions")


async def _read_out(pieces: AsyncIterator[bytes]) -> None:
    """Reads the end of a body behind its closing mark, so that the connection can serve the next run."""
    with suppress(TimeoutError, httpx2.TransportError):
        async with asyncio.timeout(_TAIL_SECONDS):
            async for _ in pieces:
                pass
