"""What escapes an agent becomes a stable code and a sentence that tells clients nothing."""

from __future__ import annotations

import asyncio
import http.client
import importlib
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import httpx2
import openai
import pytest

from shared.protocol import events
from shared.protocol.events import SerializationError
from shared.protocol.verifier import Rule, VerificationError
from shared.runs.outcome import SENTENCES, FailureCode
from tests.stalling_provider import Fault, StallingProvider
from worker import transports
from worker.agents.testing import recorded_context
from worker.cancellation import Cancelled, Disconnected
from worker.failures import (
    DETAIL_BYTES,
    AgentError,
    ProtocolError,
    ProviderStreamBroken,
    UpstreamError,
    classify,
    code_of,
    is_transport_timeout,
)
from worker.sink import EventBufferFull

TIMEOUT = FailureCode.TRANSPORT_TIMEOUT
ERROR = FailureCode.TRANSPORT_ERROR
STATUS = FailureCode.PROVIDER_ERROR
AGENT = FailureCode.AGENT_ERROR
SHORT, LONG = 0.25, 20.0


@pytest.fixture(scope="module")
def provider() -> Iterator[StallingProvider]:
    with StallingProvider() as running:
        yield running


Client = Callable[[str, float], None]


def escaped(work: Callable[[], Any]) -> BaseException:
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - the subject of these tests
        return error
    raise AssertionError("nothing escaped")


def with_httpx(url: str, seconds: float = LONG) -> None:
    with httpx.Client(timeout=seconds, trust_env=False) as client, client.stream("GET", url) as response:
        response.raise_for_status()
        response.read()


def with_httpx2(url: str, seconds: float = LONG) -> None:
    with httpx2.Client(timeout=seconds, trust_env=False) as client, client.stream("GET", url) as response:
        response.raise_for_status()
        response.read()


def with_async(module: Any) -> Client:
    async def ask(url: str, seconds: float) -> None:
        async with (
            module.AsyncClient(timeout=seconds, trust_env=False) as client,
            client.stream("GET", url) as response,
        ):
            response.raise_for_status()
            await response.aread()

    return lambda url, seconds: asyncio.run(ask(url, seconds))


def with_openai(url: str, seconds: float = LONG) -> None:
    with openai.OpenAI(api_key="k", base_url=url, timeout=seconds, max_retries=0) as client:
        for _ in client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        ):
            pass


def with_async_openai(url: str, seconds: float = LONG) -> None:
    async def ask() -> None:
        async with openai.AsyncOpenAI(api_key="k", base_url=url, timeout=seconds, max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            async for _ in stream:
                pass

    asyncio.run(ask())


def with_urllib(url: str, seconds: float = LONG) -> None:
    try:
        with urllib.request.urlopen(url, timeout=seconds) as response:
            response.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise


def with_http_client(url: str, seconds: float = LONG) -> None:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=seconds)
    try:
        connection.request("GET", "/")
        response = connection.getresponse()
        response.read()
        if response.status >= 400:
            raise AssertionError("http.client raises for no status")
    finally:
        connection.close()


