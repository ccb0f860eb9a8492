"""A Pydantic AI agent as an agent, with the real library and models that are fake or local."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, RunContext, UsageLimits
from pydantic_ai.conversation_store import InMemoryConversationStore
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.ui import StateDeps

from shared.protocol.events import Event, RunAgentInput
from shared.settings import Settings
from shared.store.store import Store
from tests.openai_endpoint import (
    Answer,
    Cut,
    Drip,
    Endpoint,
    Stall,
    complete,
    failing,
    finish,
    silent,
    streamed,
    text,
)
from tests.worker.adapters.upstream import CI_FACTOR, GOAL_SECONDS, seconds_to_the_upstream
from worker.agents.entries import entry_for
from worker.agents.pydantic_ai import pydantic_ai
from worker.agents.testing import record, recorded_context, run_input


class Board(BaseModel):
    moves: int = 0


def types_of(events: list[Any]) -> list[str]:
    return [event.type.value for event in events]


def text_of(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type.value == "TEXT_MESSAGE_CONTENT")


def asking(endpoint: Endpoint, timeout: float = 30, **options: Any) -> Any:
    """The adapted agent over the real client of the endpoint's model, for a loop that ends with the run."""

    async def agent(given: RunAgentInput) -> AsyncIterator[Event]:
        settings = {"base_url": endpoint.base_url, "api_key": "k", "max_retries": 0, "timeout": timeout}
        async with AsyncOpenAI(**settings) as client:
            model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
            async with aclosing(pydantic_ai(Agent(model), **options)(given)) as events:
                async for event in events:
                    yield event

    return agent


def test_an_agent_streams_its_answer():
    events = record(pydantic_ai(Agent(TestModel(custom_output_text="hello there"))), run_input("hi"))
    assert text_of(events) == "hello there"
    assert types_of(events).count("TEXT_MESSAGE_CONTENT") > 1
    assert events[-1].outcome.type == "success"


def test_the_conversation_of_the_client_is_the_models():
    seen: list[int] = []

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        seen.append(len(messages))
        yield "ok"

    before = [
        {"id": "1", "role": "user", "content": "one"},
        {"id": "2", "role": "assistant", "content": "two"},
    ]
    record(pydantic_ai(Agent(FunctionModel(stream_function=answer))), run_input("three", messages=before))
    assert seen == [3]


def test_a_tool_of_the_agent_is_called_and_answers():
    agent = Agent(TestModel())

    @agent.tool_plain
    def double(number: int) -> int:
        return 2 * number

    events = record(pydantic_ai(agent), run_input("hi"))
    kinds = types_of(events)
    assert kinds.index("TOOL_CALL_START") < kinds.index("TOOL_CALL_END") < kinds.index("TOOL_CALL_RESULT")
    assert events[-1].outcome.type == "success"


def test_a_tool_of_the_client_is_left_to_it():
    tools = [{"name": "confirm", "description": "asks", "parameters": {"type": "object", "properties": {}}}]
    events = record(pydantic_ai(Agent(TestModel())), run_input("hi", tools=tools))
    assert "TOOL_CALL_RESULT" not in types_of(events)
    assert len(events[-1].outcome.pending_tool_call_ids) == 1


