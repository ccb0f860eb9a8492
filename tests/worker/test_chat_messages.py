from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from hypothesis import given, strategies

from shared.protocol.events import RunAgentInput
from worker.agents.chat_messages import conversation, options, request_body
from worker.agents.chat_wire import Chunk, data_of, parse_chunk, sanitised
from worker.failures import AgentError, ProviderStreamBroken


def an_input(*messages: dict[str, Any], **members: Any) -> RunAgentInput:
    numbered = [{"id": f"m{number}", **message} for number, message in enumerate(messages)]
    return RunAgentInput.model_validate({"threadId": "t", "runId": "r", "messages": numbered, **members})


def sent(*messages: dict[str, Any], **members: Any) -> list[dict[str, Any]]:
    return request_body(an_input(*messages, **members), "m")["messages"]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def calling(*ids: str, content: str | None = None, arguments: str = "{}") -> dict[str, Any]:
    calls = [
        {"id": one, "type": "function", "function": {"name": "look", "arguments": arguments}} for one in ids
    ]
    message: dict[str, Any] = {"role": "assistant", "toolCalls": calls}
    return message | ({"content": content} if content is not None else {})


def answering(call_id: str, content: Any = "found", **members: Any) -> dict[str, Any]:
    return {"role": "tool", "toolCallId": call_id, "content": content, **members}


def test_a_conversation_of_texts_is_sent_as_it_is() -> None:
    assert sent(user("hello"), {"role": "assistant", "content": "hi"}, user("bye")) == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "bye"},
    ]


def test_leading_instructions_and_the_context_become_one_system_message() -> None:
    assert sent(
        {"role": "system", "content": "be kind"},
        {"role": "developer", "content": "be brief"},
        user("hello"),
        context=[{"description": "The page", "value": "/home"}],
    ) == [
        {"role": "system", "content": "be kind\n\nbe brief\n\nThe page:\n/home"},
        {"role": "user", "content": "hello"},
    ]


def test_instructions_in_the_middle_keep_their_place() -> None:
    roles = [message["role"] for message in sent(user("a"), {"role": "developer", "content": "b"}, user("c"))]
    assert roles == ["user", "system", "user"]


def test_reasoning_and_activities_are_left_out() -> None:
    assert sent(
        user("hello"),
        {"role": "reasoning", "content": "hm"},
        {"role": "activity", "activityType": "plan", "content": {}},
    ) == [{"role": "user", "content": "hello"}]


def test_texts_and_images_of_a_user_are_sent_as_parts() -> None:
    parts = [
        {"type": "text", "text": "what is this"},
        {"type": "image", "source": {"type": "url", "value": "https://example.com/cat.png"}},
        {"type": "image", "source": {"type": "data", "value": "QUJD", "mimeType": "image/png"}},
    ]
    assert sent(user(parts))[0]["content"] == [
        {"type": "text", "text": "what is this"},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
    ]


@pytest.mark.parametrize("kind", ["audio", "video", "document"])
def test_a_part_that_cannot_be_sent_is_refused_by_its_name(kind: str) -> None:
    part = {"type": kind, "source": {"type": "data", "value": "QUJD", "mimeType": "x/y"}}
    with pytest.raises(AgentError, match=f"part of type {kind}"):
        sent(user([part]))


def test_an_image_that_only_another_provider_has_is_refused() -> None:
    with pytest.raises(AgentError, match="file id"):
        sent(user([{"type": "image", "source": {"type": "file", "value": "file-1"}}]))


def test_a_tool_call_and_its_answer_are_sent_as_a_pair() -> None:
    assert sent(user("hello"), calling("c1", content="let me see"), answering("c1")) == [
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": "let me see",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
    ]


def test_parallel_calls_in_messages_of_their_own_are_joined_before_their_answers() -> None:
    messages = sent(user("hello"), calling("c1"), calling("c2"), answering("c2"), answering("c1"))
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["c1", "c2"]
    assert [message["tool_call_id"] for message in messages[2:]] == ["c1", "c2"]


