from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx2
import openai
import pytest

from shared.protocol.events import Event, EventType, RunAgentInput
from shared.runs.outcome import FailureCode, Outcome, StopCause
from shared.settings import Settings
from tests.openai_endpoint import (
    DONE,
    USAGE,
    Answer,
    Cut,
    Drip,
    Endpoint,
    Reset,
    Stall,
    call,
    chunk,
    complete,
    failing,
    finish,
    silent,
    streamed,
    text,
)
from worker.agents.chat_agent import Chat, make_chat
from worker.agents.chat_wire import pause_before_repeat
from worker.agents.testing import record, recorded_context, run_input
from worker.cancellation import CancellationToken, Cancelled
from worker.context import RunContext
from worker.failures import classify
from worker.resources import Resources

KEY = "plain-words-key"


@pytest.fixture(scope="module")
def tls() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tls: ssl.SSLContext) -> None:
    # The certificates of the machine, read once for all tests.
    monkeypatch.setattr(httpx2, "create_ssl_context", lambda: tls)


def chat_at(endpoint: Endpoint, **members: Any) -> Chat:
    given = {"chat_base_url": endpoint.base_url, "chat_api_key": KEY, "chat_timeout_seconds": 5.0, **members}
    return make_chat(Settings(chat_model="small-1", **given))


def closing(chat: Chat) -> Callable[[RunContext], Any]:
    """The agent for a loop that ends with the run."""

    async def agent(ctx: RunContext) -> None:
        try:
            await chat(ctx)
        finally:
            await asyncio.to_thread(ctx.resources.close)

    return agent


def sharing(resources: Resources, ctx: RunContext) -> RunContext:
    """The same run as one of several of a process."""
    return RunContext(ctx.input, sink=ctx.sink, token=ctx.token, resources=resources)


def run(endpoint: Endpoint, given: RunAgentInput | None = None, **members: Any) -> list[Event]:
    return record(closing(chat_at(endpoint, **members)), given or run_input("hello"))


def failure(endpoint: Endpoint, **members: Any) -> Outcome:
    """How a run fails, as a worker would record it."""
    ctx, _ = recorded_context(run_input("hello"))
    with pytest.raises(Exception) as caught:  # noqa: PT011 - its classification is what is asserted
        asyncio.run(closing(chat_at(endpoint, **members))(ctx))
    return classify(caught.value)


def brief(events: list[Event]) -> list[str]:
    """The events between the first and the last one: the type, and what it says."""
    said = []
    for event in events[1:-1]:
        what = next(
            (
                str(value)
                for name in ("delta", "tool_call_name", "value")
                if (value := getattr(event, name, None))
            ),
            "",
        )
        said.append(f"{event.type.value} {what}".strip())
    return said


def members(event: Event) -> dict[str, Any]:
    return event.model_dump(mode="json", by_alias=True, exclude_none=True)


def test_an_answer_is_streamed_as_one_message(endpoint: Endpoint) -> None:
    endpoint.answers = [complete(text("Hel"), text("lo"), finish())]
    events = run(endpoint)
    assert brief(events) == [
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT Hel",
        "TEXT_MESSAGE_CONTENT lo",
        "TEXT_MESSAGE_END",
    ]
    assert members(events[-1])["outcome"] == {"type": "success"}


def test_the_request_carries_key_model_and_conversation(endpoint: Endpoint) -> None:
    endpoint.answers = [complete(finish())]
    run(endpoint)
    (seen,) = endpoint.requests
    assert seen.path == "/v1/chat/completions"
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.body["model"] == "small-1"
    assert seen.body["messages"] == [{"role": "user", "content": "hello"}]


def test_without_a_key_none_is_sent(endpoint: Endpoint) -> None:
    endpoint.answers = [complete(finish())]
    run(endpoint, chat_api_key=None)
    assert "authorization" not in endpoint.requests[0].headers


def test_a_query_in_the_base_address_stays(endpoint: Endpoint) -> None:
    endpoint.answers = [complete(finish())]
    run(endpoint, chat_base_url=endpoint.base_url + "/?api-version=7")
    assert endpoint.requests[0].path == "/v1/chat/completions?api-version=7"


def test_usage_is_reported_with_the_ending(endpoint: Endpoint) -> None:
    endpoint.answers = [complete(text("hi"), finish())]
    assert members(run(endpoint)[-1])["usage"] == [
        {
            "model": "stub-1",
            "inputTokens": 11,
            "outputTokens": 7,
            "totalTokens": 18,
            "cachedInputTokens": 3,
            "reasoningTokens": 2,
        }
    ]


