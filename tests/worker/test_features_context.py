"""What the run context promises and no other test states: roles, chosen ids, steps, tags, unoffered tools."""

from __future__ import annotations

import pytest

from shared.protocol import events as ag
from shared.protocol.verifier import VerificationError
from worker.agents import AgentError, Interrupt, RunContext
from worker.agents.testing import record, recorded_context, run_input


@pytest.mark.parametrize("role", ["assistant", "user", "system", "developer"])
def test_a_message_has_the_role_it_is_given(role):
    ctx, recorded = recorded_context()
    with ctx.message(role) as message:
        message.delta("x")
    assert recorded[1] == ag.TextMessageStartEvent(message_id="run-msg-1", role=role)


def test_a_message_whose_start_is_refused_has_no_end():
    ctx, recorded = recorded_context()
    ctx.message(message_id="m").open()
    with pytest.raises(VerificationError), ctx.message(message_id="m"):
        pass
    assert [event.type.value for event in recorded] == ["RUN_STARTED", "TEXT_MESSAGE_START"]


def test_an_agent_may_choose_every_id_itself():
    ctx, recorded = recorded_context()
    with ctx.subagent("writer", subagent_id="s"), ctx.message(message_id="m") as message:
        message.delta("x")
    with ctx.reasoning(message_id="r"), ctx.tool_call("look", call_id="c", parent_message_id="m") as call:
        call.result("found")
    with ctx.message() as counted:
        counted.delta("y")
    assert [recorded[1].subagent_run_id, recorded[2].message_id, message.id, call.id] == ["s", "m", "m", "c"]
    called = next(event for event in recorded if isinstance(event, ag.ToolCallStartEvent))
    assert called.parent_message_id == "m"
    # What was chosen counts for nothing: only the result's own message took a number.
    assert counted.id == "run-msg-2"


def leaving(how: str):
    def agent(ctx: RunContext) -> Interrupt | None:
        with ctx.step("work"):
            if how == "return":
                return None
            if how == "interrupt":
                return Interrupt(reason="confirmation")
            if how == "agent error":
                raise AgentError("no")
            if how == "crash":
                raise RuntimeError
        return None

    return agent


@pytest.mark.parametrize("how", ["end", "return", "interrupt", "agent error", "crash"])
def test_a_step_finishes_on_every_way_out(how):
    recorded = record(leaving(how), run_input("hello"))
    assert recorded[1:3] == [ag.StepStartedEvent(step_name="work"), ag.StepFinishedEvent(step_name="work")]
    assert len(recorded) == 4


def test_a_tag_that_an_event_brings_is_kept():
    ctx, recorded = recorded_context()
    with ctx.subagent("outer", subagent_id="a"), ctx.subagent("inner", subagent_id="b"):
        ctx.emit(ag.CustomEvent(name="mine", value=1))
        ctx.emit(ag.CustomEvent(name="theirs", value=1, subagent_run_id="a"))
    tags = {event.name: event.subagent_run_id for event in recorded if isinstance(event, ag.CustomEvent)}
    assert tags == {"mine": "b", "theirs": "a"}


def test_a_tool_that_the_client_did_not_offer_may_be_called():
    offered = [{"name": "offered", "description": "", "parameters": {}}]

    def agent(ctx: RunContext) -> None:
        assert ctx.tool("mine") is None
        with ctx.tool_call("mine") as call:
            call.result({"done": True})

    recorded = record(agent, run_input("hello", tools=offered))
    assert recorded[-1].type.value == "RUN_FINISHED"
