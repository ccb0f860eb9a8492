"""What the context and its transformers promise, kept by a real worker process over a real log and record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from pydantic import BaseModel

from shared.protocol import events as ag
from shared.protocol.events import Event
from shared.runs.lifecycle import Status
from shared.settings import Settings
from shared.store.store import Store
from tests.worker.stage import accept, in_thread, log_of, process_with, record_of, types_of
from worker.agents import (
    FilterToolCalls,
    Interrupt,
    RunContext,
    SubagentVisibility,
    Timestamps,
    ToolResultToState,
    TransformerFailed,
    agent,
)
from worker.agents.testing import record, run_input
from worker.driver import Driver


class Plan(BaseModel):
    title: str = "untitled"
    steps: list[str] = []


def execute(settings: Settings, store: Store, body: Any, **members: Any) -> str:
    key = accept(store, "agent", **members)
    with process_with(settings, agent=body) as process:
        Driver(process).execute(key)
    return key


HISTORY = [
    {
        "id": "m-1",
        "role": "assistant",
        "toolCalls": [{"id": "c-1", "type": "function", "function": {"name": "delete", "arguments": "{}"}}],
    }
]


def rich(ctx: RunContext) -> None:
    ctx.think("hm", encrypted="opaque")
    ctx.tool_result("c-1", {"done": True})
    with ctx.step("look"), ctx.subagent("helper") as helper:
        with ctx.tool_call("search") as call:
            call.args('{"q":')
            call.args('"x"}')
            ctx.update_state(title=call.arguments()["q"])
            call.result([1])
        plan = ctx.activity("PLAN", {"steps": ["a"]})
        plan.patch([{"op": "add", "path": "/steps/-", "value": "b"}])
        helper.finish({"n": 1})
    with ctx.message() as one, ctx.message() as two:
        one.delta("a")
        two.delta("b")
    ctx.custom("acme.done", None)
    ctx.raw({"native": 1}, "framework")
    with ctx.tool_call("ask", call_id="open"):
        pass
    ctx.usage.append(ag.TokenUsage(model="m", input_tokens=3))


def test_a_worker_logs_what_the_test_harness_records(settings: Settings, store: Store):
    entry = agent(rich, state=Plan)
    key = execute(settings, store, entry, messages=HISTORY)
    identity = record_of(store, key).identity
    given = run_input(thread_id=identity.thread_id, run_id=identity.run_id, messages=HISTORY)
    told = [event.model_dump(mode="json", by_alias=True) for event in record(entry, given)]
    assert log_of(store, key) == told
    assert told[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["open"]}
    assert record_of(store, key).outcome == told[-1]["outcome"]


# State


def test_a_state_that_does_not_fit_ends_the_run_without_calling_the_agent(settings: Settings, store: Store):
    called = []
    body = agent(called.append, state=Plan, transformers=[Timestamps])
    key = execute(settings, store, body, state={"title": {"secret": 1}})
    assert types_of(store, key) == ["RUN_STARTED", "RUN_ERROR"]
    terminal = log_of(store, key)[-1]
    assert (terminal["code"], "timestamp" in terminal) == ("SERIALIZATION", True)
    assert "secret" not in str(terminal)
    assert record_of(store, key).texts["code"] == "SERIALIZATION"
    assert called == []


def test_an_agent_gets_its_state_as_the_model(settings: Settings, store: Store):
    seen = []
    execute(settings, store, agent(lambda ctx: seen.append(ctx.state), state=Plan), state={"title": "t"})
    assert seen == [Plan(title="t")]


# The agent's own terminal event


def test_the_agents_own_success_tells_usage_and_pending_calls_in_log_and_record(
    settings: Settings, store: Store
):
    def ends_itself(ctx: RunContext) -> None:
        ctx.usage.append(ag.TokenUsage(model="m"))
        with ctx.tool_call("ask", call_id="open"):
            pass
        ctx.emit(ag.run_finished(ctx.thread_id, ctx.run_id, None))

    key = execute(settings, store, ends_itself)
    terminal = log_of(store, key)[-1]
    assert terminal["usage"] == [{"model": "m"}]
    assert terminal["outcome"] == {"type": "success", "pendingToolCallIds": ["open"]}
    assert record_of(store, key).outcome == terminal["outcome"]


def test_a_failure_tells_usage_too(settings: Settings, store: Store):
    def fails(ctx: RunContext) -> None:
        ctx.usage.append(ag.TokenUsage(model="m"))
        raise RuntimeError

    assert log_of(store, execute(settings, store, fails))[-1]["usage"] == [{"model": "m"}]


# Transformers


def test_transformers_see_everything_but_run_started_and_each_run_has_its_own(
    settings: Settings, store: Store
):
    made: list[Any] = []

    class Counting:
        def __init__(self) -> None:
            self.seen: list[str] = []
            made.append(self)

        def __call__(self, event: Event) -> Iterable[Event]:
            self.seen.append(event.type.value)
            yield event

    def body(ctx: RunContext) -> None:
        ctx.message().open()

    keys = [accept(store, "agent") for _ in range(2)]
    with process_with(settings, agent=agent(body, transformers=[Counting, Timestamps])) as process:
        for key in keys:
            Driver(process).execute(key)
    assert [one.seen for one in made] == [["TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "RUN_FINISHED"]] * 2
    for key in keys:
        assert ["timestamp" in event for event in log_of(store, key)] == [False, True, True, True]


def crew(ctx: RunContext) -> Interrupt:
    with ctx.subagent("helper") as helper:
        with ctx.tool_call("secret") as call:
            call.result({"hidden": True})
        ctx.update_state(found=1)
        helper.suspend(["i"])
    with ctx.tool_call("find") as call:
        call.result({"a": 1})
    return Interrupt(ag.Interrupt(id="i", reason="r", subagent_run_id=helper.id))


def test_the_shipped_ones_shape_log_and_record_alike(settings: Settings, store: Store):
    shipped = [
        FilterToolCalls.denying("secret"),
        ToolResultToState.snapshot("find", replacing=True),
        SubagentVisibility.hidden,
    ]
    key = execute(settings, store, agent(crew, transformers=shipped))
    assert types_of(store, key) == [
        "RUN_STARTED",
        "STATE_SNAPSHOT",
        "TOOL_CALL_START",
        "TOOL_CALL_END",
        "STATE_SNAPSHOT",
        "RUN_FINISHED",
    ]
    outcome = log_of(store, key)[-1]["outcome"]
    assert outcome["interrupts"] == [{"id": "i", "reason": "r"}]
    assert record_of(store, key).outcome == outcome
    assert record_of(store, key).status is Status.INTERRUPTED


def test_a_swallowed_terminal_event_is_put_back(settings: Settings, store: Store):
    key = execute(settings, store, agent(lambda ctx: None, transformers=[lambda: lambda event: []]))
    assert types_of(store, key) == ["RUN_STARTED", "RUN_FINISHED"]
    assert record_of(store, key).status is Status.SUCCEEDED


@pytest.mark.parametrize("where", ["TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"])
@pytest.mark.parametrize("swallows", [True, False])
def test_one_that_raises_fails_the_run_and_the_stream_ends_well(
    settings: Settings, store: Store, where: str, swallows: bool
):
    def failing(event: Event) -> list[Event]:
        if event.type.value == where:
            raise KeyError("secret")
        return [event]

    async def body(ctx: RunContext) -> None:
        try:
            ctx.say("hi")
        except TransformerFailed:
            if not swallows:
                raise

    key = execute(settings, store, agent(body, transformers=[lambda: failing]))
    types = types_of(store, key)
    assert types[-1] == "RUN_ERROR"
    assert types.count("TEXT_MESSAGE_START") == types.count("TEXT_MESSAGE_END")
    terminal, record = log_of(store, key)[-1], record_of(store, key)
    assert terminal["code"] == record.texts["code"] == "AGENT_ERROR"
    assert "secret" not in str(log_of(store, key))
    assert "secret" in record.texts["detail"]


def test_a_factory_that_raises_fails_the_run_before_the_agent(settings: Settings, store: Store):
    def broken() -> Any:
        raise RuntimeError("no such model")

    called = []
    key = execute(settings, store, agent(called.append, transformers=[broken]))
    assert (types_of(store, key), called) == (["RUN_STARTED", "RUN_ERROR"], [])


def test_a_cancelled_run_is_cancelled_also_when_a_transformer_raises_at_its_end(
    settings: Settings, store: Store, eventually: Any
):
    def failing(event: Event) -> list[Event]:
        if event.type.value in {"RUN_FINISHED", "STEP_FINISHED"}:
            raise KeyError
        return [event]

    async def waits(ctx: RunContext) -> None:
        ctx.step("s").open()
        await ctx.cancelled()

    key = accept(store, "agent")
    with process_with(settings, agent=agent(waits, transformers=[lambda: failing])) as process:
        running = in_thread(process, key)
        eventually(lambda: record_of(store, key).last_seq >= 2)
        store.runs.request_cancel(key, by="alice")
        running.join(10)
    assert types_of(store, key)[-2:] == ["STEP_FINISHED", "RUN_FINISHED"]
    assert record_of(store, key).status is Status.CANCELLED


# What surrounds the agent


def test_runs_of_one_process_share_resources_and_know_their_actor(settings: Settings, store: Store):
    seen: list[Any] = []

    class Client:
        closed = False

        def close(self) -> None:
            self.closed = True

    def body(ctx: RunContext) -> None:
        seen.append((ctx.actor, ctx.resources.get("client", Client)))

    keys = [accept(store, "agent") for _ in range(2)]
    with process_with(settings, agent=body) as process:
        for key in keys:
            Driver(process).execute(key)
        assert not seen[0][1].closed
    assert [actor for actor, _ in seen] == ["alice", "alice"]
    assert seen[0][1] is seen[1][1]
    assert seen[0][1].closed


def test_provider_calls_are_kept_in_the_record(settings: Settings, store: Store):
    async def body(ctx: RunContext) -> None:
        with ctx.provider_call("model"):
            pass
        with ctx.provider_call():
            raise TimeoutError

    key = execute(settings, store, body)
    calls = record_of(store, key).provider_calls
    assert [(call.get("name"), call.get("failed", False)) for call in calls] == [
        ("model", False),
        (None, True),
    ]
    assert record_of(store, key).texts["code"] == "transport_timeout"


def test_a_run_that_marks_no_call_keeps_none(settings: Settings, store: Store):
    assert not record_of(store, execute(settings, store, lambda ctx: None)).provider_calls


def test_a_worker_tells_that_an_agent_wants_the_echo(settings: Settings):
    with process_with(settings, agent=agent(lambda ctx: None, echo_input=True)) as process:
        assert process.registry.catalogue()["agent"]["echo_input"] is True
