"""One POST per HTTP library, its answer read to the end; a status raises where a library can be told to."""

from __future__ import annotations

import asyncio
import http.client
import inspect
import io
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

Client = Callable[[str, float, str], Any]
"""Asks the provider at an address, with a time limit in seconds for every wait, and a body; may be async."""


def asked(client: Client, url: str, seconds: float, body: str = "hi") -> Any:
    """What the client read; an async one gets an event loop of its own."""
    if inspect.iscoroutinefunction(client):
        return asyncio.run(client(url, seconds, body))
    return client(url, seconds, body)


def library(name: str) -> Any:
    """The library; a test without it is skipped, which CI counts as a failure."""
    return pytest.importorskip(name)


def httpx_family(name: str) -> Client:
    def ask(url: str, seconds: float, body: str) -> None:
        module = library(name)
        with (
            module.Client(timeout=seconds, trust_env=False) as client,
            client.stream("POST", url, content=body.encode()) as response,
        ):
            response.raise_for_status()
            response.read()

    return ask


def async_httpx_family(name: str) -> Client:
    async def ask(url: str, seconds: float, body: str) -> None:
        module = library(name)
        async with (
            module.AsyncClient(timeout=seconds, trust_env=False) as client,
            client.stream("POST", url, content=body.encode()) as response,
        ):
            response.raise_for_status()
            await response.aread()

    return ask


def with_requests(url: str, seconds: float, body: str, retries: int = 0) -> None:
    requests = library("requests")
    with requests.Session() as session:
        session.trust_env = False
        again = library("urllib3").Retry(retries, backoff_factor=0, allowed_methods=None)
        for scheme in ("http://", "https://"):
            session.mount(scheme, requests.adapters.HTTPAdapter(max_retries=again if retries else 0))
        with session.post(url, data=body.encode(), timeout=seconds, stream=True) as response:
            response.raise_for_status()
            list(response.iter_content(16))


def with_requests_retrying(url: str, seconds: float, body: str) -> None:
    with_requests(url, seconds, body, retries=1)


def with_urllib3(url: str, seconds: float, body: str, retries: Any = False) -> None:
    urllib3 = library("urllib3")
    with urllib3.PoolManager(timeout=urllib3.Timeout(connect=seconds, read=seconds), retries=retries) as pool:
        response = pool.request("POST", url, body=body.encode(), preload_content=False)
        try:
            list(response.stream(16))
        finally:
            response.close()


def with_urllib3_retrying(url: str, seconds: float, body: str) -> None:
    with_urllib3(url, seconds, body, library("urllib3").Retry(1, backoff_factor=0, allowed_methods=None))


def with_urllib_request(url: str, seconds: float, body: str) -> None:
    try:
        with urllib.request.urlopen(url, data=body.encode(), timeout=seconds) as response:
            response.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise


def with_http_client(url: str, seconds: float, body: str) -> None:
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    connection = kinds[urlsplit(url).scheme](urlsplit(url).netloc, timeout=seconds)
    try:
        connection.request("POST", "/", body=body.encode())
        connection.getresponse().read()
    finally:
        connection.close()


def with_aiohttp(**limits: str) -> Client:
    async def ask(url: str, seconds: float, body: str) -> None:
        aiohttp = library("aiohttp")
        timeout = aiohttp.ClientTimeout(**{"total": None, **dict.fromkeys(limits.values(), seconds)})
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, data=io.BytesIO(body.encode())) as response,
        ):
            response.raise_for_status()
            await response.read()

    return ask


HTTP_CLIENTS: dict[str, Client] = {
    "httpx": httpx_family("httpx"),
    "httpx async": async_httpx_family("httpx"),
    "httpx2": httpx_family("httpx2"),
    "httpx2 async": async_httpx_family("httpx2"),
    "requests": with_requests,
    "requests, Retry(1)": with_requests_retrying,
    "urllib3, retries=False": with_urllib3,
    "urllib3, Retry(1)": with_urllib3_retrying,
    "urllib.request": with_urllib_request,
    "http.client": with_http_client,
    "aiohttp total": with_aiohttp(whole="total"),
    "aiohttp sock_connect, sock_read": with_aiohttp(connecting="sock_connect", reading="sock_read"),
}
