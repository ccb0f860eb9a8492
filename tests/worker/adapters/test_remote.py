"""Any AG-UI endpoint as an agent: its events, its faults, and a stop that reaches it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shared.protocol.events import Event
from shared.runs.outcome import FailureCode, Outcome, StopCause
from shared.settings import Settings
from shared.store.store import Store
from tests.openai_endpoint import Answer, Cut, Drip, Endpoint, Reset, Stall, silent, streamed
from tests.stalling_provider import Fault, StallingProvider
from tests.worker.adapters.upstream import (
    CI_FACTOR,
    CLOSED,
    FINISHED,
    GOAL_SECONDS,
    HELLO,
    OPENED,
    STARTED,
    WHOLE,
    close_resources,
    closing,
    frame,
    seconds_to_the_upstream,
    until,
)
from worker.agents.entries import entry_for
from worker.agents.remote import remote
from worker.agents.testing import record, recorded_context, run_input
from worker.cancellation import CancellationToken
from worker.failures import classify


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint([streamed(*WHOLE)]) as started:
        yield started


def url_of(endpoint: Endpoint) -> str:
    return f"{endpoint.base_url}/agent"


def run(endpoint: Endpoint, **options: Any) -> list[Event]:
    return record(closing(remote(url_of(endpoint), **options)), run_input("hi"))


def failure(url: str, **options: Any) -> Outcome:
    """How a run fails, as a worker would record it."""
    ctx, _ = recorded_context(run_input("hi"))
    with pytest.raises(Exception) as caught:  # noqa: PT011 - its classification is what is asserted
        asyncio.run(entry_for("far", closing(remote(url, **options))).run(ctx))
    return classify(caught.value)


def code(endpoint: Endpoint, answer: Answer, **options: Any) -> FailureCode | None:
    endpoint.answers = [answer]
    return failure(url_of(endpoint), **options).code


# What it says and hears


def test_its_events_are_the_runs_under_the_runs_own_ids(endpoint: Endpoint):
    events = run(endpoint)
    assert [event.type.value for event in events] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert {events[0].run_id, events[-1].run_id} == {"run"}


def test_it_is_sent_the_input_as_an_ag_ui_client_sends_it(endpoint: Endpoint):
    given = run_input("hi", state={"a": 1}, forwardedProps={"b": 2}, later="kept")
    record(closing(remote(url_of(endpoint))), given)
    seen = endpoint.requests[0]
    assert (seen.path, seen.headers["accept"]) == ("/v1/agent", "text/event-stream")
    assert seen.headers["content-type"] == "application/json"
    assert (seen.body["runId"], seen.body["messages"][0]["content"]) == ("run", "hi")
    assert (seen.body["state"], seen.body["forwardedProps"], seen.body["later"]) == (
        {"a": 1},
        {"b": 2},
        "kept",
    )


def test_headers_are_given_by_value_or_made_for_each_request(endpoint: Endpoint):
    tokens = iter(["one", "two"])

    async def fresh() -> dict[str, str]:
        return {"Authorization": f"Bearer {next(tokens)}"}

    for headers in ({"x-key": "plain"}, lambda: {"x-key": "made"}, fresh, fresh):
        run(endpoint, headers=headers)
    told = [(seen.headers.get("x-key"), seen.headers.get("authorization")) for seen in endpoint.requests]
    assert told == [("plain", None), ("made", None), (None, "Bearer one"), (None, "Bearer two")]


def test_the_form_of_the_request_is_not_the_headers_to_change(endpoint: Endpoint):
    run(endpoint, headers={"Accept": "application/json", "Content-Type": "text/plain"})
    assert endpoint.requests[0].headers["accept"] == "text/event-stream"
    assert endpoint.requests[0].headers["content-type"] == "application/json"


def test_one_runs_cookies_are_not_the_next_ones(endpoint: Endpoint):
    agent = remote(url_of(endpoint))
    endpoint.answers = [Answer(WHOLE, headers=(("Set-Cookie", "session=alice"),))]

    async def twice() -> None:
        first, _ = recorded_context(run_input("hi"))
        second, _ = recorded_context(run_input("hi"))
        second._resources = first.resources
        for ctx in (first, second):
            await entry_for("far", agent).run(ctx)
        await close_resources(first)

    asyncio.run(twice())
    assert len(endpoint.requests) == 2
    assert "cookie" not in endpoint.requests[1].headers
    # The body was read to its end, so that one connection served both.
    assert endpoint.connections == 1


def test_two_actors_threads_of_one_name_are_two_threads_there(endpoint: Endpoint):
    agent = remote(url_of(endpoint))

    async def as_actor(actor: str) -> None:
        ctx, _events = recorded_context(run_input("hi", thread_id="t1"))
        ctx.actor = actor
        await entry_for("far", agent).run(ctx)
        await close_resources(ctx)

    for actor in ("alice", "bob", "alice"):
        asyncio.run(as_actor(actor))
    first, second, third = (seen.body["threadId"] for seen in endpoint.requests)
    assert first == third != second
    assert "alice" not in first


def test_comments_any_line_end_and_a_character_cut_in_two_are_read(endpoint: Endpoint):
    said = frame("TEXT_MESSAGE_CONTENT", messageId="m1", delta="x").replace(b"x", "é\u2028".encode())
    cut = said.index("é".encode()) + 1
    crlf = (b": hello\n\n" + STARTED + OPENED).replace(b"\n", b"\r\n")
    endpoint.answers = [streamed(b"\xef\xbb\xbf", crlf, said[:cut], said[cut:], CLOSED + FINISHED)]
    assert run(endpoint)[2].delta == "é\u2028"


def test_an_event_type_of_a_later_protocol_is_left_out(endpoint: Endpoint):
    endpoint.answers = [streamed(STARTED, frame("NEXT_YEARS_EVENT", a=1), OPENED, CLOSED, FINISHED)]
    assert len(run(endpoint)) == 4


def test_what_it_says_after_its_terminal_event_is_not_heard(endpoint: Endpoint):
    endpoint.answers = [streamed(*WHOLE, OPENED, b"data: [DONE]\n\n")]
    assert run(endpoint)[-1].outcome.type == "success"


def test_it_may_pause_the_run(endpoint: Endpoint):
    asked = {"type": "interrupt", "interrupts": [{"id": "i1", "reason": "confirm"}]}
    endpoint.answers = [streamed(STARTED, frame("RUN_FINISHED", threadId="t", runId="r", outcome=asked))]
    assert run(endpoint)[-1].outcome.interrupts[0].id == "i1"


# Its faults


@pytest.mark.parametrize("status", [201, 302, 400, 401, 404, 429, 500, 503, 504])
def test_a_refusal_is_a_provider_error_with_its_status(endpoint: Endpoint, status: int):
    endpoint.answers = [Answer((b'{"why":"because"}',), status=status, content_type="application/json")]
    failed = failure(url_of(endpoint))
    assert failed.code == "provider_error"
    assert failed.detail is not None
    assert f"status {status}" in failed.detail
    assert "because" in failed.detail
    assert "because" not in (failed.message or "")


def test_a_redirect_is_not_followed(endpoint: Endpoint):
    endpoint.answers = [Answer((), status=307, headers=(("Location", "/v1/elsewhere"),)), streamed(*WHOLE)]
    assert (
        failure(url_of(endpoint), headers={"Authorization": "Bearer secret-token"}).code == "provider_error"
    )
    assert len(endpoint.requests) == 1


def test_a_page_is_no_stream(endpoint: Endpoint):
    assert code(endpoint, Answer((b"<html>",), content_type="text/html")) == "provider_error"


def test_a_refusal_that_repeats_our_credentials_shows_them_to_nobody(endpoint: Endpoint):
    endpoint.answers = [Answer((b"no: Bearer secret-token",), status=401, content_type="text/plain")]
    failed = failure(url_of(endpoint), headers={"Authorization": "Bearer secret-token"})
    assert "secret-token" not in (failed.detail or "")


@pytest.mark.parametrize(
    "answer", [silent(Stall()), streamed(STARTED, OPENED, Stall())], ids=["before", "during"]
)
def test_silence_is_a_transport_timeout(endpoint: Endpoint, answer: Answer):
    assert code(endpoint, answer, timeout=0.2) == "transport_timeout"


def test_comments_are_signs_of_life(endpoint: Endpoint):
    endpoint.answers = [streamed(STARTED, Drip(0.02))]
    started = time.monotonic()

    async def agent() -> None:
        ctx, _ = recorded_context(run_input("hi"))
        async with asyncio.timeout(1):
            await entry_for("far", closing(remote(url_of(endpoint), timeout=0.3))).run(ctx)

    with pytest.raises(TimeoutError):
        asyncio.run(agent())
    assert time.monotonic() - started >= 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(silent(Reset()), id="reset before"),
        pytest.param(streamed(STARTED, OPENED, Reset()), id="reset during"),
        pytest.param(streamed(STARTED, OPENED, Cut()), id="closed in mid-body"),
        pytest.param(streamed(STARTED, OPENED, HELLO, CLOSED), id="ended without a terminal event"),
        pytest.param(streamed(STARTED, FINISHED[:-1]), id="ended inside its terminal event"),
        pytest.param(streamed(), id="nothing"),
    ],
)
def test_a_stream_that_breaks_off_is_a_transport_error(endpoint: Endpoint, answer: Answer):
    assert code(endpoint, answer) == "transport_error"


def test_an_endpoint_that_is_not_there_is_a_transport_error():
    with StallingProvider() as nowhere:
        assert failure(nowhere.url(Fault.REFUSED)).code == "transport_error"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param(HELLO, "PROTOCOL_VIOLATION", id="content of a message that is not open"),
        pytest.param(OPENED + FINISHED, "PROTOCOL_VIOLATION", id="finished with a message open"),
        pytest.param(frame("TEXT_MESSAGE_START"), "PROTOCOL", id="a member is missing"),
        pytest.param(b"data: [DONE]\n\n", "PROTOCOL", id="not JSON"),
        pytest.param(b'data: {"a":1}\n\n', "PROTOCOL", id="no type"),
    ],
)
def test_what_the_protocol_does_not_allow_is_told_apart(endpoint: Endpoint, said: bytes, expected: str):
    endpoint.answers = [streamed(STARTED, said)]
    assert run(endpoint)[-1].code == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [("transport_timeout", "transport_timeout"), ("worker_lost", "AGENT_ERROR"), (None, "AGENT_ERROR")],
)
def test_its_run_error_fails_the_run_with_a_code_that_it_may_claim(
    endpoint: Endpoint, said: str | None, expected: str
):
    members = {"message": "key=secret"} | ({"code": said} if said else {})
    endpoint.answers = [streamed(STARTED, OPENED, frame("RUN_ERROR", **members))]
    ending = run(endpoint)[-1]
    assert ending.code == expected
    assert "secret" not in ending.message


def test_a_cancel_that_nobody_here_asked_for_is_a_failure(endpoint: Endpoint):
    ended = frame("RUN_FINISHED", threadId="t", runId="r", outcome={"type": "cancelled"})
    assert code(endpoint, streamed(STARTED, ended)) == "AGENT_ERROR"


@pytest.mark.parametrize("url", ["", "ftp://there/agent", "there", "http://"])
def test_an_address_that_is_none_is_refused_at_once(url: str):
    with pytest.raises(ValueError, match=r"remote\(\)"):
        remote(url)


def test_a_description_names_no_address():
    assert "there" not in (entry_for("far", remote("https://there.internal/agent")).description or "")


def test_a_description_of_its_own_is_told():
    told = entry_for(
        "far", remote("https://there.internal/agent", description="Knows the manual.")
    ).description
    assert told == "Knows the manual."


# Stops


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(silent(Stall()), None, id="before the first byte"),
        pytest.param(streamed(STARTED, OPENED, HELLO, Stall()), "TEXT_MESSAGE_CONTENT", id="in mid-message"),
        pytest.param(
            streamed(STARTED, OPENED, HELLO, Drip(0.02)), "TEXT_MESSAGE_CONTENT", id="between comments"
        ),
    ],
)
def test_a_cancel_closes_the_connection_at_once(
    settings: Settings, store: Store, endpoint: Endpoint, answer: Answer, said: str | None
):
    endpoint.answers = [answer]
    agent = remote(url_of(endpoint), timeout=30)
    assert seconds_to_the_upstream(settings, store, agent, endpoint, said) < GOAL_SECONDS * CI_FACTOR


def test_a_cancel_is_told_to_an_endpoint_that_goes_on_without_a_client(
    endpoint: Endpoint,
):
    stop = f"{endpoint.base_url}/threads/{{threadId}}/runs/{{runId}}/cancel"
    endpoint.answers = [streamed(STARTED, OPENED, HELLO, Stall())]
    token = CancellationToken()
    agent = remote(url_of(endpoint), cancel_url=stop, headers={"x-key": "ours"}, share_threads=True)

    async def scenario() -> None:
        ctx, events = recorded_context(run_input("hi", thread_id="a/b", run_id="r 1"), token=token)
        task = asyncio.create_task(entry_for("far", agent).run(ctx))
        await until(lambda: len(events) == 3)
        endpoint.answers = [Answer((b"{}",), status=202, content_type="application/json")]
        token.trip(StopCause.CLIENT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: len(endpoint.requests) == 2 and not agent._telling)
        await close_resources(ctx)

    asyncio.run(scenario())
    told = endpoint.requests[1]
    assert told.path == "/v1/threads/a%2Fb/runs/r%201/cancel"
    assert told.headers["x-key"] == "ours"


@pytest.mark.parametrize("cause", [None, StopCause.LOST])
def test_an_endpoint_is_told_nothing_when_nobody_wants_the_stop(endpoint: Endpoint, cause: StopCause | None):
    endpoint.answers = [streamed(STARTED, OPENED, HELLO, Cut() if cause is None else Stall())]
    token = CancellationToken()
    agent = remote(url_of(endpoint), cancel_url=f"{endpoint.base_url}/cancel")

    async def scenario() -> None:
        ctx, events = recorded_context(run_input("hi"), token=token)
        task = asyncio.create_task(entry_for("far", agent).run(ctx))
        await until(lambda: len(events) == 3)
        if cause is not None:
            token.trip(cause)
            task.cancel()
        await asyncio.wait({task}, timeout=5)
        assert task.cancelled() or task.exception()
        assert not agent._telling
        await close_resources(ctx)

    asyncio.run(scenario())
    assert len(endpoint.requests) == 1