def test_usage_that_counts_up_in_every_chunk_is_counted_once(endpoint: Endpoint) -> None:
    first = chunk({"content": "hi"}, usage={"completion_tokens": 1})
    endpoint.answers = [streamed(first, finish(), USAGE, DONE)]
    assert [usage["outputTokens"] for usage in members(run(endpoint)[-1])["usage"]] == [7]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_comes_before_the_text_as_a_block_of_its_own(endpoint: Endpoint, name: str) -> None:
    endpoint.answers = [complete(chunk({name: "hm"}), chunk({name: "m"}), text("yes"), finish())]
    assert brief(run(endpoint)) == [
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT hm",
        "REASONING_MESSAGE_CONTENT m",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT yes",
        "TEXT_MESSAGE_END",
    ]


def test_a_refusal_of_the_model_is_text(endpoint: Endpoint) -> None:
    endpoint.answers = [complete(chunk({"refusal": "I will not"}), finish())]
    assert "TEXT_MESSAGE_CONTENT I will not" in brief(run(endpoint))


def test_a_tool_call_in_fragments_is_left_to_the_client(endpoint: Endpoint) -> None:
    endpoint.answers = [
        complete(
            text("Looking."),
            call(0, "", "call_abc", "look"),
            call(0, '{"q":'),
            call(0, '"x"}'),
            finish("tool_calls"),
        )
    ]
    events = run(endpoint)
    assert brief(events)[3:] == [
        "TOOL_CALL_START look",
        'TOOL_CALL_ARGS {"q":',
        'TOOL_CALL_ARGS "x"}',
        "TOOL_CALL_END",
    ]
    start = members(events[4])
    assert (start["toolCallId"], start["parentMessageId"]) == ("call_abc", members(events[1])["messageId"])
    assert members(events[-1])["outcome"] == {"type": "success", "pendingToolCallIds": ["call_abc"]}


def arguments_of(events: list[Event]) -> dict[str, str]:
    """The arguments of each call, and a check that no two calls are open at once."""
    texts: dict[str, str] = {}
    unfinished = None
    for event in events:
        match event.type:
            case EventType.TOOL_CALL_START:
                assert unfinished is None
                unfinished = event.tool_call_id
                texts[unfinished] = ""
            case EventType.TOOL_CALL_ARGS:
                assert event.tool_call_id == unfinished
                texts[unfinished] += event.delta
            case EventType.TOOL_CALL_END:
                unfinished = None
            case _:
                pass
    return texts


@pytest.mark.parametrize(
    "fragments",
    [
        pytest.param(
            [
                call(0, "", "a", "look"),
                call(0, '{"q":1}'),
                call(1, "", "b", "find"),
                call(1, '{"q":'),
                call(1, "2}"),
            ],
            id="one after the other",
        ),
        pytest.param(
            [
                call(0, "", "a", "look"),
                call(1, '{"q"', "b", "find"),
                call(0, '{"q":'),
                call(1, ":2}"),
                call(0, "1}"),
            ],
            id="interleaved",
        ),
        pytest.param(
            [call(0, '{"q":1}', "a", "look"), call(0, '{"q":2}', "b", "find")], id="all with index 0"
        ),
        pytest.param(
            [call(None, '{"q":', "a", "look"), call(None, "1}"), call(None, '{"q":2}', "b", "find")],
            id="without index",
        ),
        pytest.param(
            [call(0, '{"q":', "a", "look"), call(0, "1}", "a", "look"), call(1, '{"q":2}', "b", "find")],
            id="id and name in every fragment",
        ),
    ],
)
def test_parallel_tool_calls_are_kept_apart(endpoint: Endpoint, fragments: list[bytes]) -> None:
    endpoint.answers = [complete(*fragments, finish("tool_calls"))]
    events = run(endpoint)
    assert arguments_of(events) == {"a": '{"q":1}', "b": '{"q":2}'}
    parents = {event.parent_message_id for event in events if event.type is EventType.TOOL_CALL_START}
    assert len(parents) == 1
    assert members(events[-1])["outcome"]["pendingToolCallIds"] == ["a", "b"]


