"""A run that starts over in its log after a worker was lost, as every reader of the log sees it."""

from __future__ import annotations

import copy

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.protocol import events as ag
from shared.protocol import sse
from shared.protocol.attempt import ATTEMPT, starting_over
from shared.protocol.fold import Fold
from shared.protocol.verifier import Verifier
from tests.client_rules import Client
from tests.stock_client import ask, needs_client
from tests.unit.random_runs import Author, same
from tests.unit.rich_runs import HISTORY
from worker.agents.testing import run_input

UNSEEN = [{"id": "c9", "name": "pay"}]


def framed(events, first=1):
    return [sse.frame(first + index, orjson.dumps(event)) for index, event in enumerate(events)]


def started_over(run, events, **more):
    """The wire form of what follows these events."""
    verifier = Verifier(run.messages, enforce=False)
    for event in events:
        verifier.observe(ag.parse(orjson.dumps(event)))
    closers = verifier.closing_events(subagent_code="worker_lost")
    following = starting_over(run, framed(events), closers, attempt=2, reason="worker_lost", **more)
    return [orjson.loads(ag.dump(event)) for event in following]


def talk(author, length, restates):
    moves = [author.text, author.thought, author.span, author.call, author.text_chunk, author.call_chunk]
    moves += [
        author.thought_chunk,
        author.result,
        author.step,
        author.subagent,
        author.activity,
        author.state,
    ]
    moves += [author.restate] if restates else []
    for _ in range(length):
        author.random.choice(moves)()


def follow(author, events):
    """The author goes on behind these events; the verifier takes each."""
    for event in events:
        for part in author.expand(event):
            author.check(part)
        author.verifier.observe(ag.parse(orjson.dumps(event)))
        author.events.append(copy.deepcopy(event))
    # Snapshots were told, so what they removed is not to be relied on (see Author).
    author.restates = True
    author.thoughts.clear()
    author.removed = author.ids_ever() - author.ids_of(author.told())


@pytest.mark.parametrize("restates", [False, True])
@settings(max_examples=60, deadline=None)
@given(random=st.randoms(use_true_random=False), first=st.integers(0, 30), second=st.integers(0, 15))
def test_every_reader_of_any_run_ends_with_the_second_attempt_alone(restates, random, first, second):
    history = HISTORY[: random.randrange(len(HISTORY) + 1)]
    state = random.choice([{}, {"a": {}}])
    run = run_input(messages=history, state=state)
    author = Author(random, run.messages, restates=restates)
    talk(author, first, restates)
    opening, start = author.events[:1], Client(copy.deepcopy(history), copy.deepcopy(state))
    follow(author, started_over(run, author.events))
    again = len(author.events)

    fresh = copy.deepcopy(start).run(opening)
    reset = copy.deepcopy(start).run(author.events)
    assert same(reset.messages, fresh.messages)
    assert reset.state == fresh.state == state
    assert [one.model_dump() for one in folded(run, author.events).messages] == [
        one.model_dump() for one in folded(run, opening).messages
    ]

    talk(author, second, restates)
    whole = copy.deepcopy(start).run(author.events)
    for k in {again, random.randrange(again, len(author.events) + 1), len(author.events)}:
        prelude = [orjson.loads(ag.dump(one)) for one in folded(run, author.events[:k]).prelude()]
        for j in {0, random.randrange(again), again}:
            client = copy.deepcopy(start).run(author.events[:j])
            client.run([*prelude, *author.events[k:]])
            assert same(client.messages, whole.messages), (j, k)
            assert client.state == whole.state


def folded(run, events):
    fold = Fold(run)
    for event in events:
        fold.take_json(orjson.dumps(event))
    return fold


MESSAGE = [
    {"type": "RUN_STARTED", "threadId": "thread", "runId": "run"},
    {"type": "TEXT_MESSAGE_START", "messageId": "run-msg-1", "role": "assistant"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "run-msg-1", "delta": "half a"},
]
SAID = {"id": "u1", "role": "user", "content": "hello"}


def test_what_was_open_is_closed_then_the_attempt_is_told_then_the_request():
    run = run_input(messages=[SAID])
    assert started_over(run, MESSAGE, unknown_calls=UNSEEN) == [
        {"type": "TEXT_MESSAGE_END", "messageId": "run-msg-1"},
        {
            "type": "CUSTOM",
            "name": ATTEMPT,
            "value": {"attempt": 2, "reason": "worker_lost", "unknownCalls": UNSEEN},
        },
        {"type": "MESSAGES_SNAPSHOT", "messages": [SAID]},
    ]


def test_a_state_that_the_lost_attempt_made_is_gone():
    changed = [*MESSAGE[:1], {"type": "STATE_SNAPSHOT", "snapshot": {"plan": "b"}}]
    assert started_over(run_input(), changed)[-1] == {"type": "STATE_SNAPSHOT", "snapshot": {}}
    given = run_input(state={"plan": "a"})
    assert started_over(given, changed)[-1] == {"type": "STATE_SNAPSHOT", "snapshot": {"plan": "a"}}


def test_a_run_that_had_said_nothing_starts_over_all_the_same():
    types = [event["type"] for event in started_over(run_input(messages=[SAID]), MESSAGE[:1])]
    assert types == ["CUSTOM", "MESSAGES_SNAPSHOT"]


def test_a_subagent_of_the_lost_attempt_ends_with_its_code():
    told = [*MESSAGE[:1], {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "n"}]
    first = started_over(run_input(), told)[0]
    assert (first["type"], first["code"]) == ("SUBAGENT_ERROR", "worker_lost")


def test_calls_of_a_lost_attempt_are_not_waited_for():
    verifier = Verifier()
    call = [
        {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "pay"},
        {"type": "TOOL_CALL_END", "toolCallId": "c1"},
    ]
    for event in [*MESSAGE[:1], *call]:
        verifier.observe(ag.parse(orjson.dumps(event)))
    assert verifier.unanswered_calls == ("c1",)
    verifier.forget_unanswered()
    assert verifier.unanswered_calls == ()
    for event in call:
        verifier.observe(ag.parse(orjson.dumps(event)))
    assert verifier.unanswered_calls == ("c1",)


@needs_client
def test_the_stock_client_sees_the_second_attempt_only():
    lost = [
        *MESSAGE,
        {"type": "REASONING_START", "messageId": "run-think-1"},
        {"type": "REASONING_MESSAGE_START", "messageId": "run-think-1", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "run-think-1", "delta": "hm"},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "run-act-1", "activityType": "PLAN", "content": {"a": 1}},
        {"type": "STATE_SNAPSHOT", "snapshot": {"plan": "b"}},
    ]
    run = run_input(messages=[SAID])
    events = [
        *lost,
        *started_over(run, lost),
        {"type": "TEXT_MESSAGE_START", "messageId": "run-a2-msg-1", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "run-a2-msg-1", "delta": "whole"},
        {"type": "TEXT_MESSAGE_END", "messageId": "run-a2-msg-1"},
        {"type": "RUN_FINISHED", "threadId": "thread", "runId": "run"},
    ]
    asked = {
        "name": "retried",
        "messages": [SAID],
        "state": {},
        "frames": [frame.decode() for frame in framed(events)],
        "preludes": [],
        "joins": [],
    }
    told = ask("apply.mjs", {"runs": [asked]}, seconds=100)
    (seen,) = told["runs"]
    assert seen["warnings"] == []
    assert seen["messages"] == [SAID, {"id": "run-a2-msg-1", "role": "assistant", "content": "whole"}]
    assert seen["state"] == {}
