"""gRPC says everything with one class; its status decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shared.runs.outcome import FailureCode
from tests.stalling_provider import Fault, StallingProvider
from tests.worker.providers.grpc_provider import SERVICE, GrpcProvider
from tests.worker.providers.http_clients import library
from tests.worker.providers.rows import LONG, SHORT
from worker.failures import classify, code_of

TIMEOUT, ERROR, STATUS = (
    FailureCode.TRANSPORT_TIMEOUT,
    FailureCode.TRANSPORT_ERROR,
    FailureCode.PROVIDER_ERROR,
)
STREAMS = {"Stall", "Whole"}


@pytest.fixture(scope="module")
def grpc_provider() -> Iterator[GrpcProvider]:
    with GrpcProvider() as running:
        yield running


def sync_call(target: str, method: str, seconds: float, **options: Any) -> None:
    with library("grpc").insecure_channel(target) as channel:
        if method in STREAMS:
            list(channel.unary_stream(f"/{SERVICE}/{method}")(b"", timeout=seconds, **options))
        else:
            channel.unary_unary(f"/{SERVICE}/{method}")(b"", timeout=seconds, **options)


def async_call(target: str, method: str, seconds: float, **options: Any) -> None:
    async def ask() -> None:
        async with library("grpc.aio").insecure_channel(target) as channel:
            if method in STREAMS:
                call = channel.unary_stream(f"/{SERVICE}/{method}")(b"", timeout=seconds, **options)
                assert [message async for message in call]
            else:
                await channel.unary_unary(f"/{SERVICE}/{method}")(b"", timeout=seconds, **options)

    asyncio.run(ask())


CALLS = pytest.mark.parametrize("call", [sync_call, async_call])


def escaped(work: Callable[[], object]) -> Any:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which class, the tests say
        work()
    return caught.value


@CALLS
@pytest.mark.parametrize("method", ["Silent", "Stall"])
def test_a_deadline_is_a_timeout_before_and_in_the_stream(
    call: Callable[..., None], method: str, grpc_provider: GrpcProvider
):
    error = escaped(lambda: call(f"127.0.0.1:{grpc_provider.port}", method, SHORT))
    assert (error.code().name, code_of(error)) == ("DEADLINE_EXCEEDED", TIMEOUT)


@CALLS
@pytest.mark.parametrize("fault", [Fault.FULL, Fault.SILENT])
def test_a_hanging_connect_and_a_peer_that_never_speaks_are_timeouts(
    call: Callable[..., None], fault: Fault, provider: StallingProvider
):
    error = escaped(lambda: call(f"127.0.0.1:{provider.port(fault)}", "Silent", SHORT))
    assert (error.code().name, code_of(error)) == ("DEADLINE_EXCEEDED", TIMEOUT)


@CALLS
def test_waiting_until_a_refused_port_is_ready_is_a_timeout(
    call: Callable[..., None], provider: StallingProvider
):
    target = f"127.0.0.1:{provider.port(Fault.REFUSED)}"
    error = escaped(lambda: call(target, "Silent", SHORT, wait_for_ready=True))
    assert (error.code().name, code_of(error)) == ("DEADLINE_EXCEEDED", TIMEOUT)


@CALLS
@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.RESET_BEFORE, Fault.CLOSE_BEFORE, Fault.GARBAGE])
def test_refused_reset_and_closed_connections_are_transport_errors(
    call: Callable[..., None], fault: Fault, provider: StallingProvider
):
    error = escaped(lambda: call(f"127.0.0.1:{provider.port(fault)}", "Silent", LONG))
    assert (error.code().name, code_of(error)) == ("UNAVAILABLE", ERROR)


@CALLS
def test_a_name_that_cannot_be_resolved_is_a_transport_error(
    call: Callable[..., None], provider: StallingProvider
):
    # gRPC asks a name server of its own; this one is not there.
    target = f"dns://127.0.0.1:{provider.port(Fault.REFUSED)}/nobody.invalid:9"
    error = escaped(lambda: call(target, "Silent", LONG))
    assert (error.code().name, code_of(error)) == ("UNAVAILABLE", ERROR)


@CALLS
@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("INTERNAL", STATUS),
        ("RESOURCE_EXHAUSTED", STATUS),
        ("UNAUTHENTICATED", STATUS),
        # What a server answers looks exactly like what the client found out on its own.
        ("DEADLINE_EXCEEDED", TIMEOUT),
        ("UNAVAILABLE", ERROR),
    ],
)
def test_an_answered_status_is_a_provider_error_unless_it_is_the_transports_own(
    call: Callable[..., None], status: str, code: FailureCode, grpc_provider: GrpcProvider
):
    outcome = classify(escaped(lambda: call(f"127.0.0.1:{grpc_provider.port}", f"Say{status}", LONG)))
    assert outcome.code is code
    assert "timed out" not in (outcome.message or "")
    assert (outcome.detail or "").startswith(f"provider status {status}\n")


def test_a_future_that_is_not_there_in_time_is_a_timeout(grpc_provider: GrpcProvider):
    with library("grpc").insecure_channel(f"127.0.0.1:{grpc_provider.port}") as channel:
        future = channel.unary_unary(f"/{SERVICE}/Silent").future(b"", timeout=LONG)
        error = escaped(lambda: future.result(timeout=SHORT))
        future.cancel()
    assert (type(error).__name__, code_of(error)) == ("FutureTimeoutError", TIMEOUT)


def test_a_channel_that_does_not_get_ready_in_time_is_a_timeout(provider: StallingProvider):
    grpc = library("grpc")
    with grpc.insecure_channel(f"127.0.0.1:{provider.port(Fault.REFUSED)}") as channel:
        ready = grpc.channel_ready_future(channel)
        error = escaped(lambda: ready.result(timeout=SHORT))
        ready.cancel()
    assert code_of(error) is TIMEOUT


def test_a_server_that_goes_away_in_mid_stream_is_a_transport_error():
    with GrpcProvider() as own, library("grpc").insecure_channel(f"127.0.0.1:{own.port}") as channel:
        words = channel.unary_stream(f"/{SERVICE}/Stall")(b"", timeout=LONG)
        assert next(words) == b"first"
        own.vanish()
        error = escaped(lambda: list(words))
    assert (error.code().name, code_of(error)) == ("UNAVAILABLE", ERROR)


@CALLS
def test_a_whole_stream_is_no_failure(call: Callable[..., None], grpc_provider: GrpcProvider):
    call(f"127.0.0.1:{grpc_provider.port}", "Whole", LONG)