def test_the_second_of_two_calls_streams_before_the_answer_is_over(endpoint: Endpoint) -> None:
    endpoint.answers = [
        streamed(call(0, "{}", "a", "look"), call(1, '{"q":', "b", "find"), call(1, "1"), Stall())
    ]
    events = run(endpoint, chat_timeout_seconds=0.3)
    assert arguments_of(events) == {"a": "{}", "b": '{"q":1'}


def test_text_behind_a_tool_call_is_said_after_it(endpoint: Endpoint) -> None:
    endpoint.answers = [
        complete(call(0, '{"a"', "a", "look"), text("so"), call(0, ":1}"), finish("tool_calls"))
    ]
    assert brief(run(endpoint)) == [
        "TOOL_CALL_START look",
        'TOOL_CALL_ARGS {"a"',
        "TOOL_CALL_ARGS :1}",
        "TOOL_CALL_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT so",
        "TEXT_MESSAGE_END",
    ]


def test_a_tool_call_without_arguments_gets_an_empty_object(endpoint: Endpoint) -> None:
    endpoint.answers = [complete(call(0, "", "a", "look"), finish("tool_calls"))]
    assert arguments_of(run(endpoint)) == {"a": "{}"}


def test_a_call_id_that_the_conversation_has_already_is_replaced(endpoint: Endpoint) -> None:
    earlier = {"id": "call_0", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    history = [
        {"id": "m1", "role": "assistant", "toolCalls": [earlier]},
        {"id": "m2", "role": "tool", "toolCallId": "call_0", "content": "x"},
    ]
    endpoint.answers = [complete(call(0, "{}", "call_0", "look"), finish("tool_calls"))]
    assert list(arguments_of(run(endpoint, run_input("again", messages=history)))) == ["run-call-1"]


def test_a_text_that_reached_the_limit_stands_and_says_so(endpoint: Endpoint) -> None:
    endpoint.answers = [complete(text("lon"), finish("length"))]
    events = run(endpoint)
    assert brief(events)[-1] == "CUSTOM length"
    assert events[-1].type is EventType.RUN_FINISHED


def test_a_tool_call_that_reached_the_limit_fails_the_run(endpoint: Endpoint) -> None:
    endpoint.answers = [complete(call(0, '{"path": "/"', "a", "delete"), finish("length"))]
    ending = members(run(endpoint)[-1])
    assert (ending["type"], ending["code"]) == ("RUN_ERROR", "AGENT_ERROR")
    assert "length limit" in ending["message"]


def test_an_answer_that_the_provider_withheld_fails_the_run(endpoint: Endpoint) -> None:
    endpoint.answers = [complete(text("The"), finish("content_filter"))]
    events = run(endpoint)
    assert "TEXT_MESSAGE_CONTENT The" in brief(events)
    assert "content filter" in members(events[-1])["message"]


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        pytest.param((text("a"),), "transport_error", id="neither reason nor mark"),
        pytest.param((), "transport_error", id="nothing at all"),
        pytest.param((text("a"), b"data: {"), "transport_error", id="a cut event"),
        pytest.param((text("a"), Cut()), "transport_error", id="cut in the body"),
        pytest.param((text("a"), Reset()), "transport_error", id="reset"),
        pytest.param((text("a"), b"data: nonsense\n\n"), "transport_error", id="no JSON"),
        pytest.param((call(0, "{}", "a"), finish()), "transport_error", id="a call without a name"),
        pytest.param((text("a"), Stall()), "transport_timeout", id="stall after a chunk"),
        pytest.param((Stall(),), "transport_timeout", id="stall after the status"),
        pytest.param(
            (text("a"), b'data: {"error": {"message": "overloaded"}}\n\n'),
            "provider_error",
            id="an error inside",
        ),
    ],
)
def test_an_answer_that_goes_wrong_fails_by_what_went_wrong(
    endpoint: Endpoint, steps: tuple[Any, ...], code: str
) -> None:
    endpoint.answers = [streamed(*steps)]
    events = run(endpoint, chat_timeout_seconds=0.3)
    assert members(events[-1])["code"] == code
    if steps and steps[0] == text("a"):
        assert "TEXT_MESSAGE_CONTENT a" in brief(events)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((DONE,), id="the mark without a reason"),
        pytest.param((finish(),), id="a reason without the mark"),
        pytest.param((finish(), Cut()), id="the tail is cut"),
        pytest.param((finish(), Stall()), id="the tail never comes"),
        pytest.param((finish(), DONE, Stall()), id="the connection stays open"),
    ],
)
def test_a_whole_answer_is_a_success_whatever_happens_to_its_tail(
    endpoint: Endpoint, steps: tuple[Any, ...]
) -> None:
    endpoint.answers = [streamed(text("a"), *steps)]
    assert members(run(endpoint, chat_timeout_seconds=1)[-1])["outcome"] == {"type": "success"}