CLIENTS: dict[str, Client] = {
    "httpx": with_httpx,
    "httpx async": with_async(httpx),
    "httpx2": with_httpx2,
    "httpx2 async": with_async(httpx2),
    "openai": with_openai,
    "openai async": with_async_openai,
    "urllib.request": with_urllib,
    "http.client": with_http_client,
}
FAULTS = {
    Fault.SILENT: TIMEOUT,
    Fault.STALL: TIMEOUT,
    Fault.FULL: TIMEOUT,
    Fault.STATUS_504: STATUS,
    Fault.STATUS_408: STATUS,
    Fault.RESET_BEFORE: ERROR,
    Fault.RESET_AFTER: ERROR,
    Fault.CLOSE_BEFORE: ERROR,
    Fault.CLOSE_AFTER: ERROR,
    Fault.REFUSED: ERROR,
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_and_fault_gives_its_code(client, fault, provider):
    if client == "http.client" and fault in {Fault.STATUS_504, Fault.STATUS_408}:
        return
    seconds = SHORT if FAULTS[fault] is TIMEOUT else LONG
    error = escaped(lambda: CLIENTS[client](provider.url(fault), seconds))
    assert code_of(error) is FAULTS[fault], repr(error)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_name_that_does_not_exist_is_no_timeout(client):
    assert code_of(escaped(lambda: CLIENTS[client]("http://nobody.invalid:9", LONG))) is ERROR


def test_a_completion_that_stalls_after_a_chunk_is_a_timeout(provider):
    assert code_of(escaped(lambda: with_openai(provider.url(Fault.OPENAI_STALL), SHORT))) is TIMEOUT


def test_a_whole_completion_is_no_failure(provider):
    with_openai(provider.url(Fault.OPENAI))


def test_a_pool_without_a_free_connection_is_a_timeout(provider):
    limits = httpx.Limits(max_connections=1)
    with (
        httpx.Client(timeout=SHORT, limits=limits, trust_env=False) as client,
        client.stream("GET", provider.url(Fault.STALL)),
    ):
        error = escaped(lambda: client.get(provider.url(Fault.STALL)))
    assert isinstance(error, httpx.PoolTimeout)
    assert code_of(error) is TIMEOUT


# Builtin exceptions


def test_an_agents_own_asyncio_timeout_is_the_agents_failure():
    async def work() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    assert code_of(escaped(lambda: asyncio.run(work()))) is AGENT


def test_an_agents_own_timeout_around_a_provider_call_is_the_agents_failure(provider):
    async def work() -> None:
        async with httpx.AsyncClient(timeout=5, trust_env=False) as client, asyncio.timeout(0.1):
            await client.get(provider.url(Fault.SILENT))

    assert code_of(escaped(lambda: asyncio.run(work()))) is AGENT


def test_an_agents_own_timeout_inside_a_marked_provider_call_is_the_providers():
    async def work() -> None:
        ctx, _ = recorded_context()
        with ctx.provider_call():
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)

    assert code_of(escaped(lambda: asyncio.run(work()))) is TIMEOUT


def test_a_tool_that_times_out_on_a_plain_socket_is_the_agents_failure(provider):
    def work() -> None:
        address = ("127.0.0.1", provider.port(Fault.SILENT))
        with socket.create_connection(address, timeout=0.1) as connection:
            connection.recv(1)

    assert code_of(escaped(work)) is AGENT


def test_a_tool_called_by_a_transport_is_still_the_agents(provider):
    def hook(_: httpx.Request) -> None:
        raise TimeoutError("the tool's own")

    def work() -> None:
        with httpx.Client(event_hooks={"request": [hook]}, trust_env=False) as client:
            client.get(provider.url(Fault.SILENT))

    assert code_of(escaped(work)) is AGENT


@pytest.mark.parametrize(
    "error", [TimeoutError(), ConnectionResetError(), ConnectionRefusedError(), OSError()]
)
def test_a_builtin_error_without_a_transport_is_the_agents_failure(error):
    assert code_of(error) is AGENT


def test_a_builtin_error_inside_a_provider_call_is_the_transports():
    assert code_of(TimeoutError(), in_provider_call=True) is TIMEOUT
    assert code_of(ConnectionResetError(), in_provider_call=True) is ERROR
    assert code_of(ValueError(), in_provider_call=True) is AGENT


def test_urls_that_name_their_reason_are_timeouts_only_for_a_timeout():
    assert code_of(urllib.error.URLError(TimeoutError()), in_provider_call=True) is TIMEOUT
    assert code_of(urllib.error.URLError(ConnectionRefusedError())) is ERROR


@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()], ids=repr
)
def test_a_base_exception_is_the_agents_failure(error):
    assert classify(error).code is AGENT


# Chains


def chained(
    error: Exception, *, cause: Exception | None = None, context: Exception | None = None
) -> Exception:
    error.__cause__, error.__context__ = cause, context
    return error