def test_a_tool_that_needs_approval_pauses_the_run_and_goes_on_with_the_answer():
    done = []

    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) == 1:
            yield {0: DeltaToolCall(name="erase", json_args="{}", tool_call_id="c1")}
        else:
            yield "done"

    agent = Agent(FunctionModel(stream_function=model), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def erase() -> str:
        done.append(1)
        return "erased"

    adapted = pydantic_ai(agent)
    asked = record(adapted, run_input("hi", run_id="r1", protocolVersion="1.0"))
    question = asked[-1].outcome.interrupts[0]
    assert question.tool_call_id == "c1"
    assert not done
    call = {"id": "c1", "type": "function", "function": {"name": "erase", "arguments": "{}"}}
    before = [
        {"id": "u", "role": "user", "content": "hi"},
        {"id": "a", "role": "assistant", "toolCalls": [call]},
    ]
    answer = [{"interruptId": question.id, "status": "resolved", "payload": {"approved": True}}]
    resumed = record(adapted, run_input(messages=before, run_id="r2", resume=answer))
    assert done == [1]
    assert text_of(resumed) == "done"
    assert events_result(resumed) == "erased"


def events_result(events: list[Any]) -> Any:
    return next(event.content for event in events if event.type.value == "TOOL_CALL_RESULT")


def test_state_belongs_to_one_run_by_a_function_of_it():
    agent = Agent(TestModel(), deps_type=StateDeps[Board])
    seen = []

    @agent.tool
    def move(ctx: RunContext[StateDeps[Board]]) -> str:
        seen.append(ctx.deps.state.moves)
        ctx.deps.state.moves += 1
        return "moved"

    adapted = pydantic_ai(agent, deps=lambda ctx: StateDeps(Board()))
    for _ in range(2):
        record(adapted, run_input("hi", state={"moves": 4}))
    assert seen == [4, 4]


def test_dependencies_may_be_made_by_an_async_function_of_the_run():
    agent = Agent(TestModel(), deps_type=str)
    seen = []

    @agent.tool
    def who(ctx: RunContext[str]) -> str:
        seen.append(ctx.deps)
        return ctx.deps

    async def deps(ctx: Any) -> str:
        return f"of {ctx.run_id}"

    record(pydantic_ai(agent, deps=deps), run_input("hi", run_id="r7"))
    assert seen == ["of r7"]


def test_a_function_makes_the_agent_once_per_process():
    made = []

    async def make() -> Agent[None, str]:
        made.append(1)
        return Agent(TestModel(custom_output_text="ok"))

    agent = entry_for("made", pydantic_ai(make))

    async def twice() -> None:
        first, _ = recorded_context(run_input("hi"))
        second, _ = recorded_context(run_input("hi"))
        second._resources = first.resources
        for ctx in (first, second):
            await agent.run(ctx)

    asyncio.run(twice())
    assert made == [1]


def test_one_actors_stored_conversation_is_not_another_ones():
    seen: list[int] = []

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        seen.append(len(messages))
        yield "ok"

    store = InMemoryConversationStore()
    agent = entry_for(
        "kept", pydantic_ai(Agent(FunctionModel(stream_function=answer)), conversation_store=store)
    )

    def ask(actor: str, message_id: str) -> None:
        message = {"id": message_id, "role": "user", "content": "hi"}
        ctx, _ = recorded_context(run_input(thread_id="same", messages=[message]))
        ctx.actor = actor
        asyncio.run(agent.run(ctx))

    for actor, message_id in [("alice", "1"), ("alice", "2"), ("bob", "3")]:
        ask(actor, message_id)
    assert seen == [1, 3, 1]


def test_arguments_of_a_run_are_passed_on():
    limited = pydantic_ai(Agent(TestModel()), run={"usage_limits": UsageLimits(request_limit=0)})
    assert record(limited, run_input("hi"))[-1].code == "AGENT_ERROR"


def test_usage_is_told_when_it_is_asked_for(endpoint: Endpoint):
    endpoint.answers = [complete(text("a"), finish())]
    ending = record(asking(endpoint, include_usage=True), run_input("hi"))[-1]
    assert ending.usage[0].input_tokens == 11


@pytest.mark.parametrize(
    ("answer", "timeout", "code"),
    [
        pytest.param(silent(Stall()), 0.2, "transport_timeout", id="silent"),
        pytest.param(streamed(text("a"), Stall()), 0.2, "transport_timeout", id="stalled"),
        pytest.param(failing(503, '{"error":{"message":"key"}}'), 30, "provider_error", id="refused"),
        pytest.param(streamed(text("a"), Cut()), 30, "transport_error", id="cut"),
    ],
)
def test_a_models_failure_keeps_its_own_code(endpoint: Endpoint, answer: Answer, timeout: float, code: str):
    endpoint.answers = [answer]
    ending = record(asking(endpoint, timeout), run_input("hi"))[-1]
    assert ending.code == code
    assert "key" not in ending.message


def test_a_tools_own_failure_is_the_agents():
    agent = Agent(TestModel())

    @agent.tool_plain
    def fail() -> str:
        raise RuntimeError("secret")

    ending = record(pydantic_ai(agent), run_input("hi"))[-1]
    assert ending.code == "AGENT_ERROR"
    assert "secret" not in ending.message


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(silent(Stall()), None, id="before the first byte"),
        pytest.param(streamed(text("a"), Stall()), "TEXT_MESSAGE_START", id="in mid-answer"),
        pytest.param(streamed(text("a"), Drip(0.02)), "TEXT_MESSAGE_START", id="between comments"),
    ],
)
def test_a_cancel_closes_the_models_connection_at_once(
    settings: Settings, store: Store, endpoint: Endpoint, answer: Answer, said: str | None
):
    endpoint.answers = [answer]
    agent = asking(endpoint)
    assert seconds_to_the_upstream(settings, store, agent, endpoint, said) < GOAL_SECONDS * CI_FACTOR


def test_a_missing_library_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pydantic_ai.ui.ag_ui", None)
    with pytest.raises(ImportError, match=r"outlast\[pydantic-ai\]"):
        pydantic_ai(Agent(TestModel()))


def test_a_description_of_its_own_is_told():
    assert (
        entry_for("helper", pydantic_ai(Agent(TestModel()), description="Knows the manual.")).description
        == "Knows the manual."
    )
    assert entry_for("helper", pydantic_ai(Agent(TestModel()))).description