@pytest.mark.parametrize(("step", "code"), [(Stall(), "transport_timeout"), (Reset(), "transport_error")])
def test_a_fault_before_the_first_byte_is_the_transports(endpoint: Endpoint, step: Any, code: str) -> None:
    endpoint.answers = [silent(step)]
    assert members(run(endpoint, chat_timeout_seconds=0.3)[-1])["code"] == code


def test_a_provider_that_is_not_there_is_a_transport_error() -> None:
    with Endpoint() as gone:
        pass
    assert failure(gone).code is FailureCode.TRANSPORT_ERROR


@pytest.mark.parametrize("status", [401, 408, 429, 500, 504, 524])
def test_an_error_status_is_the_providers_and_its_body_is_for_operators(
    endpoint: Endpoint, status: int
) -> None:
    body = json.dumps(
        {"error": {"message": f"timeout: {KEY} sk-live-0123456789abcdef refused", "id": "req_9"}}
    )
    endpoint.answers = [failing(status, body)]
    outcome = failure(endpoint)
    assert outcome.code is FailureCode.PROVIDER_ERROR
    assert outcome.message == "The model provider answered with an error."
    assert outcome.detail is not None
    assert f"provider status {status}" in outcome.detail
    assert "req_9" in outcome.detail
    assert KEY not in outcome.detail
    assert "0123456789abcdef" not in outcome.detail


def test_an_error_inside_an_answer_is_sanitised_too(endpoint: Endpoint) -> None:
    inside = json.dumps({"error": {"message": f"{KEY} is out of credit", "id": "req_9"}})
    endpoint.answers = [streamed(b"data: " + inside.encode() + b"\n\n")]
    outcome = failure(endpoint)
    assert "req_9" in (outcome.detail or "")
    assert KEY not in (outcome.detail or "")


def test_making_a_client_reads_no_certificates_on_the_loop(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.answers = [complete(text("hi"), finish())]
    chat = chat_at(endpoint)
    monkeypatch.setattr("ssl.SSLContext.load_verify_locations", None)
    assert record(closing(chat), run_input("hello"))[-1].type is EventType.RUN_FINISHED


def test_an_endless_error_body_is_cut(endpoint: Endpoint) -> None:
    endpoint.answers = [Answer((b"x " * 40_000, Stall()), status=500)]
    outcome = failure(endpoint)
    assert outcome.code is FailureCode.PROVIDER_ERROR
    assert len(outcome.detail or "") < 8192


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/json"])
def test_a_page_in_place_of_a_stream_is_the_providers_error(endpoint: Endpoint, kind: str) -> None:
    endpoint.answers = [Answer((b"<h1>hello</h1>",), content_type=kind)]
    assert failure(endpoint).code is FailureCode.PROVIDER_ERROR


def test_a_redirect_is_not_followed_with_the_key(endpoint: Endpoint) -> None:
    endpoint.answers = [failing(307, "", ("Location", endpoint.base_url + "/elsewhere"))]
    assert failure(endpoint).code is FailureCode.PROVIDER_ERROR
    assert len(endpoint.requests) == 1


GOOD = complete(text("hi"), finish())


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(silent(Reset()), id="reset"),
        pytest.param(silent(Stall()), id="stall"),
        pytest.param(streamed(), id="an empty body"),
        pytest.param(failing(429, "{}", ("Retry-After", "0")), id="429"),
        pytest.param(failing(503, "{}", ("Retry-After", "0")), id="503"),
    ],
)
def test_what_fails_before_the_first_byte_is_repeated_as_often_as_set(
    endpoint: Endpoint, bad: Answer
) -> None:
    endpoint.answers = [bad, GOOD]
    events = run(endpoint, chat_max_retries=1, chat_timeout_seconds=1)
    assert members(events[-1])["outcome"] == {"type": "success"}
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize("bad", [silent(Reset()), silent(Stall()), failing(503, "{}")])
def test_nothing_is_repeated_unless_set(endpoint: Endpoint, bad: Answer) -> None:
    endpoint.answers = [bad]
    assert run(endpoint, chat_timeout_seconds=0.3)[-1].type is EventType.RUN_ERROR
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(failing(401, "{}"), id="401"),
        pytest.param(streamed(text("a"), Cut()), id="after the first byte"),
        pytest.param(failing(429, "{}", ("Retry-After", "3600")), id="come back in an hour"),
    ],
)
def test_what_a_repeat_cannot_mend_is_not_repeated(endpoint: Endpoint, bad: Answer) -> None:
    endpoint.answers = [bad]
    assert run(endpoint, chat_max_retries=3)[-1].type is EventType.RUN_ERROR
    assert len(endpoint.requests) == 1


