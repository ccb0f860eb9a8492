"""The ``remote`` adapter: an AG-UI endpoint anywhere, in any language, as an agent of this worker.

How a cancel gets there: the worker cancels the run's task, which waits for the endpoint's next bytes; the
HTTP connection is closed at once, and an endpoint that watches its client stops. One that goes on without
a client, as Outlast itself does, is told by a request to ``cancel_url``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.parse import quote

import httpx2

from shared import tracing
from shared.logs import get_logger
from shared.protocol import events as ag
from shared.runs.outcome import StopCause
from worker.agents.connection import beginning_of, new_client, read_out, trusted
from worker.agents.event_source import EventSource
from worker.agents.threads import private_thread
from worker.agents.wire_events import known_event_of
from worker.context import RunContext, current_run
from worker.failures import ProviderStreamBroken
from worker.terminal import TERMINAL

log = get_logger(__name__)

Headers = Mapping[str, str] | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Headers of a request, or what gives them anew for each, such as a token that runs out."""

_TELL_SECONDS = 5.0
_REFUSAL_BYTES = 2000
_SECRET_LENGTH = 8


def remote(
    url: str,
    *,
    description: str | None = None,
    headers: Headers | None = None,
    timeout: float = 60.0,
    connect_timeout: float = 10.0,
    cancel_url: str | None = None,
    share_threads: bool = False,
) -> Remote:
    """An agent that runs at ``url``, which accepts a POST of a RunAgentInput and answers with SSE.

    Only ``headers`` identify this worker there; nothing of the caller's own request is passed on but the
    RunAgentInput. ``timeout`` bounds each wait for bytes, in seconds; comments count as life. On a stop
    ``cancel_url`` gets a POST; ``{threadId}`` and ``{runId}`` in it stand for the ids that were sent. The
    thread id that is sent is a digest that no two actors share, unless ``share_threads`` says that the
    endpoint keeps nothing per thread. ``description`` is for the catalogue. Raises ValueError for an address
    that is none.
    """
    return Remote(
        _address(url),
        description=description,
        headers=headers or {},
        timeout=httpx2.Timeout(timeout, connect=connect_timeout),
        cancel_url=cancel_url,
        share_threads=share_threads,
    )


class Remote:
    """One endpoint; an async generator of its events. See ``remote``.

    Its RUN_ERROR and its faults fail the run: ``transport_timeout`` if it is silent too long,
    ``transport_error`` if it cannot be reached or stops before a terminal event, ``provider_error`` if it
    refuses or answers with something else than SSE, PROTOCOL and PROTOCOL_VIOLATION for what it says.
    """

    def __init__(
        self,
        url: httpx2.URL,
        *,
        description: str | None,
        headers: Headers,
        timeout: httpx2.Timeout,
        cancel_url: str | None,
        share_threads: bool,
    ) -> None:
        self.description = description or "An agent behind another AG-UI endpoint."
        self._url = url
        self._headers = headers
        self._timeout = timeout
        self._cancel_url = cancel_url
        self._share_threads = share_threads
        self._telling: set[asyncio.Task[None]] = set()

    async def __call__(self, run_input: ag.RunAgentInput) -> AsyncGenerator[ag.Event, None]:
        """The endpoint's events, the terminal one last."""
        ctx = current_run()
        thread_id = ctx.thread_id if self._share_threads else private_thread(ctx)
        body = ag.dump_input(run_input.model_copy(update={"thread_id": thread_id}))
        headers = await self._own_headers()
        client = await ctx.resources.on_loop(self, self._open)
        ended = False
        try:
            with ctx.provider_call("remote"):
                async with aclosing(self._events(client, body, headers)) as events:
                    async for event in events:
                        ended = isinstance(event, TERMINAL)
                        yield event
        finally:
            if ctx.token.tripped and not ended:
                self._tell(client, ctx, thread_id, headers)

    async def _events(
        self, client: httpx2.AsyncClient, body: bytes, headers: dict[str, str]
    ) -> AsyncGenerator[ag.Event, None]:
        sent = {
            **headers,
            "content-type": "application/json",
            "accept": "text/event-stream",
            # Nothing between here and there is to hold events back for the sake of a better ratio.
            "accept-encoding": "identity",
            **tracing.outgoing_headers(),
        }
        async with client.stream("POST", self._url, content=body, headers=sent) as response:
            await _refuse_errors(response, headers)
            source, pieces = EventSource(), response.aiter_bytes()
            unknown: set[str] = set()
            async for piece in pieces:
                for data in source.feed(piece):
                    event = known_event_of(data, unknown)
                    if isinstance(event, TERMINAL):
                        await read_out(pieces)
                        yield event
                        return
                    if event is not None:
                        yield event
        raise ProviderStreamBroken("the endpoint's answer ended before a terminal event")

    async def _own_headers(self) -> dict[str, str]:
        given = self._headers() if callable(self._headers) else self._headers
        told = await given if inspect.isawaitable(given) else given
        return {name.lower(): value for name, value in told.items()}

    async def _open(self) -> httpx2.AsyncClient:
        await asyncio.to_thread(trusted)
        # One run must not speak with the cookies that another one was given.
        cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
        return new_client(timeout=self._timeout, cookies=cookies)

    def _tell(
        self, client: httpx2.AsyncClient, ctx: RunContext, thread_id: str, headers: dict[str, str]
    ) -> None:
        """Asks the endpoint to stop, beside the run's own ending, which does not wait for the answer."""
        if self._cancel_url is None or ctx.token.cause is StopCause.LOST:
            return
        url = self._cancel_url.replace("{threadId}", quote(thread_id, safe=""))
        url = url.replace("{runId}", quote(ctx.run_id, safe=""))
        task = asyncio.get_running_loop().create_task(_ask_to_stop(client, url, headers))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)


async def _ask_to_stop(client: httpx2.AsyncClient, url: str, headers: dict[str, str]) -> None:
    try:
        answer = await client.post(url, json={}, headers=headers, timeout=_TELL_SECONDS)
        log.info("remote.told_to_stop", status=answer.status_code)
    except (httpx2.HTTPError, RuntimeError) as error:  # a client that is closed meanwhile is the latter
        log.warning("remote.not_told_to_stop", error=type(error).__name__)


def _address(url: str) -> httpx2.URL:
    try:
        address = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise ValueError(f"remote() was given an address that is none: {error}") from error
    if address.scheme not in {"http", "https"} or not address.host:
        raise ValueError("remote() needs an address that starts with http:// or https://")
    return address


async def _refuse_errors(response: httpx2.Response, headers: Mapping[str, str]) -> None:
    """Raises HTTPStatusError for anything but a stream, with the beginning of the body for operators."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if response.status_code == 200 and kind == "text/event-stream" and coding == "identity":
        return
    text = ""
    if coding != "identity":
        # Nobody asked for it, and a few of its bytes may stand for more than there is memory.
        kind = f"{kind}, coded as {coding[:20]},"
    else:
        text = await beginning_of(response, _REFUSAL_BYTES)
    for secret in {part for value in headers.values() for part in (value, value.rpartition(" ")[2])}:
        if len(secret) >= _SECRET_LENGTH:
            text = text.replace(secret, "***")
    told = f"the endpoint answered {response.status_code} with {kind or 'no content type'}: {text}"
    raise httpx2.HTTPStatusError(told, request=response.request, response=response)