def test_a_cause_is_followed():
    assert code_of(chained(RuntimeError("wrapped"), cause=httpx.ReadTimeout("x"))) is TIMEOUT


def test_a_context_of_the_agents_own_error_is_not_followed():
    assert code_of(chained(RuntimeError("the fallback failed"), context=httpx.ReadTimeout("x"))) is AGENT


def test_a_chain_that_bites_its_tail_ends():
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert code_of(first) is AGENT


def test_a_group_with_one_telling_member_is_that_member():
    group = BaseExceptionGroup("tasks", [httpx.ReadTimeout("x"), asyncio.CancelledError()])
    assert code_of(group) is TIMEOUT
    assert code_of(ExceptionGroup("tasks", [httpx.ReadTimeout("x"), ValueError()])) is AGENT
    assert code_of(ExceptionGroup("tasks", [httpx.ReadTimeout("x"), httpx2.ConnectTimeout("y")])) is TIMEOUT


def test_a_subclass_of_a_listed_class_counts_as_it():
    class OwnTimeout(httpx.ReadTimeout):
        pass

    assert code_of(OwnTimeout("x")) is TIMEOUT


def test_a_class_that_only_shares_a_name_counts_for_nothing():
    class ReadTimeout(Exception):
        pass

    assert code_of(ReadTimeout("x")) is AGENT


def made(module: str, name: str, *bases: type[BaseException]) -> type[Exception]:
    return type(name, bases or (Exception,), {"__module__": module})


class TestLibrariesThatAreNotInstalled:
    def test_urllib3s_new_connection_is_no_timeout_although_it_derives_from_one(self):
        connect = made("urllib3.exceptions", "ConnectTimeoutError")
        assert code_of(connect()) is TIMEOUT
        assert code_of(made("urllib3.exceptions", "NewConnectionError", connect)()) is ERROR
        assert code_of(made("urllib3.exceptions", "NameResolutionError", connect)()) is ERROR

    def test_requests_connect_timeout_is_a_timeout_although_it_is_a_connection_error_too(self):
        connection, timeout = (
            made("requests.exceptions", "ConnectionError"),
            made("requests.exceptions", "Timeout"),
        )
        assert code_of(made("requests.exceptions", "ConnectTimeout", connection, timeout)()) is TIMEOUT

    def test_requests_hides_a_read_timeout_in_its_context_or_argument(self):
        base = made("requests.exceptions", "RequestException")
        connection = made("requests.exceptions", "ConnectionError", base)
        read = made("urllib3.exceptions", "ReadTimeoutError")
        too_many = made("urllib3.exceptions", "MaxRetryError")()
        too_many.reason = read()
        assert code_of(chained(connection(), context=read())) is TIMEOUT
        assert code_of(connection(too_many)) is TIMEOUT
        assert code_of(connection(made("urllib3.exceptions", "ProtocolError")())) is ERROR

    def test_grpc_is_judged_by_its_status(self):
        class Status:
            def __init__(self, name: str) -> None:
                self.name = name

        def failed(status: str) -> Exception:
            kind = made("grpc._channel", "_InactiveRpcError", made("grpc", "RpcError"))
            error = kind()
            error.code = lambda: Status(status)
            return error

        assert code_of(failed("DEADLINE_EXCEEDED")) is TIMEOUT
        assert code_of(failed("UNAVAILABLE")) is ERROR
        assert code_of(failed("INTERNAL")) is STATUS

    @pytest.mark.parametrize(
        ("module", "name", "code"),
        [
            ("anthropic", "APITimeoutError", TIMEOUT),
            ("anthropic", "APIStatusError", STATUS),
            ("aiohttp.client_exceptions", "ServerTimeoutError", TIMEOUT),
            ("aiohttp.client_exceptions", "ClientPayloadError", ERROR),
            ("botocore.exceptions", "ReadTimeoutError", TIMEOUT),
            ("botocore.exceptions", "ClientError", STATUS),
            ("google.genai.errors", "APIError", STATUS),
            ("google.other", "APIError", AGENT),
            ("grpc", "FutureTimeoutError", TIMEOUT),
        ],
    )
    def test_a_listed_class_is_found_by_package_and_name(self, module, name, code):
        assert code_of(made(module, name)()) is code


