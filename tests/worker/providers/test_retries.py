"""SDKs that ask again on their own multiply a timeout; the figures stand in docs/failures.md."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.stalling_provider import Fault, StallingProvider
from tests.worker.providers.http_clients import library
from tests.worker.providers.sdk_clients import (
    genai_client,
    with_anthropic,
    with_bedrock,
    with_genai,
    with_openai,
)

TIMEOUT = 0.2


def urllib3_get(url: str, **options: Any) -> None:
    with library("urllib3").PoolManager(timeout=TIMEOUT, **options) as pool:
        pool.request("GET", url)


def genai_attempts(number: int) -> dict[str, Any]:
    return {
        "retry_options": library("google.genai").types.HttpRetryOptions(
            attempts=number, initial_delay=0.01, jitter=0.0
        )
    }


def requests_get(url: str) -> None:
    library("requests").get(url, timeout=TIMEOUT)


# name -> (a call, how often it asks a provider that never answers)
CALLS: dict[str, tuple[Callable[[str], object], int]] = {
    "openai, as it comes": (lambda url: with_openai(url, TIMEOUT, "hi", max_retries=2), 3),
    "openai, max_retries=0": (lambda url: with_openai(url, TIMEOUT, "hi"), 1),
    "anthropic, as it comes": (lambda url: with_anthropic(url, TIMEOUT, "hi", max_retries=2), 3),
    "anthropic, max_retries=0": (lambda url: with_anthropic(url, TIMEOUT, "hi"), 1),
    "boto3, as it comes": (lambda url: with_bedrock(url, TIMEOUT, "hi", retries=None), 3),
    "boto3, standard": (lambda url: with_bedrock(url, TIMEOUT, "hi", {"mode": "standard"}), 3),
    "boto3, total_max_attempts=1": (lambda url: with_bedrock(url, TIMEOUT, "hi"), 1),
    "google-genai, as it comes": (lambda url: with_genai(url, TIMEOUT, "hi", retry_options=None), 1),
    "google-genai, attempts=3": (lambda url: with_genai(url, TIMEOUT, "hi", **genai_attempts(3)), 3),
    "urllib3 GET, as it comes": (urllib3_get, 4),
    "urllib3 GET, retries=False": (lambda url: urllib3_get(url, retries=False), 1),
    "requests GET, as it comes": (requests_get, 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_provider_that_never_answers_is_asked_that_often(name: str, provider: StallingProvider):
    call, times = CALLS[name]
    url, before, began = provider.url(Fault.SILENT), provider.hits(Fault.SILENT), time.monotonic()
    with pytest.raises(Exception):  # noqa: B017, PT011 - which class, test_table says
        call(url)
    assert provider.hits(Fault.SILENT) - before == times
    assert time.monotonic() - began >= times * TIMEOUT


def test_the_sdks_come_with_two_repetitions():
    assert library("openai").DEFAULT_MAX_RETRIES == library("anthropic").DEFAULT_MAX_RETRIES == 2


@pytest.mark.parametrize("call", [with_openai, with_anthropic])
def test_nobody_asks_again_once_the_stream_has_begun(call: Callable[..., str], provider: StallingProvider):
    url, before = provider.url(Fault.STALL), provider.hits(Fault.STALL)
    with pytest.raises(Exception):  # noqa: B017, PT011 - which class, test_table says
        call(url, TIMEOUT, "hi", max_retries=2)
    assert provider.hits(Fault.STALL) - before == 1


def test_google_genai_over_aiohttp_asks_again_after_a_broken_connection_unless_told_how_often(
    provider: StallingProvider, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(random, "randint", lambda low, high: low)  # it waits 1 to 10 s
    url, before = provider.url(Fault.CLOSE_BEFORE), provider.hits(Fault.CLOSE_BEFORE)

    async def ask(**options: Any) -> None:
        async with genai_client(url, 5, **options).aio as client:
            await client.models.generate_content(model="m", contents="hi")

    with pytest.raises(library("aiohttp").ServerDisconnectedError):
        asyncio.run(ask())
    assert provider.hits(Fault.CLOSE_BEFORE) - before == 1
    with pytest.raises(library("aiohttp").ServerDisconnectedError):
        asyncio.run(ask(retry_options=None))
    assert provider.hits(Fault.CLOSE_BEFORE) - before == 3