def test_an_answer_that_came_after_other_words_is_put_behind_its_call() -> None:
    messages = sent(calling("c1"), user("never mind"), answering("c1"))
    assert [message["role"] for message in messages] == ["assistant", "tool", "user"]


def test_words_after_an_answer_are_a_message_of_their_own() -> None:
    messages = sent(calling("c1"), answering("c1"), {"role": "assistant", "content": "so"})
    assert [message["role"] for message in messages] == ["assistant", "tool", "assistant"]
    assert messages[0]["content"] is None


def test_a_call_that_a_stopped_run_left_without_an_answer_does_not_spoil_the_thread() -> None:
    messages = sent(user("a"), calling("c1", content="well", arguments='{"q'), user("b"))
    assert messages[1] == {"role": "assistant", "content": "well"}


def test_an_assistant_message_with_nothing_left_to_say_is_left_out() -> None:
    assert [message["role"] for message in sent(user("a"), calling("c1"), user("b"))] == ["user", "user"]


def test_an_answer_without_a_call_is_left_out() -> None:
    assert sent(user("a"), answering("gone")) == [{"role": "user", "content": "a"}]


def test_a_call_id_longer_than_endpoints_take_is_replaced_on_both_sides() -> None:
    long = "3f0c1d0e-7b5e-4f4e-9a53-0d7a2c1b8e11-call-1"
    call, answer = sent(calling(long), answering(long))
    assert call["tool_calls"][0]["id"] == answer["tool_call_id"]
    assert len(answer["tool_call_id"]) <= 40


def test_empty_arguments_are_sent_as_an_empty_object() -> None:
    call, _ = sent(calling("c1", arguments=""), answering("c1"))
    assert call["tool_calls"][0]["function"]["arguments"] == "{}"


def test_the_text_parts_of_a_tool_result_are_joined() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert sent(calling("c1"), answering("c1", parts))[1]["content"] == "one\ntwo"


def test_a_tool_result_with_another_part_is_refused() -> None:
    part = {"type": "image", "source": {"type": "url", "value": "https://example.com/x.png"}}
    with pytest.raises(AgentError, match="part of type image"):
        sent(calling("c1"), answering("c1", [part]))


def test_an_empty_tool_result_with_an_error_tells_the_error() -> None:
    assert sent(calling("c1"), answering("c1", "", error="no such page"))[1]["content"] == "no such page"


def test_the_clients_tools_are_offered_as_functions() -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    tools = [
        {"name": "look", "description": "Looks", "parameters": schema},
        {"name": "stop", "description": "Stops"},
    ]
    body = request_body(an_input(user("a"), tools=tools), "m")
    assert body["tools"] == [
        {"type": "function", "function": {"name": "look", "description": "Looks", "parameters": schema}},
        {
            "type": "function",
            "function": {
                "name": "stop",
                "description": "Stops",
                "parameters": {"type": "object", "properties": {}},
            },
        },
    ]


def test_without_tools_none_are_sent() -> None:
    assert "tools" not in request_body(an_input(user("a"), tools=[]), "m")


def test_a_request_asks_for_a_stream_with_usage() -> None:
    body = request_body(an_input(user("a")), "small-1")
    assert (body["model"], body["stream"], body["stream_options"]) == (
        "small-1",
        True,
        {"include_usage": True},
    )


def test_a_client_may_decide_how_but_not_which_model_answers() -> None:
    wanted = {
        "temperature": 0.5,
        "max_tokens": 9,
        "model": "huge",
        "stream": False,
        "user": "x",
        "seed": None,
    }
    body = request_body(an_input(user("a"), forwardedProps=wanted), "small-1")
    assert (body["model"], body["stream"], body["temperature"], body["max_tokens"]) == (
        "small-1",
        True,
        0.5,
        9,
    )
    assert not {"user", "seed"} & body.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 3),
        ("temperature", "warm"),
        ("temperature", math.nan),
        ("max_tokens", 1.5),
        ("top_p", True),
    ],
)
def test_an_option_that_does_not_fit_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(AgentError, match=rf"forwardedProps\.{name} must be"):
        options({name: value})


