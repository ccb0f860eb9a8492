"""One streamed completion per SDK, read to its end, with the SDK's own repeating switched off."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tests.worker.providers.http_clients import Client, library

KEY = "sk-local"
USER = "user"


def messages(body: str) -> list[dict[str, str]]:
    return [{"role": USER, "content": body}]


def openai_options(url: str, seconds: float) -> dict[str, Any]:
    return {"api_key": KEY, "base_url": url, "timeout": seconds, "max_retries": 0}


def with_openai(url: str, seconds: float, body: str, **options: Any) -> str:
    with library("openai").OpenAI(**{**openai_options(url, seconds), **options}) as client:
        stream = client.chat.completions.create(model="m", messages=messages(body), stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def async_openai(*, aiohttp: bool) -> Client:
    async def ask(url: str, seconds: float, body: str) -> str:
        openai = library("openai")
        if aiohttp:
            library("aiohttp")
        transport = openai.DefaultAioHttpClient(timeout=seconds) if aiohttp else None
        async with openai.AsyncOpenAI(**openai_options(url, seconds), http_client=transport) as client:
            stream = await client.chat.completions.create(model="m", messages=messages(body), stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    return ask


def anthropic_options(url: str, seconds: float) -> dict[str, Any]:
    return {"api_key": KEY, "base_url": url, "timeout": seconds, "max_retries": 0}


def anthropic_call(body: str) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 10, "messages": messages(body)}


def text_of(event: Any) -> str:
    return event.delta.text if event.type == "content_block_delta" else ""


def with_anthropic(url: str, seconds: float, body: str, **options: Any) -> str:
    with library("anthropic").Anthropic(**{**anthropic_options(url, seconds), **options}) as client:
        return "".join(map(text_of, client.messages.create(**anthropic_call(body), stream=True)))


def with_anthropic_helper(url: str, seconds: float, body: str) -> str:
    with (
        library("anthropic").Anthropic(**anthropic_options(url, seconds)) as client,
        client.messages.stream(**anthropic_call(body)) as stream,
    ):
        return "".join(stream.text_stream)


async def with_async_anthropic(url: str, seconds: float, body: str) -> str:
    async with library("anthropic").AsyncAnthropic(**anthropic_options(url, seconds)) as client:
        stream = await client.messages.create(**anthropic_call(body), stream=True)
        return "".join([text_of(event) async for event in stream])


async def with_async_anthropic_helper(url: str, seconds: float, body: str) -> str:
    async with (
        library("anthropic").AsyncAnthropic(**anthropic_options(url, seconds)) as client,
        client.messages.stream(**anthropic_call(body)) as stream,
    ):
        return "".join([text async for text in stream.text_stream])


def genai_client(url: str, seconds: float, **options: Any) -> Any:
    genai = library("google.genai")
    limits = {"base_url": url, "timeout": int(seconds * 1000), **options}
    # Without options of its own a call that cannot connect is repeated once, 1 to 10 s later.
    limits.setdefault("retry_options", genai.types.HttpRetryOptions(attempts=1))
    return genai.Client(api_key=KEY, http_options=genai.types.HttpOptions(**limits))


def with_genai(url: str, seconds: float, body: str, **options: Any) -> str:
    with genai_client(url, seconds, **options) as client:
        chunks = client.models.generate_content_stream(model="m", contents=body)
        return "".join(chunk.text or "" for chunk in chunks)


def async_genai(options: Callable[[], dict[str, Any]]) -> Client:
    async def ask(url: str, seconds: float, body: str) -> str:
        client = genai_client(url, seconds, **options())
        async with client.aio as asking:
            chunks = await asking.models.generate_content_stream(model="m", contents=body)
            return "".join([chunk.text or "" async for chunk in chunks])

    return ask


def genai_over_httpx2() -> dict[str, Any]:
    return {"async_client_args": {"transport": library("httpx2").AsyncHTTPTransport()}}


def genai_over_aiohttp() -> dict[str, Any]:
    library("aiohttp")
    return {}


ONCE: dict[str, Any] = {"total_max_attempts": 1}


@cache
def aws_session() -> Any:
    """One for all: what it reads from the disk takes longer than any request here."""
    return library("boto3").session.Session()


def bedrock(url: str, seconds: float, retries: dict[str, Any] | None = ONCE) -> Any:
    limits = library("botocore.config").Config(
        connect_timeout=seconds,
        read_timeout=seconds,
        retries=retries,
        proxies={},
    )
    return aws_session().client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=limits,
        verify=False,
    )


def bedrock_call(body: str) -> dict[str, Any]:
    return {"modelId": "m", "messages": [{"role": USER, "content": [{"text": body}]}]}


def with_bedrock(url: str, seconds: float, body: str, retries: dict[str, Any] | None = ONCE) -> str:
    client = bedrock(url, seconds, retries)
    try:
        return client.converse(**bedrock_call(body))["output"]["message"]["content"][0]["text"]
    finally:
        client.close()


def with_bedrock_stream(url: str, seconds: float, body: str) -> str:
    client = bedrock(url, seconds)
    try:
        told = client.converse_stream(**bedrock_call(body))["stream"]
        try:
            deltas = [event["contentBlockDelta"] for event in told if "contentBlockDelta" in event]
        finally:
            told.close()
        return "".join(delta["delta"]["text"] for delta in deltas)
    finally:
        client.close()


SDK_CLIENTS: dict[str, Client] = {
    "openai": with_openai,
    "openai async": async_openai(aiohttp=False),
    "openai async, aiohttp": async_openai(aiohttp=True),
    "anthropic": with_anthropic,
    "anthropic async": with_async_anthropic,
    "anthropic .stream()": with_anthropic_helper,
    "anthropic async .stream()": with_async_anthropic_helper,
    "google-genai": with_genai,
    "google-genai async, aiohttp": async_genai(genai_over_aiohttp),
    "google-genai async, httpx2": async_genai(genai_over_httpx2),
    "boto3 converse": with_bedrock,
    "boto3 converse_stream": with_bedrock_stream,
}