@pytest.mark.parametrize("package", ["httpx", "httpx2", "httpcore", "httpcore2", "openai", "redis"])
def test_every_listed_class_of_an_installed_library_exists(package):
    module = importlib.import_module(package)
    names = [name for listed, name in transports.MEANINGS if listed == package]
    missing = [
        name
        for name in names
        if not hasattr(module, name) and not hasattr(getattr(module, "_exceptions", None), name)
    ]
    assert names
    assert missing == []


# What the worker itself refuses


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (VerificationError(Rule.NOT_OPEN, events.EventType.CUSTOM, "x"), FailureCode.PROTOCOL_VIOLATION),
        (SerializationError("x"), FailureCode.SERIALIZATION),
        (ProtocolError("x"), FailureCode.PROTOCOL),
        (EventBufferFull("x"), FailureCode.EVENT_BUFFER_FULL),
        (ProviderStreamBroken("x"), ERROR),
        (Cancelled("x"), FailureCode.CANCELLED),
        (Disconnected("x"), FailureCode.DISCONNECTED),
        (AgentError("x"), AGENT),
        (ValueError("x"), AGENT),
    ],
    ids=lambda value: getattr(value, "value", type(value).__name__),
)
def test_an_exception_of_the_workers_own_has_its_code(error, code):
    assert code_of(error) is code


def test_a_value_that_a_core_type_refuses_is_a_protocol_failure():
    error = escaped(lambda: events.TextMessageContentEvent(message_id="m", delta=5))
    assert code_of(error) is FailureCode.PROTOCOL


def test_an_upstream_may_name_a_provider_failure_and_nothing_else():
    assert code_of(UpstreamError("m", "transport_timeout")) is TIMEOUT
    assert code_of(UpstreamError("m", "CANCELLED")) is AGENT
    assert code_of(UpstreamError("m", "worker_lost")) is AGENT
    assert code_of(UpstreamError("m")) is AGENT


# What is said about it


def test_an_exceptions_text_reaches_operators_and_not_the_client():
    outcome = classify(RuntimeError("password=hunter2"))
    assert outcome.message == SENTENCES[AGENT]
    assert "hunter2" in (outcome.detail or "")
    assert outcome.incident


def test_a_providers_answer_does_not_reach_the_client(provider):
    outcome = classify(escaped(lambda: with_openai(provider.url(Fault.STATUS_504))))
    assert outcome.message == SENTENCES[STATUS]
    assert (outcome.detail or "").startswith("provider status 504")


def test_an_agent_errors_text_reaches_the_client_as_it_is():
    outcome = classify(AgentError("the weather service is down"))
    assert outcome.message == "agent error: the weather service is down"
    assert outcome.incident is None


def test_every_incident_has_an_id_of_its_own():
    assert classify(ValueError()).incident != classify(ValueError()).incident


def test_a_detail_is_bounded_and_keeps_its_beginning_and_end():
    detail = classify(RuntimeError("x" * 100_000 + "the end")).detail or ""
    assert len(detail.encode()) <= DETAIL_BYTES
    assert detail.startswith("RuntimeError: xxx")
    assert detail.rstrip().endswith("the end")


class Mute(AgentError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_exception_whose_text_cannot_be_had_is_classified():
    outcome = classify(Mute())
    assert outcome.message == "agent error: Mute"


def test_lone_surrogates_in_a_text_become_replacements():
    outcome = classify(AgentError("cut \ud83d"))
    assert outcome.message == "agent error: cut \ufffd"
    (outcome.detail or "").encode()


def test_a_transport_timeout_is_told_from_everything_else():
    assert is_transport_timeout(httpx.ReadTimeout("x"))
    assert not is_transport_timeout(httpx.ReadError("x"))