def test_forwarded_properties_of_any_other_form_decide_nothing() -> None:
    assert [options(given) for given in (None, "x", [1])] == [{}, {}, {}]


_ONE = strategies.sampled_from(["a", "b", "c"])
_MESSAGES = strategies.lists(
    strategies.one_of(
        strategies.just(user("hello")),
        strategies.just({"role": "assistant", "content": "hi"}),
        strategies.lists(_ONE, min_size=1, max_size=3, unique=True).map(lambda ids: calling(*ids)),
        _ONE.map(answering),
        strategies.just({"role": "reasoning", "content": "hm"}),
    ),
    max_size=12,
)


@given(_MESSAGES)
def test_whatever_the_history_every_call_is_followed_by_its_answers(history: list[dict[str, Any]]) -> None:
    waiting: list[str] = []
    for message in conversation(an_input(*history).messages):
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting
        waiting = [call["id"] for call in message.get("tool_calls", ())]
    assert not waiting


async def _bytes(*pieces: bytes) -> Any:
    for piece in pieces:
        yield piece


async def _read(*pieces: bytes) -> list[bytes]:
    return [data async for group in data_of(_bytes(*pieces)) for data in group]


def read(*pieces: bytes) -> list[bytes]:
    return asyncio.run(_read(*pieces))


@given(strategies.integers(1, 7))
def test_events_are_found_however_the_bytes_are_cut(size: int) -> None:
    stream = 'data: {"a":1}\r\n\r\n: note\n\nevent: x\ndata:two\ndata: three\n\ndata: é\u2028\n\n'.encode()
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert read(*pieces) == [b'{"a":1}', b"two\nthree", "é\u2028".encode()]


def test_an_event_that_was_cut_off_is_dropped() -> None:
    assert read(b"data: 1\n\ndata: 2\n") == [b"1"]


def test_a_line_without_end_breaks_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.agents.chat_wire.MAX_EVENT_BYTES", 10)
    with pytest.raises(ProviderStreamBroken):
        read(b"data: 0123456789")


@pytest.mark.parametrize(
    "chunk",
    [
        b"{}",
        b'{"choices":null}',
        b'{"choices":[{"index":0}]}',
        b'{"choices":[{"index":1,"delta":{"content":"no"}}]}',
    ],
)
def test_a_chunk_that_says_nothing_of_ours_is_an_empty_one(chunk: bytes) -> None:
    assert parse_chunk(chunk, "m") == Chunk()


@pytest.mark.parametrize("chunk", [b"nonsense", b'{"cut', b"[1]", b"7"])
def test_a_chunk_that_is_no_object_breaks_the_stream(chunk: bytes) -> None:
    with pytest.raises(ProviderStreamBroken):
        parse_chunk(chunk, "m")


def test_text_in_parts_is_text() -> None:
    chunk = b'{"choices":[{"delta":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}]}'
    assert parse_chunk(chunk, "m").text == "ab"


@pytest.mark.parametrize(
    ("said", "secret"),
    [
        ("key sk-proj-Abc123Def456", "Abc123Def456"),
        ("Bearer abc.def-ghi", "abc.def-ghi"),
        ('"api_key": "hunter2hunter2"', "hunter2"),
        ("password=hunter2", "hunter2"),
        ("jwt eyJhbGciOi.eyJzdWIi.c2ln", "eyJzdWIi"),
        ("0a1b2c3d4e" * 5, "0a1b2c3d4e"),
    ],
)
def test_what_looks_like_a_credential_does_not_stay_in_an_error_body(said: str, secret: str) -> None:
    kept = sanitised(f'{{"error": "bad {said} given", "request": "req_17"}}')
    assert secret not in kept
    assert "req_17" in kept


def test_the_key_itself_never_stays_in_an_error_body() -> None:
    assert sanitised("you sent plain", "plain") == "you sent ***"


def test_an_error_body_is_bounded_and_one_line() -> None:
    kept = sanitised("a\nb" + "é" * 5000)
    assert kept.startswith("a b")
    assert len(kept) < 2100
