"""A deadline that agent code sets around its own work is the agent's failure, whatever happened before."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import queue
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from shared.runs.outcome import FailureCode
from tests.stalling_provider import Fault, StallingProvider
from tests.worker.providers.http_clients import HTTP_CLIENTS, asked, library
from tests.worker.providers.rows import LONG, SHORT
from tests.worker.providers.sdk_clients import SDK_CLIENTS
from worker.agents.testing import recorded_context
from worker.failures import code_of

AGENT, TIMEOUT = FailureCode.AGENT_ERROR, FailureCode.TRANSPORT_TIMEOUT
BRIEF = 0.1
ASYNC_CLIENTS = {
    name: client
    for name, client in {**HTTP_CLIENTS, **SDK_CLIENTS}.items()
    if inspect.iscoroutinefunction(client)
}


def escaped(work: Callable[[], object]) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the subject of these tests
        work()
    return caught.value


def fall_back(first: BaseException, second: Callable[[], object]) -> None:
    """What agents do: the second try runs while the first one's failure is being handled."""
    try:
        raise first  # noqa: TRY301 - it was raised by a library before
    except Exception:  # noqa: BLE001
        second()


async def forever() -> None:
    await asyncio.Event().wait()


async def with_timeout(work: Awaitable[object]) -> None:
    async with asyncio.timeout(BRIEF):
        await work


async def with_wait_for(work: Awaitable[object]) -> None:
    await asyncio.wait_for(work, BRIEF)


async def with_fail_after(work: Awaitable[object]) -> None:
    with anyio.fail_after(BRIEF):
        await work


OWN_ASYNC = [with_timeout, with_wait_for, with_fail_after]


def future_result() -> None:
    concurrent.futures.Future().result(timeout=0)


def empty_queue() -> None:
    queue.Queue().get(timeout=0.01)


def barrier() -> None:
    threading.Barrier(2).wait(timeout=0.01)


def slow_program() -> None:
    subprocess.run([sys.executable, "-c", "import signal; signal.pause()"], timeout=0.01, check=False)


def own_error() -> None:
    raise TimeoutError("the tool's own")


OWN_SYNC = [future_result, empty_queue, barrier, slow_program, own_error]


@pytest.mark.parametrize("tool", OWN_SYNC)
def test_a_tools_own_deadline_is_the_agents_failure(tool: Callable[[], None]):
    assert code_of(escaped(tool)) is AGENT


@pytest.mark.parametrize("bounded", OWN_ASYNC)
def test_an_async_tools_own_deadline_is_the_agents_failure(bounded: Any):
    assert code_of(escaped(lambda: asyncio.run(bounded(forever())))) is AGENT


@pytest.mark.parametrize("client", ["requests", "httpx", "urllib.request", "openai", "boto3 converse"])
@pytest.mark.parametrize("tool", OWN_SYNC)
def test_it_stays_the_agents_after_a_provider_timeout_was_handled(
    client: str, tool: Callable[[], None], handled: Callable[[str], BaseException]
):
    provider_timeout = handled(client)

    assert code_of(provider_timeout) is TIMEOUT
    assert code_of(escaped(lambda: fall_back(provider_timeout, tool))) is AGENT


@pytest.fixture(scope="module")
def handled(provider: StallingProvider) -> Callable[[str], BaseException]:
    """A client's real timeout, as an agent would have caught it."""
    caught: dict[str, BaseException] = {}

    def once(name: str) -> BaseException:
        if name not in caught:
            client = {**HTTP_CLIENTS, **SDK_CLIENTS}[name]
            caught[name] = escaped(lambda: asked(client, provider.url(Fault.SILENT), SHORT))
        return caught[name]

    return once


@pytest.mark.parametrize("client", ["requests", "urllib.request", "httpx", "openai", "anthropic"])
@pytest.mark.parametrize(
    ("fault", "code"),
    [(Fault.STATUS_503, FailureCode.PROVIDER_ERROR), (Fault.REFUSED, FailureCode.TRANSPORT_ERROR)],
)
def test_a_fallback_that_fails_otherwise_is_judged_by_itself(
    client: str,
    fault: Fault,
    code: FailureCode,
    handled: Callable[[str], BaseException],
    provider: StallingProvider,
):
    fallback = {**HTTP_CLIENTS, **SDK_CLIENTS}[client]

    first = handled(client)
    error = escaped(lambda: fall_back(first, lambda: asked(fallback, provider.url(fault), LONG)))
    assert error.__context__ is not None
    assert code_of(error) is code


@pytest.mark.parametrize("client", ASYNC_CLIENTS)
@pytest.mark.parametrize("bounded", OWN_ASYNC)
def test_an_own_deadline_around_a_provider_call_is_the_agents_unless_it_is_marked(
    bounded: Any, client: str, provider: StallingProvider
):
    url = provider.url(Fault.SILENT)

    async def plain() -> None:
        await bounded(ASYNC_CLIENTS[client](url, LONG, "hi"))

    async def marked() -> None:
        ctx, _ = recorded_context()
        with ctx.provider_call():
            await plain()

    assert code_of(escaped(lambda: asyncio.run(plain()))) is AGENT
    assert code_of(escaped(lambda: asyncio.run(marked()))) is TIMEOUT


def test_a_deadline_outside_the_marked_block_is_the_agents():
    async def agent() -> None:
        ctx, _ = recorded_context()
        async with asyncio.timeout(BRIEF):
            with ctx.provider_call():
                await forever()

    assert code_of(escaped(lambda: asyncio.run(agent()))) is AGENT


def test_the_mark_covers_what_the_exception_was_raised_from_and_the_members_of_a_group():
    ctx, _ = recorded_context()

    def wrapped() -> None:
        with ctx.provider_call():
            raise RuntimeError("an unknown library's wrapper") from TimeoutError()

    def grouped() -> None:
        with ctx.provider_call():
            raise ExceptionGroup("tasks", [TimeoutError()])

    assert code_of(escaped(wrapped)) is TIMEOUT
    assert code_of(escaped(grouped)) is TIMEOUT


def test_an_empty_queue_in_a_marked_block_is_still_the_agents():
    ctx, _ = recorded_context()

    def agent() -> None:
        with ctx.provider_call():
            empty_queue()

    assert code_of(escaped(agent)) is AGENT


@pytest.mark.parametrize("package", ["httpx", "httpx2"])
def test_a_tool_called_by_a_transport_is_still_the_agents(package: str, provider: StallingProvider):
    def hook(_: object) -> None:
        raise TimeoutError("the tool's own")

    def agent() -> None:
        with library(package).Client(event_hooks={"request": [hook]}, trust_env=False) as client:
            client.get(provider.url(Fault.SILENT))

    assert code_of(escaped(agent)) is AGENT


def test_a_deadline_in_a_body_that_an_agent_generates_is_no_timeout_of_the_transport(
    provider: StallingProvider,
):
    def body() -> Any:
        yield b"first"
        raise TimeoutError("the tool's own")

    def agent() -> None:
        library("requests").post(provider.url(Fault.SILENT), data=body(), timeout=LONG)

    # requests says that the connection broke, and so it did; that it was too slow, nobody may say.
    assert code_of(escaped(agent)) is FailureCode.TRANSPORT_ERROR
