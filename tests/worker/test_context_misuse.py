"""Agents and transformers that misuse what they are given: the run ends in order all the same."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from pydantic import BaseModel

from shared.protocol import events as ag
from shared.protocol.events import Event, SerializationError
from worker.agents import Interrupt
from worker.agents.base import ProtocolError
from worker.agents.testing import record, recorded_context
from worker.context import RunContext
from worker.json_form import json_text
from worker.terminal import usage_of

UNFIT: list[dict[str, Any]] = [
    {"result": object()},
    {"outcome": "none such"},
    {"usage": "much"},
    {"type": None},
]


class Changes:
    """Gives back the terminal event with members that cannot travel."""

    def __init__(self, members: dict[str, Any]) -> None:
        self.members = members

    def __call__(self, event: Event) -> list[Event]:
        return [event.model_copy(update=self.members)] if event.type == "RUN_FINISHED" else [event]


@pytest.mark.parametrize("members", UNFIT)
def test_an_ending_that_a_transformer_made_unfit_to_travel_is_an_ending_all_the_same(members: dict[str, Any]):
    events = record(lambda ctx: ctx.say("hello"), transformers=[Changes(members)])
    assert [event.type for event in events].count("TEXT_MESSAGE_END") == 1
    assert events[-1].type in {"RUN_ERROR", "RUN_FINISHED"}


@pytest.mark.parametrize("members", UNFIT)
def test_so_is_that_of_a_run_which_pauses(members: dict[str, Any]):
    events = record(lambda _: Interrupt(reason="ask"), transformers=[Changes(members)])
    assert events[-1].type in {"RUN_ERROR", "RUN_FINISHED"}


@pytest.mark.parametrize("usage", [None, 5, "", [None, object(), {"inputTokens": -1}]])
def test_usage_that_is_none_costs_the_run_nothing(usage: Any):
    def careless(ctx: RunContext) -> None:
        ctx.usage = usage
        ctx.say("hello")

    last = record(careless)[-1]
    assert (last.type, last.usage) == ("RUN_FINISHED", None)
    assert usage_of(usage) == []


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "add", "path": "", "value": 3}],
        [{"op": "replace", "path": "", "value": [1]}],
        [{"op": "add", "path": "/~2", "value": 1}],
        [{"op": "add", "path": "/b"}],
        [{"op": "add", "path": "/b", "value": float("nan")}],
        [{"op": "replace", "path": "/nope/x", "value": 1}],
        [3],
        "abc",
    ],
)
def test_a_patch_that_an_activity_cannot_take_sends_nothing_and_changes_nothing(operations: Any):
    ctx, events = recorded_context()
    plan = ctx.activity("PLAN", {"a": 1})
    with pytest.raises((ProtocolError, SerializationError)):
        plan.patch(operations)
    plan.patch([{"op": "replace", "path": "/a", "value": 2}])
    assert plan.content == {"a": 2}
    sent = [json.loads(ag.dump(event)).get("patch") for event in events[2:]]
    assert sent == [[{"op": "replace", "path": "/a", "value": 2}]]


class Board(BaseModel):
    count: int = 0


def test_a_member_of_another_type_is_not_quoted_to_the_workers_log():
    board = Board()
    board.count = "what the client said"  # type: ignore[assignment]  # the mistake that is tried
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert json_text(board) == '{"count":"what the client said"}'


def test_usage_that_comes_with_a_pause_or_a_failure_is_kept():
    used = ag.TokenUsage(model="m", input_tokens=3)
    question = ag.Interrupt(id="q", reason="ask")

    async def pauses(run_input: ag.RunAgentInput) -> Any:
        outcome = ag.RunFinishedInterruptOutcome(type="interrupt", interrupts=[question])
        yield ag.RunFinishedEvent(thread_id="thread", run_id="run", outcome=outcome, usage=[used])

    async def fails(run_input: ag.RunAgentInput) -> Any:
        yield ag.RunErrorEvent(message="no", usage=[used])

    assert record(pauses)[-1].usage == [used]
    assert record(fails)[-1].usage == [used]
