"""Every client library, every way to fail: what escapes, and which code the run gets for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from shared.runs.outcome import SENTENCES, FailureCode
from tests.stalling_provider import Fault, StallingProvider
from tests.worker.providers.dialects import SECRET
from tests.worker.providers.http_clients import HTTP_CLIENTS, Client, asked
from tests.worker.providers.rows import CASES, LONG, SEEN, SHORT, TABLE, UNKNOWN_NAME
from tests.worker.providers.sdk_clients import SDK_CLIENTS
from worker.failures import classify
from worker.transports import package_of

CLIENTS: dict[str, Client] = {**HTTP_CLIENTS, **SDK_CLIENTS}


def escaped(client: str, case: str, provider: StallingProvider) -> BaseException:
    told = CASES[case]
    url = provider.url(told.fault, told.scheme) if told.fault else f"http://{UNKNOWN_NAME}:9"
    try:
        read = asked(CLIENTS[client], url, told.seconds, told.body)
    except pytest.skip.Exception:
        raise
    except BaseException as error:  # noqa: BLE001 - the subject of these tests
        return error
    raise AssertionError(f"nothing escaped: {read!r}")


@cache
def timeouts_of(client: str, provider: StallingProvider) -> dict[str, BaseException]:
    """What escapes the client's timeouts, which run out all at once: one by one they take a minute."""
    cases = [case for name, case, _ in TABLE if name == client and CASES[case].seconds == SHORT]
    with ThreadPoolExecutor(len(cases)) as pool:
        return dict(zip(cases, pool.map(lambda case: escaped(client, case, provider), cases), strict=True))


def name_of(error: BaseException) -> str:
    return f"{package_of(type(error).__module__)}.{type(error).__name__}"


@pytest.mark.parametrize(("client", "case", "kind"), TABLE)
def test_every_client_and_fault_gives_its_code(client: str, case: str, kind: str, provider: StallingProvider):
    told = CASES[case]
    timeouts = timeouts_of(client, provider) if told.seconds == SHORT else {}
    error = timeouts.get(case) or escaped(client, case, provider)
    outcome = classify(error)
    assert (outcome.code, name_of(error)) == (told.code, kind), repr(error)
    assert outcome.message == SENTENCES[told.code]
    if told.code is FailureCode.PROVIDER_ERROR:
        assert SECRET not in outcome.message
        if case.isdigit():
            assert (outcome.detail or "").startswith(f"provider status {case}\n")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_whole_answer_is_no_failure(client: str, provider: StallingProvider):
    assert asked(CLIENTS[client], provider.url(Fault.NONE), LONG) in {None, "Hello from the provider"}


@pytest.mark.parametrize("client", [name for name in SDK_CLIENTS if name != "boto3 converse"])
def test_no_sdk_notices_a_stream_that_ends_in_order_without_its_end(client: str, provider: StallingProvider):
    assert asked(CLIENTS[client], provider.url(Fault.NO_END), LONG) == "Hello"


def test_every_client_stands_in_the_table():
    assert list(SEEN) == list(CLIENTS)


def test_what_is_left_out_is_left_out_on_purpose():
    reasons = {
        "error-event": set(HTTP_CLIENTS) | {"boto3 converse"},  # there are no events in there
        "write": {"aiohttp sock_connect, sock_read", "openai async, aiohttp"},  # nothing bounds it
    }
    for status in ("408", "429", "503", "504", "524"):  # which raise nothing there
        reasons[status] = {"urllib3, retries=False", "urllib3, Retry(1)", "http.client"}
    listed = {(client, case) for client, case, _ in TABLE}
    missing = {(client, case) for client in CLIENTS for case in CASES} - listed
    assert missing == {(client, case) for case, clients in reasons.items() for client in clients}
    assert len(listed) == len(TABLE)
