"""Endpoints and tools that do what no model and no tool should."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.protocol.events import Event
from shared.settings import Settings
from tests.openai_endpoint import Endpoint, chunk, complete, finish, text
from worker.agents.chat_agent import make_chat
from worker.agents.chat_wire import data_of, joined
from worker.agents.testing import record, run_input
from worker.agents.tools import tool


@tool
def double(number: int) -> int:
    """Doubles a number."""
    return 2 * number


@tool
def now() -> str:
    """Tells the time."""
    return "noon"


def run(endpoint: Endpoint, *tools: Any) -> list[Event]:
    settings = Settings(chat_model="small-1", chat_base_url=endpoint.base_url, chat_max_retries=0)
    return record(make_chat(settings, tools=tools), run_input("hi"))


def part(name: str | None, arguments: str, **members: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"function": function, **members}


def results(events: list[Event]) -> list[str]:
    return [event.content for event in events if event.type == "TOOL_CALL_RESULT"]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("members", [{}, {"index": 0}])
def test_calls_that_share_an_index_and_have_no_ids_are_told_apart(
    endpoint: Endpoint, members: dict[str, Any], together: bool
):
    parts = [part("double", json.dumps({"number": number}), **members) for number in (1, 2)]
    chunks = [parts] if together else [[one] for one in parts]
    answer = complete(*(chunk({"tool_calls": one}) for one in chunks), finish("tool_calls"))
    endpoint.answers = [answer, complete(text("ok"), finish())]
    assert results(run(endpoint, double)) == ["2", "4"]


def test_so_are_calls_without_arguments(endpoint: Endpoint):
    parts = [part("now", ""), part("double", '{"number": 1}')]
    endpoint.answers = [complete(chunk({"tool_calls": parts}), finish()), complete(text("ok"), finish())]
    assert results(run(endpoint, now, double)) == ["noon", "2"]


def test_a_name_that_comes_with_each_fragment_makes_no_second_call(endpoint: Endpoint):
    parts = [[part("double", piece, index=0)] for piece in ('{"num', 'ber": ', "1}")]
    answer = complete(*(chunk({"tool_calls": one}) for one in parts), finish("tool_calls"))
    endpoint.answers = [answer, complete(text("ok"), finish())]
    assert results(run(endpoint, double)) == ["2"]


def test_a_character_in_two_chunks_arrives_whole_and_goes_back_whole(endpoint: Endpoint):
    halves = [chunk({"content": half}) for half in ("\ud83d", "\ude00")]
    called = chunk({"tool_calls": [part("double", '{"number": 1}', index=0)]})
    endpoint.answers = [
        complete(*halves, called, finish("tool_calls")),
        complete(text("ok"), finish()),
    ]
    events = run(endpoint, double)
    assert [event.delta for event in events if event.type == "TEXT_MESSAGE_CONTENT"] == ["\U0001f600", "ok"]
    assert endpoint.requests[1].body["messages"][1]["content"] == "\U0001f600"
    assert joined(["\ud83d", "\ude00", "\ud83d"]) == "\U0001f600\ufffd"


class Escaping(BaseException):
    """No ordinary exception, and none that a tool should raise."""


@pytest.mark.parametrize("form", ["plain", "async"])
def test_whatever_a_tool_raises_is_its_result(endpoint: Endpoint, form: str):
    def plain() -> None:
        raise Escaping

    async def awaited() -> None:
        raise Escaping

    called = chunk({"tool_calls": [part("broken", "{}", index=0)]})
    endpoint.answers = [complete(called, finish("tool_calls")), complete(text("ok"), finish())]
    events = run(endpoint, tool(name="broken")(plain if form == "plain" else awaited))
    assert [json.loads(one)["error"] for one in results(events)] == ["the tool failed"]
    assert events[-1].type == "RUN_FINISHED"


def test_a_long_event_in_single_bytes_is_read_in_linear_time():
    size = 100_000

    async def bytewise() -> AsyncIterator[bytes]:
        yield b"data: "
        for _ in range(size):
            yield b"x"
        yield b"\n\n"

    async def read() -> list[bytes]:
        return [data async for group in data_of(bytewise()) for data in group]

    began = time.process_time()
    groups = asyncio.run(read())
    # Copied anew for each byte, it takes some seconds.
    assert (groups, time.process_time() - began < 1) == ([b"x" * size], True)
