"""The shipped agents that need no provider keep the protocol and do what their request says."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from shared.protocol.events import Event, EventType
from shared.runs.outcome import StopCause
from worker.agents.echo import echo
from worker.agents.scripted import demo
from worker.agents.testing import record, run_input
from worker.cancellation import CancellationToken


def spoken(recorded: list[Event]) -> list[str]:
    return [event.delta for event in recorded if event.type is EventType.TEXT_MESSAGE_CONTENT]


def played(text: str | None = None, token: CancellationToken | None = None, **props: Any) -> list[Event]:
    return record(demo, run_input(text, forwardedProps={"delay": 0, **props}), token=token)


@pytest.mark.parametrize("agent", [demo, echo])
@pytest.mark.parametrize("text", [None, "", "hello there", " \n ", "words=2 delay=0", "\u2028 😀"])
@pytest.mark.parametrize("state", [None, {}, {"a": 1}, [1], "text"])
def test_a_shipped_agent_keeps_the_protocol_whatever_it_is_given(agent, text, state):
    recorded = record(agent, run_input(text, state=state, forwardedProps={"delay": 0, "words": 3}))
    assert recorded[-1].type is EventType.RUN_FINISHED
    assert recorded[-1].outcome.type == "success"


@pytest.mark.parametrize("text", ["hello", " hello  there\nyou ", "   ", "😀 ok"])
def test_echo_says_the_last_user_text_back_exactly(text):
    assert "".join(spoken(record(echo, run_input(text)))) == text


def test_echo_speaks_word_by_word():
    assert spoken(record(echo, run_input("one two three"))) == ["one", " two", " three"]


def test_the_demo_shows_everything_a_run_can_show():
    kinds = {event.type.value for event in played(words=2)}
    assert {
        "STEP_STARTED",
        "REASONING_MESSAGE_CONTENT",
        "TOOL_CALL_RESULT",
        "STATE_SNAPSHOT",
        "SUBAGENT_FINISHED",
        "TEXT_MESSAGE_CONTENT",
    } <= kinds


def test_the_demo_left_alone_says_a_whole_sentence():
    said = "".join(spoken(played("hello", plain=True)))
    assert said.startswith("A run outlasts")
    assert said.endswith("one recorded outcome.")


def test_the_demos_tool_arguments_are_one_json_document():
    recorded = played('say "hi" \\ there')
    arguments = "".join(event.delta for event in recorded if event.type is EventType.TOOL_CALL_ARGS)
    assert json.loads(arguments) == {"text": 'say "hi" \\ there'}


@pytest.mark.parametrize("words", [0, 1, 200])
def test_the_reply_has_as_many_words_as_asked(words):
    assert len(spoken(played(words=words, plain=True))) == words


def test_the_last_user_text_adjusts_the_demo_too():
    assert len(spoken(record(demo, run_input("please words=5 delay=0 plain=1.")))) == 5


def test_a_value_that_does_not_fit_is_explained():
    ending = played(words=-1)[-1]
    assert ending.message == "agent error: the demo does not understand: words"


@pytest.mark.parametrize(
    ("fail", "code"),
    [
        ("agent", "AGENT_ERROR"),
        ("crash", "AGENT_ERROR"),
        ("timeout", "transport_timeout"),
        ("tool_timeout", "AGENT_ERROR"),
        ("order", "PROTOCOL_VIOLATION"),
        ("json", "SERIALIZATION"),
        ("exit", "AGENT_ERROR"),
    ],
)
def test_the_demo_fails_as_asked(fail, code):
    assert played(fail=fail)[-1].code == code


def test_the_demo_pauses_and_goes_on_with_the_answer():
    paused = played(interrupt=True)[-1]
    asked = paused.outcome.interrupts[0].id
    answer = [{"interruptId": asked, "status": "resolved"}]
    resumed = record(demo, run_input(forwardedProps={"delay": 0, "interrupt": True}, resume=answer))
    assert resumed[-1].outcome.type == "success"


def tripping(seconds: float = 0.05) -> CancellationToken:
    token = CancellationToken()
    timer = threading.Timer(seconds, token.trip, (StopCause.CLIENT,))
    timer.daemon = True
    timer.start()
    return token


@pytest.mark.parametrize("props", [{"hold": 60}, {"delay": 60}, {"words": 200_000}], ids=str)
def test_the_demo_hears_a_stop_wherever_it_is(props):
    assert played(token=tripping(), **props)[-1].outcome.type == "cancelled"


def test_a_deaf_demo_holds_through_a_stop_until_its_time_is_over():
    assert played(token=tripping(), hold=0.3, deaf=True, plain=True)[-1].outcome.type == "cancelled"
