"""What may be said about an agent, and how."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from pydantic import BaseModel

from shared.protocol import events as ag
from worker.agents import AgentEntry, FilterToolCalls, RunContext, Timestamps, agent
from worker.agents.entries import entry_for
from worker.agents.registry import Registry, RegistryError
from worker.agents.testing import record, run_input


class State(BaseModel):
    count: int = 0


def body(ctx: RunContext) -> None:
    """Does nothing. Much more."""


def test_a_decorated_agent_is_an_entry_with_its_facts():
    @agent(description="Plans.", policy="reject", state=State, echo_input=True, transformers=[Timestamps])
    async def planner(ctx: RunContext) -> None:
        ctx.say("hi")

    assert isinstance(planner, AgentEntry)
    assert (planner.name, planner.description, planner.policy) == ("planner", "Plans.", "reject")
    assert (planner.state_model, planner.echo_input, planner.transformers) == (State, True, (Timestamps,))
    assert inspect.iscoroutinefunction(planner.run)


def test_without_facts_it_is_the_agent_as_it_is():
    entry = agent(body)
    assert (entry.description, entry.policy, entry.transformers) == (
        "Does nothing. Much more.",
        "enqueue",
        (),
    )
    assert agent()(body).facts() == entry.facts()


def test_facts_are_added_to_an_entry():
    entry = agent(agent(body, policy="reject"), description="Other")
    assert (entry.policy, entry.description) == ("reject", "Other")


def test_capabilities_that_have_no_json_form_are_refused():
    with pytest.raises(TypeError, match="capabilities that cannot be told"):
        agent(body, capabilities={"since": {1, 2}})


def test_models_inside_of_capabilities_are_told_as_their_json():
    told = agent(body, capabilities={"state": ag.StateCapabilities(snapshots=True)}).capabilities
    assert told["state"]["snapshots"] is True


def test_the_attributes_of_an_agent_object_are_read():
    class Agent:
        transformers = (FilterToolCalls.denying("x"),)
        state = State
        echo_input = True
        policy = "interrupt"

        async def run(self, ctx: RunContext) -> None:
            """Runs."""

    entry = entry_for("a", Agent())
    assert (entry.state_model, entry.echo_input, entry.policy) == (State, True, "interrupt")
    assert len(entry.transformers) == 1


def test_a_state_of_the_objects_own_is_no_model():
    class Agent:
        def __init__(self) -> None:
            self.state = {"mine": 1}

        def run(self, ctx: RunContext) -> None:
            """Runs."""

    assert entry_for("a", Agent()).state_model is None


def test_only_what_is_said_is_in_the_catalogue():
    assert agent(body, description=None).facts() == {"policy": "enqueue"}
    assert agent(body, echo_input=True, capabilities=ag.AgentCapabilities()).facts()["echo_input"] is True


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"policy": "wait"}, "policy 'wait'"),
        ({"state": {"a": 1}}, "no pydantic model class"),
        ({"transformers": [lambda event: [event]]}, "cannot be called without arguments"),
        ({"transformers": [Timestamps()]}, "cannot be called without arguments"),
    ],
    ids=["policy", "state", "function", "instance"],
)
def test_facts_that_do_not_fit_are_refused_with_a_sentence(facts, sentence):
    with pytest.raises(TypeError, match=sentence):
        agent(body, **facts)


def test_the_registry_says_whose_facts_do_not_fit():
    class Agent:
        transformers = (Timestamps(),)

        def run(self, ctx: RunContext) -> None:
            """Runs."""

    with pytest.raises(RegistryError, match=r"names an agent 'a', which has the transformer"):
        Registry().add("a", Agent(), "a test")


def test_a_registered_entry_gets_the_registered_name():
    registry = Registry()
    registry.add("b", agent(body, echo_input=True), "a test")
    assert registry.get("b").name == "b"
    assert registry.catalogue()["b"]["echo_input"] is True


def test_the_echo_carries_the_request():
    given = run_input("hello", tools=[{"name": "t", "description": "d"}])
    assert record(agent(body, echo_input=True), given)[0].input == given
    assert record(body, given)[0].input is None


def test_what_an_agent_keeps_is_closed_with_the_recorded_run():
    closed = []

    class Client:
        async def aclose(self) -> None:
            closed.append(asyncio.get_running_loop().is_running())

    async def uses(ctx: RunContext) -> None:
        first = await ctx.resources.on_loop("client", Client)
        assert await ctx.resources.on_loop("client", Client) is first

    assert record(uses)[-1].outcome.type == "success"
    assert closed == [True]
