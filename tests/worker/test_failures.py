"""What escapes an agent becomes a stable code and a sentence that tells clients nothing."""

from __future__ import annotations

import asyncio
import errno
import http.client
import socket
import urllib.error
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import httpx
import httpx2
import pytest

from shared.protocol import events
from shared.protocol.events import SerializationError
from shared.protocol.verifier import Rule, VerificationError
from shared.runs.outcome import SENTENCES, FailureCode
from tests.stalling_provider import Fault, StallingProvider
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


@pytest.fixture(scope="module")
def provider() -> Iterator[StallingProvider]:
    with StallingProvider() as running:
        yield running


def escaped(work: Callable[[], Any]) -> BaseException:
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - the subject of these tests
        return error
    raise AssertionError("nothing escaped")


# Builtin exceptions


def test_a_tool_that_times_out_on_a_plain_socket_is_the_agents_failure(provider):
    def work() -> None:
        address = ("127.0.0.1", provider.port(Fault.SILENT))
        with socket.create_connection(address, timeout=0.1) as connection:
            connection.recv(1)

    assert code_of(escaped(work)) is AGENT


@pytest.mark.parametrize(
    "error", [TimeoutError(), ConnectionResetError(), ConnectionRefusedError(), OSError()]
)
def test_a_builtin_error_without_a_transport_is_the_agents_failure(error):
    assert code_of(error) is AGENT


@pytest.mark.parametrize("number", [errno.ENETUNREACH, errno.EHOSTUNREACH])
def test_a_network_that_cannot_be_reached_is_a_transport_error(number, monkeypatch):
    # A mock's frames are the standard library's, as the real call's would be.
    monkeypatch.setattr(socket, "create_connection", Mock(side_effect=OSError(number, "no way there")))
    assert code_of(escaped(lambda: http.client.HTTPConnection("127.0.0.1").request("GET", "/"))) is ERROR
    assert code_of(OSError(number, "no way there")) is AGENT
    assert code_of(FileNotFoundError("x"), in_provider_call=True) is AGENT


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
    if cause is not None:
        error.__cause__ = cause
    error.__context__ = context
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


# The table, by classes that only bear a library's names: which libraries are installed does not matter


def test_the_most_specific_listed_class_decides():
    connection = made("requests.exceptions", "ConnectionError")
    timeout = made("requests.exceptions", "Timeout")
    assert code_of(made("requests.exceptions", "ConnectTimeout", connection, timeout)()) is TIMEOUT
    slow = made("urllib3.exceptions", "TimeoutError")
    connect = made("urllib3.exceptions", "ConnectTimeoutError", slow)
    assert code_of(connect()) is TIMEOUT
    assert code_of(made("urllib3.exceptions", "NewConnectionError", connect)()) is ERROR


def test_the_innermost_reason_decides_whatever_wraps_it():
    slow, refused = (
        made("httpx2", "TimeoutException"),
        made("aiohttp.client_exceptions", "ClientConnectionError"),
    )
    timeout, unreachable = made("openai", "APITimeoutError"), made("openai", "APIConnectionError")
    assert code_of(chained(unreachable(), cause=slow())) is TIMEOUT
    assert code_of(chained(timeout(), cause=chained(slow(), cause=refused()))) is ERROR


def test_a_wrappers_reason_is_looked_for_in_its_context_and_its_arguments():
    connection = made("requests.exceptions", "ConnectionError")
    slow, broken = made("urllib3.exceptions", "TimeoutError"), made("urllib3.exceptions", "ProtocolError")
    too_many = made("urllib3.exceptions", "MaxRetryError")()
    too_many.reason = slow()
    assert code_of(chained(connection(), context=slow())) is TIMEOUT
    assert code_of(connection(too_many)) is TIMEOUT
    assert code_of(connection(broken("aborted", slow()))) is TIMEOUT
    assert code_of(connection(broken())) is ERROR


def test_too_many_refusals_are_a_refusal():
    too_many = made("urllib3.exceptions", "MaxRetryError")()
    too_many.reason = made("urllib3.exceptions", "ResponseError")("too many 503 error responses")
    assert code_of(too_many) is STATUS


def test_a_context_that_a_wrapper_was_told_to_forget_does_not_count():
    wrapper = chained(
        made("urllib3.exceptions", "ProtocolError")(), context=httpx.ReadTimeout("handled before")
    )
    wrapper.__suppress_context__ = True
    assert code_of(wrapper) is ERROR


def test_an_address_that_is_none_is_the_agents_mistake_in_every_library():
    wrong = httpx.UnsupportedProtocol("no scheme")
    assert code_of(wrong) is AGENT
    assert code_of(chained(made("openai", "APIConnectionError")(), cause=wrong)) is AGENT
    assert code_of(http.client.InvalidURL("x")) is AGENT


def test_grpc_is_judged_by_its_status():
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
    assert code_of(made("grpc", "RpcError")()) is STATUS


@pytest.mark.parametrize(
    ("module", "name", "code"),
    [
        ("google.api_core.exceptions", "DeadlineExceeded", TIMEOUT),
        ("google.api_core.exceptions", "RetryError", ERROR),
        ("google.api_core.exceptions", "GoogleAPICallError", STATUS),
        ("google.auth.exceptions", "TransportError", ERROR),
        ("google.genai.errors", "APIError", STATUS),
        ("google.other", "APIError", AGENT),
        ("httpx_like", "TimeoutException", AGENT),
    ],
)
def test_a_listed_class_is_found_by_package_and_name(module, name, code):
    assert code_of(made(module, name)()) is code


def test_a_class_that_a_library_derives_from_anothers_counts_as_it():
    listed = made("openai", "APITimeoutError", made("openai", "APIConnectionError"))
    assert code_of(made("litellm.exceptions", "Timeout", listed)()) is TIMEOUT


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
    def agent() -> None:
        httpx2.get(provider.url(Fault.STATUS_504), trust_env=False).raise_for_status()

    outcome = classify(escaped(agent))
    assert outcome.message == SENTENCES[STATUS]
    assert (outcome.detail or "").startswith("provider status 504\n")


@pytest.mark.parametrize(
    "text",
    [
        "for url: https://ai.example/v1/models?alt=sse&key=AIzaSECRET",
        "Max retries exceeded with url: /v1?api_key=SECRET&n=1",
        "GET 'https://user:SECRET@ai.example/'",
        "headers: {'Authorization': 'Bearer SECRET'}",
        "headers: {'authorization': 'Basic SECRET', 'x': 'y'}",
        "b'x-goog-api-key': b'SECRET'",
        "https://bucket.example/?X-Amz-Signature=SECRET",
    ],
)
def test_credentials_in_an_exceptions_text_do_not_even_reach_operators(text):
    detail = classify(RuntimeError(text)).detail or ""
    assert "SECRET" not in detail
    assert "***" in detail
    assert detail.startswith("RuntimeError: ")


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:8080/v1?alt=sse",
        "a bearer",
        "the basic case",
        "mail a:b to me@here.example",
        "key=5",
    ],
)
def test_what_is_no_credential_stays(text):
    assert text in (classify(RuntimeError(text)).detail or "")


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