def test_the_last_failure_is_the_one_that_is_reported(endpoint: Endpoint) -> None:
    endpoint.answers = [silent(Reset()), failing(503, "{}")]
    assert failure(endpoint, chat_max_retries=1).code is FailureCode.PROVIDER_ERROR


def test_pauses_before_repeats_double_up_to_a_bound() -> None:
    pauses = [pause_before_repeat(httpx2.ReadError("x"), attempt) for attempt in (1, 2, 3, 9)]
    assert all(
        low <= (pause or 0) <= high
        for pause, (low, high) in zip(pauses, [(0.37, 0.5), (0.75, 1), (1.5, 2), (6, 8)], strict=True)
    )


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110 - the condition lies in another thread
        await asyncio.sleep(0.005)


async def _stopped(chat: Chat, endpoint: Endpoint, ready: Callable[[list[Event]], bool]) -> tuple[float, str]:
    """Trips the token from another thread once ``ready``.

    Returns the seconds until the provider saw the client leave, and what ended the agent.
    """
    token = CancellationToken()
    ctx, events = recorded_context(run_input("hello"), token=token)
    task = asyncio.create_task(chat(ctx))
    try:
        async with asyncio.timeout(5):
            await until(lambda: endpoint.requests and ready(events))
            tripped_at = time.monotonic()
            threading.Thread(target=token.trip, args=(StopCause.CLIENT,)).start()
            seen = endpoint.requests[-1]
            await asyncio.to_thread(seen.client_gone.wait, 3)
            with pytest.raises(Cancelled) as caught:
                await task
        assert token.delivered
        return (seen.gone_at or tripped_at + 99) - tripped_at, type(caught.value).__name__
    finally:
        task.cancel()
        await asyncio.to_thread(ctx.resources.close)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(silent(Stall()), id="before the first byte"),
        pytest.param(streamed(text("a"), Stall()), id="after a chunk"),
        pytest.param(streamed(text("a"), Drip(0.02)), id="between keep-alive comments"),
    ],
)
def test_a_cancel_closes_the_providers_connection_at_once(endpoint: Endpoint, answer: Answer) -> None:
    endpoint.answers = [answer]
    said = 1 if answer.status == 0 else 3

    def stopped() -> tuple[float, str]:
        chat = chat_at(endpoint, chat_timeout_seconds=30)
        return asyncio.run(_stopped(chat, endpoint, lambda events: len(events) >= said))

    tries = [stopped() for _ in range(3)]
    assert {ended_by for _, ended_by in tries} == {"Cancelled"}
    # The best of three: the machine that tests run on may be busy.
    assert min(seconds for seconds, _ in tries) < 0.2


def test_a_cancel_between_two_attempts_asks_nobody_again(endpoint: Endpoint) -> None:
    endpoint.answers = [failing(429, "{}", ("Retry-After", "20"))]
    token = CancellationToken()

    async def scenario() -> None:
        chat = chat_at(endpoint, chat_max_retries=5, chat_timeout_seconds=30)
        ctx, _ = recorded_context(run_input("hello"), token=token)
        task = asyncio.create_task(chat(ctx))
        async with asyncio.timeout(5):
            await until(lambda: endpoint.requests)
            token.trip(StopCause.CLIENT)
            with pytest.raises(Cancelled):
                await task
        await asyncio.to_thread(ctx.resources.close)

    asyncio.run(scenario())
    assert len(endpoint.requests) == 1


def test_a_run_that_is_cancelled_already_asks_nobody(endpoint: Endpoint) -> None:
    token = CancellationToken()
    token.trip(StopCause.CLIENT)
    events = record(closing(chat_at(endpoint)), run_input("hello"), token=token)
    assert members(events[-1])["outcome"] == {"type": "cancelled"}
    assert not endpoint.requests


