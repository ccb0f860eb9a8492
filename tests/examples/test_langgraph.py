"""The LangGraph example over real processes."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.examples.conversation import Conversation, of_type, said
from tests.examples.readme import curl_of
from tests.journeys.processes import ROOT
from tests.journeys.stack import Stack

pytest.importorskip("ag_ui_langgraph", reason="ag-ui-langgraph is not installed (extra test)")

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")

ANSWER = "The weather is fine, and so is the graph."


@pytest.fixture(scope="module")
def stack(start_stack: Any) -> Stack:
    return start_stack("examples.langgraph.agents:AGENTS")


def test_the_graph_streams_its_steps_its_state_and_its_model(stack: Stack):
    run = Conversation(stack, "weather").say("Paris")
    assert run.recorded()["status"] == "succeeded"
    assert [event["stepName"] for event in of_type(run, "STEP_STARTED")] == ["look", "approve", "answer"]
    assert said(run) == ANSWER
    assert len(of_type(run, "TEXT_MESSAGE_CONTENT")) > 3
    assert of_type(run, "STATE_SNAPSHOT")[-1]["snapshot"]["place"] == "Paris"


@pytest.mark.parametrize(("approved", "answer"), [(True, ANSWER), (False, "Then not.")])
def test_a_pause_of_the_graph_is_answered_by_the_threads_next_run(stack: Stack, approved: bool, answer: str):
    talk = Conversation(stack, "weather")
    asked = talk.say("ask me")
    assert asked.recorded()["status"] == "interrupted"
    assert asked.live.events[-1]["outcome"]["interrupts"][0]["message"] == "Shall I answer?"
    run = talk.answer({"approved": approved})
    assert run.recorded()["status"] == "succeeded"
    shown = of_type(run, "MESSAGES_SNAPSHOT")[-1]["messages"]
    assert shown[-1]["content"] == answer


@needs_curl
def test_the_readmes_line_gets_the_answer(stack: Stack):
    said = curl_of(ROOT / "examples" / "langgraph" / "README.md", stack)
    assert said.count('"RUN_FINISHED"') == 1
    assert "graph." in said
