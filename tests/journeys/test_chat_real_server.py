"""The chat agent in a real worker, asking llama.cpp's own server about a model made for it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.local.server import EmbeddedServer
from tests.conftest import wait_for
from tests.journeys.invariants import check_invariants
from tests.journeys.processes import ROOT
from tests.journeys.stack import Run, Stack
from tests.llama_server import KEY
from tests.tiny_model import write_model

SHOW = {
    "name": "get_weather",
    "description": "Shows the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server process with the model."""
    write_model(folder / "tiny.gguf")
    command = [sys.executable, str(ROOT / "tests" / "llama_server.py"), str(folder / "tiny.gguf")]
    with (folder / "llama.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address, (folder / "llama.log").read_text()
        yield address
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="outlast-model-") as folder, served(Path(folder)) as address:
        yield address


@pytest.fixture(scope="module")
def modelled(model: str) -> Iterator[Stack]:
    """One worker and one web process whose agents ask the model."""
    with tempfile.TemporaryDirectory(prefix="outlast-journeys-") as folder:
        server = EmbeddedServer(Path(folder) / "redis")
        server.start()
        stack = Stack(
            Path(folder),
            server,
            OUTLAST_AGENTS="agents_with_tools:AGENTS",
            OUTLAST_CHAT_BASE_URL=f"{model}/v1",
            OUTLAST_CHAT_MODEL="tiny",
            OUTLAST_CHAT_API_KEY=KEY,
        )
        try:
            stack.start()
            yield stack
        finally:
            stack.close()
            server.stop()


def busy(model: str) -> bool:
    """Whether the server is writing an answer for anybody."""
    slots = httpx.get(f"{model}/slots", headers={"Authorization": f"Bearer {KEY}"}).json()
    return any(slot["is_processing"] for slot in slots)


def following(stack: Stack, run: Run, *added: dict[str, Any], **members: Any) -> Run:
    """The next run of the thread, by a client that read the first one to its end."""
    joined = stack.post(run)
    joined.finish()
    (snapshot,) = (event for event in joined.events if event["type"] == "MESSAGES_SNAPSHOT")
    again = stack.prepare(run.agent, thread_id=run.thread_id)
    again.body |= {"messages": [*snapshot["messages"], *added], **members}
    return stack.send(again)


def results(run: Run) -> dict[str, str]:
    return {
        event["toolCallId"]: event["content"]
        for event in run.live.events
        if event["type"] == "TOOL_CALL_RESULT"
    }


def test_a_model_streams_its_answer_and_says_what_it_cost(modelled: Stack):
    run = modelled.submit("chat", text="hi")
    terminal = run.live.finish()
    deltas = [event["delta"] for event in run.live.events if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert deltas == ["Hel", "lo", " there"]
    assert terminal["outcome"] == {"type": "success"}
    (usage,) = terminal["usage"]
    assert usage["model"] == "tiny"
    assert usage["outputTokens"] == 4
    assert usage["inputTokens"] + 4 == usage["totalTokens"]
    check_invariants(modelled, run)


def test_a_models_call_of_a_client_tool_is_answered_by_the_next_run(modelled: Stack):
    run = modelled.prepare("chat", text="weather")
    run.body["tools"] = [SHOW]
    terminal = modelled.send(run).live.finish()
    (start,) = (event for event in run.live.events if event["type"] == "TOOL_CALL_START")
    arguments = [event["delta"] for event in run.live.events if event["type"] == "TOOL_CALL_ARGS"]
    assert start["toolCallName"] == "get_weather"
    assert len(arguments) > 1
    assert "".join(arguments) == '{"city": "Paris"}'
    assert terminal["outcome"] == {"type": "success", "pendingToolCallIds": [start["toolCallId"]]}
    shown = {"id": "t1", "role": "tool", "toolCallId": start["toolCallId"], "content": "21 degrees"}
    again = following(modelled, run, shown, tools=[SHOW])
    assert again.live.finish()["outcome"] == {"type": "success"}
    assert again.live.text == "It is 21 degrees."


def test_a_models_calls_of_python_tools_are_executed_and_it_goes_on(modelled: Stack):
    run = modelled.submit("helper", text="both")
    terminal = run.live.finish()
    assert sorted(results(run).values()) == ["14:00", '{"city":"Rome","degrees":21}']
    assert run.live.text == "BothIt is 21 degrees."
    assert terminal["outcome"] == {"type": "success"}
    (usage,) = terminal["usage"]
    assert usage["outputTokens"] > 10
    check_invariants(modelled, run)


def test_a_call_that_needs_approval_waits_for_a_person(modelled: Stack):
    run = modelled.submit("helper", text="delete it")
    outcome = run.live.finish()["outcome"]
    assert outcome["type"] == "interrupt"
    (question,) = outcome["interrupts"]
    assert run.effects() == []
    resume = [{"interruptId": question["id"], "status": "resolved", "payload": {"approved": True}}]
    again = following(modelled, run, resume=resume)
    assert again.live.finish()["outcome"] == {"type": "success"}
    assert again.live.types[1] == "TOOL_CALL_RESULT"
    assert results(again) == {question["toolCallId"]: "deleted /tmp/a"}
    assert again.effects() == ["deleted /tmp/a"]
    assert again.live.text == "It is 21 degrees."


def test_a_denial_is_what_the_model_goes_on_from(modelled: Stack):
    run = modelled.submit("helper", text="delete it")
    (question,) = run.live.finish()["outcome"]["interrupts"]
    resume = [{"interruptId": question["id"], "status": "resolved", "payload": {"approved": False}}]
    again = following(modelled, run, resume=resume)
    assert again.live.finish()["outcome"] == {"type": "success"}
    assert again.effects() == []
    assert again.live.text == "I could not do that."


def test_a_cancel_stops_the_model_in_its_answer(modelled: Stack, model: str):
    run = modelled.submit("chat", text="sing")
    run.live.until(lambda stream: "lala" in stream.text)
    assert busy(model)
    run.cancel()
    assert run.live.finish()["outcome"] == {"type": "cancelled"}
    wait_for(lambda: not busy(model), 2, pause=0.01)
    check_invariants(modelled, run)


def test_a_wrong_key_is_the_providers_refusal(model: str, make_stack: Any):
    stack = make_stack(
        OUTLAST_CHAT_BASE_URL=f"{model}/v1", OUTLAST_CHAT_MODEL="tiny", OUTLAST_CHAT_API_KEY="wrong"
    )
    stack.start()
    run = stack.submit("chat")
    assert run.live.finish()["code"] == "provider_error"