def test_a_cancelled_answer_is_closed_in_order(endpoint: Endpoint) -> None:
    endpoint.answers = [streamed(text("a"), call(0, '{"q', "c1", "look"), Stall())]
    token = CancellationToken()

    def stop_at_arguments(event: Event) -> list[Event]:
        if event.type is EventType.TOOL_CALL_ARGS:
            threading.Thread(target=token.trip, args=(StopCause.CLIENT,)).start()
        return [event]

    events = record(
        closing(chat_at(endpoint)), run_input("hello"), token=token, transformers=[stop_at_arguments]
    )
    assert brief(events)[-1] == "TOOL_CALL_END"
    assert members(events[-1])["outcome"] == {"type": "cancelled"}


def test_the_runs_of_one_loop_share_a_connection(endpoint: Endpoint) -> None:
    endpoint.answers = [GOOD]

    async def scenario() -> None:
        chat, resources = chat_at(endpoint), Resources()
        for number in range(5):
            ctx, _ = recorded_context(run_input("hello", run_id=f"run-{number}"))
            await chat(sharing(resources, ctx))
        await asyncio.to_thread(resources.close)

    asyncio.run(scenario())
    assert len(endpoint.requests) == 5
    assert endpoint.connections == 1


def test_runs_on_one_loop_after_another_each_have_a_client_that_works(endpoint: Endpoint) -> None:
    endpoint.answers = [GOOD]
    chat = chat_at(endpoint)
    endings = [record(closing(chat), run_input("hello"))[-1] for _ in range(3)]
    assert [members(ending)["outcome"] for ending in endings] == [{"type": "success"}] * 3


def test_many_runs_at_once_wait_for_no_pool(endpoint: Endpoint) -> None:
    endpoint.answers = [streamed(text("a"), Stall())]

    async def scenario() -> int:
        chat, resources = chat_at(endpoint, chat_timeout_seconds=20), Resources()
        tokens = [CancellationToken() for _ in range(130)]
        contexts = [recorded_context(run_input("hello"), token=token) for token in tokens]
        tasks = [asyncio.create_task(chat(sharing(resources, ctx))) for ctx, _ in contexts]
        async with asyncio.timeout(15):
            await until(lambda: all(len(events) >= 3 for _, events in contexts))
        for token in tokens:
            token.trip(StopCause.CLIENT)
        endings = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(resources.close)
        return sum(isinstance(ending, Cancelled) for ending in endings)

    assert asyncio.run(scenario()) == 130


@pytest.mark.parametrize("address", ["ftp://host/v1", "host:80", "http://"])
def test_an_address_that_cannot_be_asked_is_refused_at_the_start(address: str) -> None:
    with pytest.raises(ValueError, match="OUTLAST_CHAT_BASE_URL"):
        make_chat(Settings(chat_model="m", chat_base_url=address))


def test_without_a_model_there_is_no_chat() -> None:
    with pytest.raises(ValueError, match="OUTLAST_CHAT_MODEL"):
        make_chat(Settings())


def test_the_official_client_understands_the_test_endpoint(endpoint: Endpoint) -> None:
    endpoint.answers = [
        complete(
            text("Hel"),
            text("lo"),
            call(0, "", "a", "look"),
            call(0, '{"q":1}'),
            call(1, "{}", "b", "find"),
            finish("tool_calls"),
        ),
        failing(429, '{"error": {"message": "slow down"}}'),
        streamed(text("a"), Stall()),
    ]
    with openai.OpenAI(base_url=endpoint.base_url, api_key=KEY, max_retries=0, timeout=0.5) as client:

        def ask() -> list[Any]:
            return list(
                client.chat.completions.create(
                    model="m",
                    messages=[{"role": "user", "content": "x"}],
                    stream=True,
                    stream_options={"include_usage": True},
                )
            )

        chunks = ask()
        deltas = [one.choices[0].delta for one in chunks if one.choices]
        assert "".join(delta.content or "" for delta in deltas) == "Hello"
        parts = [part for delta in deltas for part in delta.tool_calls or ()]
        assert [(part.index, part.id, part.function.arguments) for part in parts] == [
            (0, "a", ""),
            (0, None, '{"q":1}'),
            (1, "b", "{}"),
        ]
        assert chunks[-1].usage.total_tokens == 18
        with pytest.raises(openai.RateLimitError):
            ask()
        with pytest.raises(openai.APITimeoutError):
            ask()
