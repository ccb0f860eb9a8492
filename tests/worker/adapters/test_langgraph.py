"""A LangGraph graph as an agent, with the real library and models that are fake or local."""

from __future__ import annotations

import asyncio
import operator
import sys
from typing import Annotated, Any

import httpx2
import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from shared.settings import Settings
from shared.store.store import Store
from tests.openai_endpoint import (
    Answer,
    Drip,
    Endpoint,
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
from tests.worker.adapters.upstream import CI_FACTOR, GOAL_SECONDS, seconds_to_the_upstream
from worker.agents.entries import entry_for
from worker.agents.langgraph import langgraph
from worker.agents.testing import record, recorded_context, run_input

# The package asks the library by an older name.
pytestmark = pytest.mark.filterwarnings("ignore:`get_config_jsonschema` is deprecated")


class State(MessagesState):
    looked: Annotated[list[str], operator.add]


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGSMITH_TRACING", "false")


def graph_of(*nodes: Any, checkpointer: Any = None) -> Any:
    """The nodes one after the other."""
    graph = StateGraph(State)
    names = [node.__name__ for node in nodes]
    for name, node in zip(names, nodes, strict=True):
        graph.add_node(name, node)
    for before, after in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(before, after)
    return graph.compile(checkpointer=checkpointer)


def talking(*answers: Any) -> Any:
    model = GenericFakeChatModel(messages=iter([AIMessage(answer) for answer in answers]))

    async def talk(state: State) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return talk


def asking(endpoint: Endpoint, **options: Any) -> Any:
    """A node that asks the endpoint's model by the real client."""
    settings = {"model": "m", "base_url": endpoint.base_url, "api_key": "k", "max_retries": 0, **options}

    async def talk(state: State) -> dict[str, Any]:
        # For a loop that ends with the run.
        async with httpx2.AsyncClient() as client:
            model = ChatOpenAI(http_async_client=client, **settings)
            return {"messages": [await model.ainvoke(state["messages"])]}

    return talk


async def look(state: State) -> dict[str, Any]:
    return {"looked": ["here"]}


async def approve(state: State) -> dict[str, Any]:
    answer = interrupt({"message": "go on?", "reason": "confirm", "responseSchema": {"type": "boolean"}})
    return {"messages": [AIMessage(f"answered {answer}", id="answer")]}


def types_of(events: list[Any]) -> list[str]:
    return [event.type.value for event in events]


def test_a_graph_streams_its_model_and_its_steps():
    events = record(langgraph(graph_of(talking("hello there"), look)), run_input("hi"))
    deltas = [event.delta for event in events if event.type.value == "TEXT_MESSAGE_CONTENT"]
    steps = [event.step_name for event in events if event.type.value == "STEP_STARTED"]
    assert "".join(deltas) == "hello there"
    assert len(deltas) > 1
    assert steps == ["talk", "look"]
    assert events[-1].outcome.type == "success"


def test_the_state_and_the_messages_are_told_as_snapshots():
    events = record(langgraph(graph_of(talking("hello"), look)), run_input("hi"))
    states = [event.snapshot for event in events if event.type.value == "STATE_SNAPSHOT"]
    messages = [event.messages for event in events if event.type.value == "MESSAGES_SNAPSHOT"]
    assert states[-1]["looked"] == ["here"]
    assert [message.content for message in messages[-1]] == ["hi", "hello"]


def test_raw_events_are_left_out_unless_asked_for():
    quiet = record(langgraph(graph_of(talking("a"))), run_input("hi"))
    loud = record(langgraph(graph_of(talking("a")), emit_raw_events=True), run_input("hi"))
    assert "RAW" not in types_of(quiet)
    assert all(event.raw_event is None for event in quiet)
    assert "RAW" in types_of(loud)


def test_the_ids_of_the_run_are_the_runs():
    ending = record(langgraph(graph_of(look)), run_input("hi", thread_id="t9", run_id="r9"))[-1]
    assert (ending.thread_id, ending.run_id) == ("t9", "r9")


def test_the_given_input_is_not_written_into():
    given = run_input("hi", state={"looked": []})
    record(langgraph(graph_of(look)), given)
    assert given.state == {"looked": []}


def test_a_graph_without_memory_is_told_the_conversation_by_each_run():
    agent = langgraph(graph_of(talking("one", "two")))
    for _ in range(2):
        ending = [
            event for event in record(agent, run_input("hi")) if event.type.value == "MESSAGES_SNAPSHOT"
        ][-1]
        assert len(ending.messages) == 2


def test_a_pause_ends_the_run_as_interrupted_and_its_answer_goes_on_from_there():
    agent = langgraph(graph_of(look, approve, checkpointer=InMemorySaver()))
    asked = record(agent, run_input("hi", run_id="r1"))
    question = asked[-1].outcome.interrupts[0]
    assert (question.reason, question.message) == ("confirm", "go on?")
    assert question.response_schema == {"type": "boolean"}
    answer = [{"interruptId": question.id, "status": "resolved", "payload": True}]
    resumed = record(agent, run_input("hi", run_id="r2", resume=answer))
    said = [event.messages for event in resumed if event.type.value == "MESSAGES_SNAPSHOT"][-1]
    assert said[-1].content == "answered True"
    assert resumed[-1].outcome.type == "success"


def test_a_pause_that_nobody_could_resume_fails():
    assert record(langgraph(graph_of(approve)), run_input("hi"))[-1].code == "AGENT_ERROR"


def test_an_answer_by_forwarded_props_is_not_heard():
    agent = langgraph(graph_of(approve, checkpointer=InMemorySaver()))
    record(agent, run_input("hi", run_id="r1"))
    slipped = run_input("hi", run_id="r2", forwardedProps={"command": {"resume": "yes"}})
    assert record(agent, slipped)[-1].outcome.type == "interrupt"


def test_one_actors_checkpoint_is_not_another_ones():
    agent = langgraph(graph_of(approve, checkpointer=InMemorySaver()))

    def state_seen(actor: str) -> int:
        ctx, events = recorded_context(run_input("hi", thread_id="same"))
        ctx.actor = actor
        asyncio.run(entry_for("graph", agent).run(ctx))
        return len([event for event in events if event.type.value == "STEP_STARTED"])

    # A thread that waits for an answer only repeats its question.
    assert state_seen("alice") > 0
    assert state_seen("alice") == 0
    assert state_seen("bob") > 0


def test_a_function_makes_the_graph_once_per_process():
    made = []

    async def make() -> Any:
        made.append(1)
        return graph_of(talking("one", "two"))

    agent = langgraph(make)

    async def twice() -> None:
        first, _ = recorded_context(run_input("hi"))
        second, _ = recorded_context(run_input("hi"))
        second._resources = first.resources
        for ctx in (first, second):
            await entry_for("graph", agent).run(ctx)

    asyncio.run(twice())
    assert made == [1]


def test_a_tool_call_streams_its_arguments_and_its_result(endpoint: Endpoint):
    endpoint.answers = [
        complete(call(0, "", "c1", "search"), call(0, '{"q":'), call(0, "1}"), finish("tool_calls"))
    ]

    async def answer(state: State) -> dict[str, Any]:
        return {"messages": [ToolMessage("found", tool_call_id="c1")]}

    events = record(langgraph(graph_of(asking(endpoint), answer)), run_input("hi"))
    arguments = [event.delta for event in events if event.type.value == "TOOL_CALL_ARGS"]
    said = [event.messages for event in events if event.type.value == "MESSAGES_SNAPSHOT"][-1]
    assert "".join(arguments) == '{"q":1}'
    assert [message.role for message in said] == ["user", "assistant", "tool"]
    assert events[-1].type.value == "RUN_FINISHED"


def test_what_the_model_used_is_told_at_the_end(endpoint: Endpoint):
    endpoint.answers = [complete(text("a"), finish())]
    agent = langgraph(graph_of(asking(endpoint, stream_usage=True)))
    assert record(agent, run_input("hi"))[-1].usage[0].input_tokens == 11


@pytest.mark.parametrize(
    ("answer", "options", "code"),
    [
        pytest.param(silent(Stall()), {"timeout": 0.2}, "transport_timeout", id="silent"),
        pytest.param(streamed(text("a"), Stall()), {"timeout": 0.2}, "transport_timeout", id="stalled"),
        pytest.param(failing(503, '{"error":{"message":"key"}}'), {}, "provider_error", id="refused"),
    ],
)
def test_a_models_failure_keeps_its_own_code(
    endpoint: Endpoint, answer: Answer, options: dict[str, Any], code: str
):
    endpoint.answers = [answer]
    ending = record(langgraph(graph_of(asking(endpoint, **options))), run_input("hi"))[-1]
    assert ending.code == code
    assert "key" not in ending.message


def test_a_nodes_own_failure_is_the_agents():
    async def fail(state: State) -> dict[str, Any]:
        raise RuntimeError("secret")

    ending = record(langgraph(graph_of(fail)), run_input("hi"))[-1]
    assert ending.code == "AGENT_ERROR"
    assert "secret" not in ending.message


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(silent(Stall()), "STEP_STARTED", id="before the first byte"),
        pytest.param(
            streamed(chunk({"content": "a"}), text("b"), Stall()), "TEXT_MESSAGE_CONTENT", id="in mid-answer"
        ),
        pytest.param(streamed(text("a"), Drip(0.02)), "TEXT_MESSAGE_CONTENT", id="between comments"),
    ],
)
def test_a_cancel_closes_the_models_connection_at_once(
    settings: Settings, store: Store, endpoint: Endpoint, answer: Answer, said: str
):
    endpoint.answers = [answer]
    agent = langgraph(graph_of(asking(endpoint)))
    assert seconds_to_the_upstream(settings, store, agent, endpoint, said) < GOAL_SECONDS * CI_FACTOR


def test_what_is_no_compiled_graph_is_refused_at_once():
    with pytest.raises(TypeError, match="compile it first"):
        langgraph(StateGraph(State))
    with pytest.raises(TypeError, match="no compiled graph"):
        langgraph(7)


def test_a_missing_library_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ag_ui_langgraph", None)
    with pytest.raises(ImportError, match=r"outlast\[langgraph\]"):
        langgraph(graph_of(look))


def test_the_module_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch):
    for module in [name for name in sys.modules if name.partition(".")[0] == "ag_ui_langgraph"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(ImportError, match=r"fastapi.*pip install") as told:
        langgraph(graph_of(look))
    assert told.value.name == "fastapi"


def test_a_description_of_its_own_is_told():
    assert (
        entry_for("helper", langgraph(graph_of(look), description="Knows the manual.")).description
        == "Knows the manual."
    )
    assert entry_for("helper", langgraph(graph_of(look))).description
