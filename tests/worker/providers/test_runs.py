"""Provider failures inside whole runs: what stays in the log, what a cancel finds, how long clients live."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from shared.runs.lifecycle import Status
from shared.settings import Settings
from shared.store.store import Store
from tests.stalling_provider import Fault, StallingProvider
from tests.worker.providers.dialects import SECRET
from tests.worker.providers.http_clients import library
from tests.worker.providers.rows import LONG, SHORT
from tests.worker.providers.sdk_clients import (
    anthropic_call,
    anthropic_options,
    bedrock,
    bedrock_call,
    genai_client,
    messages,
    openai_options,
    with_openai,
)
from tests.worker.stage import accept, in_thread, log_of, process_with, record_of, types_of
from worker.context import RunContext
from worker.driver import Driver

Agent = Callable[[RunContext], Any]


def executed(settings: Settings, store: Store, agent: Agent, runs: int = 1) -> list[str]:
    """Runs of one process, one after the other."""
    keys = [accept(store, "agent") for _ in range(runs)]
    with process_with(settings, agent=agent) as process:
        for key in keys:
            Driver(process).execute(key)
    return keys


# A stream that stops in the middle


def openai_agent(url: str) -> Agent:
    openai = library("openai")

    def agent(ctx: RunContext) -> None:
        with openai.OpenAI(**openai_options(url, SHORT)) as client, ctx.message() as message:
            for chunk in client.chat.completions.create(model="m", messages=messages("hi"), stream=True):
                message.delta(chunk.choices[0].delta.content or "")

    return agent


def anthropic_agent(url: str) -> Agent:
    anthropic = library("anthropic")

    async def agent(ctx: RunContext) -> None:
        async with (
            anthropic.AsyncAnthropic(**anthropic_options(url, SHORT)) as client,
            client.messages.stream(**anthropic_call("hi")) as stream,
        ):
            with ctx.message() as message:
                async for text in stream.text_stream:
                    message.delta(text)

    return agent


def genai_agent(url: str) -> Agent:
    library("google.genai")

    async def agent(ctx: RunContext) -> None:
        client = genai_client(url, SHORT)
        async with client.aio as asking:
            with ctx.message() as message:
                async for chunk in await asking.models.generate_content_stream(model="m", contents="hi"):
                    message.delta(chunk.text or "")

    return agent


def bedrock_agent(url: str) -> Agent:
    library("boto3")

    def agent(ctx: RunContext) -> None:
        client = bedrock(url, SHORT)
        with ctx.message() as message:
            for event in client.converse_stream(**bedrock_call("hi"))["stream"]:
                if "contentBlockDelta" in event:
                    message.delta(event["contentBlockDelta"]["delta"]["text"])

    return agent


def requests_agent(url: str) -> Agent:
    requests = library("requests")

    def agent(ctx: RunContext) -> None:
        with (
            requests.post(url, timeout=SHORT, stream=True) as response,
            ctx.message() as message,
        ):
            for line in response.iter_lines():
                message.delta("Hello" if line == b"first" else line.decode())

    return agent


STREAMING = [openai_agent, anthropic_agent, genai_agent, bedrock_agent, requests_agent]


@pytest.mark.parametrize("make", STREAMING)
def test_a_stall_in_mid_stream_leaves_the_partial_text_and_asks_the_provider_once(
    make: Callable[[str], Agent], settings: Settings, store: Store, provider: StallingProvider
):
    before = provider.hits(Fault.STALL)
    (key,) = executed(settings, store, make(provider.url(Fault.STALL)))
    told = log_of(store, key)
    assert [event["type"] for event in told] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_ERROR",
    ]
    assert (told[2]["delta"], told[-1]["code"]) == ("Hello", "transport_timeout")
    record = record_of(store, key)
    assert (record.status, record.texts["code"]) == (Status.FAILED, "transport_timeout")
    assert log_of(store, key) == told  # whoever looks again asks the log, not the provider
    assert provider.hits(Fault.STALL) - before == 1


def test_what_a_provider_answers_stays_with_the_operators(
    settings: Settings, store: Store, provider: StallingProvider
):
    (key,) = executed(settings, store, openai_agent(provider.url(Fault.STATUS_504)))
    terminal = log_of(store, key)[-1]
    assert terminal["code"] == "provider_error"
    assert SECRET not in str(log_of(store, key))
    assert record_of(store, key).texts["detail"].startswith("provider status 504\n")


# A cancel during an SDK's own repeating


def test_a_sync_call_that_a_cancel_cannot_reach_ends_within_its_three_tries(
    settings: Settings, store: Store, provider: StallingProvider, eventually: Callable[..., Any]
):
    before = provider.hits(Fault.SILENT)

    def agent(ctx: RunContext) -> None:
        with_openai(provider.url(Fault.SILENT), SHORT, "hi", max_retries=2)

    key = accept(store, "agent")
    with process_with(settings.model_copy(update={"cancel_grace_seconds": 10.0}), agent=agent) as process:
        began = time.monotonic()
        thread = in_thread(process, key)
        eventually(lambda: provider.hits(Fault.SILENT) > before)
        store.runs.request_cancel(key, by="alice")
        thread.join(20)
        assert not thread.is_alive()
    # Three tries, and pauses of 0.5 and 1 s at most between them.
    assert 3 * SHORT <= time.monotonic() - began < 3 * SHORT + 5
    assert provider.hits(Fault.SILENT) - before == 3
    record = record_of(store, key)
    assert (record.status, record.texts["code"]) == (Status.FAILED, "transport_timeout")
    assert record.times["cancel_requested_at"] is not None


def test_a_cancel_is_heard_at_the_first_point_where_a_sync_agent_runs_again(
    settings: Settings, store: Store, provider: StallingProvider, eventually: Callable[..., Any]
):
    before = provider.hits(Fault.SILENT)
    tried: list[int] = []

    def agent(ctx: RunContext) -> None:
        for attempt in range(100):
            ctx.check_cancelled()
            tried.append(attempt)
            try:
                with_openai(provider.url(Fault.SILENT), SHORT, "hi")
            except library("openai").APITimeoutError:
                eventually(lambda: ctx.token.tripped)

    key = accept(store, "agent")
    with process_with(settings.model_copy(update={"cancel_grace_seconds": 10.0}), agent=agent) as process:
        thread = in_thread(process, key)
        eventually(lambda: provider.hits(Fault.SILENT) > before)
        store.runs.request_cancel(key, by="alice")
        thread.join(20)
    assert record_of(store, key).status is Status.CANCELLED
    assert tried == [0]
    assert provider.hits(Fault.SILENT) - before == 1


def test_an_async_call_is_cancelled_at_once_whatever_it_was_going_to_repeat(
    settings: Settings, store: Store, provider: StallingProvider, eventually: Callable[..., Any]
):
    before = provider.hits(Fault.SILENT)

    async def agent(ctx: RunContext) -> None:
        options = {**openai_options(provider.url(Fault.SILENT), LONG), "max_retries": 2}
        async with library("openai").AsyncOpenAI(**options) as client:
            call = client.chat.completions.create(model="m", messages=messages("hi"))
            await ctx.until_cancelled(call)

    key = accept(store, "agent")
    with process_with(settings, agent=agent) as process:
        thread = in_thread(process, key)
        eventually(lambda: provider.hits(Fault.SILENT) > before)
        asked_at = time.monotonic()
        store.runs.request_cancel(key, by="alice")
        thread.join(20)
        assert time.monotonic() - asked_at < 5
    assert record_of(store, key).status is Status.CANCELLED
    assert provider.hits(Fault.SILENT) - before == 1


# How long clients live


@pytest.mark.parametrize("package", ["httpx", "httpx2"])
@pytest.mark.parametrize("together", [False, True])
def test_a_client_of_the_module_serves_all_runs_of_a_process(
    package: str, together: bool, settings: Settings, store: Store, provider: StallingProvider
):
    shared = library(package).AsyncClient(timeout=LONG, trust_env=False)
    loops: set[int] = set()

    async def agent(ctx: RunContext) -> None:
        loops.add(id(asyncio.get_running_loop()))
        response = await shared.post(provider.url(Fault.NONE), content=b"hi")
        ctx.say(response.text)

    keys = [accept(store, "agent") for _ in range(10)]
    with process_with(settings, agent=agent) as process:
        threads: list[threading.Thread] = []
        for key in keys:
            threads.append(in_thread(process, key))
            if not together:
                threads[-1].join(20)
        for thread in threads:
            thread.join(20)
        asyncio.run_coroutine_threadsafe(shared.aclose(), process.loop).result(5)
    assert {record_of(store, key).status for key in keys} == {Status.SUCCEEDED}
    assert len(loops) == 1


def test_a_client_of_another_loop_is_the_agents_failure(
    settings: Settings, store: Store, provider: StallingProvider
):
    shared = library("aiohttp")
    session: list[Any] = []

    async def agent(ctx: RunContext) -> None:
        async with session[0].get(provider.url(Fault.NONE)) as response:
            ctx.say(await response.text())

    async def opened() -> None:
        session.append(shared.ClientSession())

    asyncio.run(opened())
    (key,) = executed(settings, store, agent)
    assert record_of(store, key).texts["code"] == "AGENT_ERROR"
    asyncio.run(session[0].close())


def test_a_client_that_nobody_keeps_is_the_agents_failure_and_asks_nobody(
    settings: Settings, store: Store, provider: StallingProvider
):
    library("google.genai")
    before = provider.hits(Fault.NONE)

    def agent(ctx: RunContext) -> None:
        for chunk in genai_client(provider.url(Fault.NONE), LONG).models.generate_content_stream(
            model="m", contents="hi"
        ):
            ctx.say(chunk.text)

    (key,) = executed(settings, store, agent)
    record = record_of(store, key)
    assert (record.status, record.texts["code"]) == (Status.FAILED, "AGENT_ERROR")
    assert "the client has been closed" in record.texts["detail"]
    assert types_of(store, key) == ["RUN_STARTED", "RUN_ERROR"]
    assert provider.hits(Fault.NONE) == before
