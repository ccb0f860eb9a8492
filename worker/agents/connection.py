"""Connections to endpoints over HTTP: whom they trust, how many there may be, how one serves the next run."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx2

_TAIL_SECONDS = 0.05


@functools.cache
def trusted() -> ssl.SSLContext:
    """The trusted certificates; loading them takes a tenth of a second, too long for an event loop."""
    return httpx2.create_ssl_context()


def new_client(**options: Any) -> httpx2.AsyncClient:
    """A client that follows no redirect; a worker's concurrency is the bound of its connections."""
    # A second bound here would only turn into timeouts.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    return httpx2.AsyncClient(verify=trusted(), limits=limits, follow_redirects=False, **options)


async def beginning_of(response: httpx2.Response, most: int) -> str:
    """The first ``most`` bytes of a refusal's body as text, or what of it can be read."""
    body = b""
    # What can be read of the body is a help; the status is the fact.
    with suppress(httpx2.TransportError, httpx2.DecodingError):
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) >= most:
                break
    return body[:most].decode(errors="replace")


async def read_out(pieces: AsyncIterator[bytes]) -> None:
    """Reads a body behind the mark that ends its stream, so that the connection can serve the next run."""
    with suppress(TimeoutError, httpx2.TransportError):
        async with asyncio.timeout(_TAIL_SECONDS):
            async for _ in pieces:
                pass
