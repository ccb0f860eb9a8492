"""A client that has no connection to spare was not answered in time: where a pool is bounded, waiting is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shared.runs.outcome import FailureCode
from tests.stalling_provider import Fault, StallingProvider
from tests.worker.providers.http_clients import library
from tests.worker.providers.rows import LONG, SHORT
from tests.worker.providers.sdk_clients import (
    anthropic_call,
    anthropic_options,
    genai_client,
    messages,
    openai_options,
)
from worker.failures import code_of

Hold = Callable[[str], Any]


def one_connection(package: str) -> Any:
    """Limits of a pool that waits for its only connection, which answers slowly once it is had."""
    module = library(package)
    timeout = module.Timeout(LONG, pool=SHORT)
    return {"timeout": timeout, "limits": module.Limits(max_connections=1), "trust_env": False}


@contextmanager
def httpx_pool(package: str) -> Iterator[Hold]:
    with library(package).Client(**one_connection(package)) as client:
        yield lambda url: client.send(client.build_request("GET", url), stream=True)


@contextmanager
def openai_pool() -> Iterator[Hold]:
    limits = one_connection("httpx2")
    transport = library("httpx2").Client(**limits)
    with transport:

        def ask(url: str) -> Any:
            options = {**openai_options(url, LONG), "timeout": limits["timeout"]}
            client = library("openai").OpenAI(**options, http_client=transport)
            return client.chat.completions.create(model="m", messages=messages("hi"), stream=True)

        yield ask


@contextmanager
def anthropic_pool() -> Iterator[Hold]:
    limits = one_connection("httpx2")
    with library("httpx2").Client(**limits) as transport:

        def ask(url: str) -> Any:
            options = {**anthropic_options(url, LONG), "timeout": limits["timeout"]}
            client = library("anthropic").Anthropic(**options, http_client=transport)
            return client.messages.create(**anthropic_call("hi"), stream=True)

        yield ask


@contextmanager
def genai_pool() -> Iterator[Hold]:
    # Its one timeout bounds every wait, and the held answer is not read on.
    limits = {"limits": one_connection("httpx2")["limits"]}
    clients: list[Any] = []

    def ask(url: str) -> Any:
        clients.append(clients[0] if clients else genai_client(url, SHORT, client_args=limits))
        chunks = clients[0].models.generate_content_stream(model="m", contents="hi")
        return next(iter(chunks)), chunks

    yield ask
    clients[0].close()


@contextmanager
def urllib3_pool() -> Iterator[Hold]:
    manager = library("urllib3").PoolManager(maxsize=1, block=True, retries=False)
    with manager:
        yield lambda url: manager.request("GET", url, preload_content=False, pool_timeout=SHORT)


POOLS = {
    "httpx": (lambda: httpx_pool("httpx"), "PoolTimeout"),
    "httpx2": (lambda: httpx_pool("httpx2"), "PoolTimeout"),
    "openai": (openai_pool, "APITimeoutError"),
    "anthropic": (anthropic_pool, "APITimeoutError"),
    "google-genai": (genai_pool, "PoolTimeout"),
    "urllib3": (urllib3_pool, "EmptyPoolError"),
}


@pytest.mark.parametrize("name", POOLS)
def test_a_pool_without_a_free_connection_is_a_timeout(name: str, provider: StallingProvider):
    opened, kind = POOLS[name]
    url = provider.url(Fault.STALL)
    with opened() as ask:
        held = ask(url)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - which class, the next line says
            ask(url)
        assert held is not None
    assert (code_of(caught.value), type(caught.value).__name__) == (FailureCode.TRANSPORT_TIMEOUT, kind)


async def _async_httpx(package: str, url: str) -> None:
    async with library(package).AsyncClient(**one_connection(package)) as client, client.stream("GET", url):
        await client.get(url)


async def _aiohttp(url: str) -> None:
    aiohttp = library("aiohttp")
    connector, timeout = aiohttp.TCPConnector(limit=1), aiohttp.ClientTimeout(total=LONG, connect=SHORT)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
        session.get(url),
        session.get(url),
    ):
        pass


ASYNC_POOLS = {
    "httpx": (lambda url: _async_httpx("httpx", url), "PoolTimeout"),
    "httpx2": (lambda url: _async_httpx("httpx2", url), "PoolTimeout"),
    "aiohttp": (_aiohttp, "ConnectionTimeoutError"),
}


@pytest.mark.parametrize("name", ASYNC_POOLS)
def test_an_async_pool_without_a_free_connection_is_a_timeout(name: str, provider: StallingProvider):
    ask, kind = ASYNC_POOLS[name]
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which class, the next line says
        asyncio.run(ask(provider.url(Fault.STALL)))
    assert (code_of(caught.value), type(caught.value).__name__) == (FailureCode.TRANSPORT_TIMEOUT, kind)
