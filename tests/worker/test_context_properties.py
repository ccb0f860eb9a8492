"""Whatever an agent does with its context, the stream is one that verifier and client take."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from shared.protocol import events as ag
from shared.protocol.events import Event
from shared.protocol.verifier import Verifier
from tests.client_rules import Checker, Client, Expander
from worker.agents import (
    AgentError,
    FilterToolCalls,
    Interrupt,
    RunContext,
    SubagentVisibility,
    Timestamps,
    ToolResultToState,
    agent,
)
from worker.agents.testing import CancellationToken, StopCause, record, run_input

VALUES: list[Any] = [None, 0, "v", [], {"a": [1]}, float("nan"), object()]
HISTORY = [
    {
        "id": "asked",
        "role": "assistant",
        "toolCalls": [{"id": "old", "type": "function", "function": {"name": "a", "arguments": "{}"}}],
    }
]
FACTORIES = [
    FilterToolCalls.denying("a"),
    FilterToolCalls.allowing("b", "c"),
    ToolResultToState.snapshot("b"),
    ToolResultToState.delta("c", replacing=True),
    SubagentVisibility.attributed,
    SubagentVisibility.inline,
    SubagentVisibility.hidden,
    Timestamps,
]


class State(BaseModel):
    count: int = 0
    notes: list[Any] = []
    long: str = "x" * 90


class Author:
    """An agent that does something at random, in any order, and sometimes wrongly."""

    def __init__(self, chance: random.Random, steps: int, *, careful: bool) -> None:
        self.chance = chance
        self.steps = steps
        self.careful = careful

    def __call__(self, ctx: RunContext) -> Any:
        self.ctx = ctx
        self.activities: list[Any] = []
        self.work(self.steps)
        ending = self.chance.random()
        if ending < 0.1:
            raise RuntimeError
        if ending < 0.2:
            raise AgentError("on purpose")
        if ending < 0.3:
            ctx.emit(ag.run_finished(ctx.thread_id, ctx.run_id, None))
            ctx.say("too late")
        if ending < 0.4:
            return Interrupt(reason="r")
        return None

    def work(self, steps: int) -> None:
        moves: list[Callable[[int], None]] = [
            self.speak,
            self.message,
            self.reasoning,
            self.call,
            self.step,
            self.subagent,
            self.activity,
            self.state,
            self.own,
            self.result,
            self.leave_open,
            self.stray,
        ]
        while steps > 0:
            part = self.chance.randint(0, max(steps - 1, 0))
            steps -= part + 1
            try:
                self.chance.choice(moves)(part)
            except Exception:
                if not self.careful:
                    raise

    def speak(self, _: int) -> None:
        self.chance.choice([self.ctx.say, self.ctx.think])(self.chance.choice(["", "text", "a\ud83d"]))

    def message(self, steps: int) -> None:
        with self.ctx.message(self.chance.choice(["assistant", "user"])) as message:
            message.delta("a")
            self.work(steps)
            message.delta("b")

    def reasoning(self, steps: int) -> None:
        with self.ctx.reasoning() as thought:
            thought.delta("a")
            self.work(steps)
            thought.encrypted("opaque")

    def call(self, steps: int) -> None:
        with self.ctx.tool_call(self.chance.choice("abc")) as call:
            call.args({"n": 1})
            call.encrypted("opaque")
            self.work(steps)
            if self.chance.random() < 0.7:
                patch = [{"op": "add", "path": "/x", "value": 1}]
                call.result(self.chance.choice([*VALUES, patch, "text"]))

    def step(self, steps: int) -> None:
        with self.ctx.step(self.chance.choice("xy")):
            self.work(steps)

    def subagent(self, steps: int) -> None:
        with self.ctx.subagent("s") as helper:
            self.work(steps)
            match self.chance.randint(0, 5):
                case 0:
                    helper.finish({"n": 1})
                case 1:
                    helper.suspend(["i"])
                case 2:
                    helper.fail("why", "CODE")
                case 3:
                    raise RuntimeError

    def activity(self, _: int) -> None:
        if not self.activities or self.chance.random() < 0.3:
            kept = self.chance.random() < 0.8
            self.activities.append(self.ctx.activity("PLAN", {"n": 0, "long": "x" * 90}, replace=kept))
        one = self.chance.choice(self.activities)
        match self.chance.randint(0, 2):
            case 0:
                one.replace({"n": 0, "long": "x" * 90})
            case 1:
                one.patch([{"op": "replace", "path": "/n", "value": 5}])
            case 2:
                one.content["n"] = self.chance.randint(0, 3)
                one.publish()

    def state(self, _: int) -> None:
        match self.chance.randint(0, 4):
            case 0:
                self.ctx.state.notes.append("n" * 9)
            case 1:
                self.ctx.publish_state()
            case 2:
                self.ctx.update_state(count=self.chance.randint(0, 9))
            case 3:
                self.ctx.replace_state({"notes": [self.chance.choice(VALUES)]})
            case 4:
                self.ctx.reset_state()

    def own(self, _: int) -> None:
        value = self.chance.choice(VALUES)
        self.chance.choice([lambda: self.ctx.custom("n", value), lambda: self.ctx.raw(value, "s")])()

    def result(self, _: int) -> None:
        self.ctx.tool_result(self.chance.choice(["old", "run-call-1", "nobody"]), self.chance.choice(VALUES))

    def leave_open(self, _: int) -> None:
        ctx = self.ctx
        made = [ctx.message, ctx.reasoning, lambda: ctx.tool_call("b"), lambda: ctx.step("z")]
        self.chance.choice(made)().open()

    def stray(self, _: int) -> None:
        made: list[Event] = [
            ag.TextMessageEndEvent(message_id="run-msg-1"),
            ag.ToolCallArgsEvent(tool_call_id="run-call-1", delta="{"),
            ag.StepFinishedEvent(step_name="x"),
            ag.run_started("thread", "run"),
        ]
        if self.chance.random() < 0.1:
            self.ctx.token.trip(StopCause.CLIENT)
        self.ctx.emit(self.chance.choice(made))


@settings(max_examples=400, deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.integers(0, 25),
    st.booleans(),
    st.lists(st.sampled_from(FACTORIES), max_size=3),
)
def test_every_stream_is_one_that_everybody_takes(chance, steps, careful, factories):
    entry = agent(Author(chance, steps, careful=careful), state=State, transformers=factories)
    given_input = run_input("hello", messages=HISTORY)
    recorded = record(entry, given_input, token=CancellationToken())

    terminal = [event.type.value in {"RUN_FINISHED", "RUN_ERROR"} for event in recorded]
    assert terminal == [False] * (len(recorded) - 1) + [True]
    verifier = Verifier(given_input.messages, thread_id="thread", run_id="run")
    for event in recorded:
        verifier.observe(event)
    expand, check = Expander(), Checker()
    check.seed(HISTORY, overwrite=False)
    client = Client([*HISTORY, {"id": "u", "role": "user", "content": "hello"}], {})
    for event in recorded:
        document = json.loads(ag.dump(event))
        assert ag.parse(ag.dump(event)) == event
        for one in expand(document):
            check(one)
            client.apply(one)
