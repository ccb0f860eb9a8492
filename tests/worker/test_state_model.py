"""State by a pydantic model: given to the agent as an instance, a misfit is refused before the agent."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, Field

from shared.protocol import events as ag
from shared.protocol.events import EventType, SerializationError
from worker.agents import RunContext, agent
from worker.agents.testing import record, recorded_context, run_input


class Plan(BaseModel):
    model_config = ConfigDict(validate_assignment=True)

    title: str = "untitled"
    steps: list[str] = []
    done_count: int = Field(default=0, alias="doneCount")


class Strict(BaseModel):
    title: str


def test_the_state_is_an_instance_of_the_model():
    ctx, _ = recorded_context(run_input(state={"title": "t", "doneCount": 2}), state=Plan)
    assert ctx.state == Plan(title="t", doneCount=2)


@pytest.mark.parametrize("members", [{}, {"state": None}, {"state": {}}], ids=["absent", "null", "empty"])
def test_no_state_gives_the_models_default(members):
    ctx, _ = recorded_context(run_input(**members), state=Plan)
    assert ctx.state == Plan()


def test_it_is_published_under_the_names_of_the_wire():
    ctx, recorded = recorded_context(run_input(state={"title": "t" * 100}), state=Plan)
    ctx.publish_state()
    ctx.state.done_count = 1
    ctx.publish_state()
    assert recorded[1].snapshot == {"title": "t" * 100, "steps": [], "doneCount": 0}
    assert [operation.path for operation in recorded[2].delta] == ["/doneCount"]


def test_a_misfit_ends_the_run_without_calling_the_agent():
    called = []

    @agent(state=Plan)
    def planner(ctx: RunContext) -> None:
        called.append(ctx)

    recorded = record(planner, run_input(state={"title": 5}))
    assert [event.type.value for event in recorded] == ["RUN_STARTED", "RUN_ERROR"]
    assert recorded[-1].code == "SERIALIZATION"
    assert called == []


def test_a_model_without_a_default_needs_a_state():
    assert record(agent(lambda ctx: None, state=Strict))[-1].code == "SERIALIZATION"
    assert record(agent(lambda ctx: None, state=Strict), run_input(state={"title": "t"}))[-1].outcome


def test_assigning_what_does_not_fit_is_refused_and_leaves_the_state():
    ctx, _ = recorded_context(state=Plan)
    with pytest.raises(SerializationError):
        ctx.state = {"steps": 1}
    assert ctx.state == Plan()
    ctx.state = {"title": "from a mapping"}
    assert ctx.state == Plan(title="from a mapping")


# The five methods, with and without a model


def test_update_changes_members_and_publishes():
    ctx, recorded = recorded_context(state=Plan)
    ctx.update_state(title="new")
    assert recorded[-1] == ag.StateSnapshotEvent(snapshot={"title": "new", "steps": [], "doneCount": 0})


def test_update_takes_a_function_of_the_state():
    ctx, recorded = recorded_context(run_input(state={"steps": []}))
    ctx.update_state(lambda state: state["steps"].append("a"), title="t")
    assert recorded[-1].snapshot == {"steps": ["a"], "title": "t"}


def test_replace_publishes_the_new_state():
    ctx, recorded = recorded_context(run_input(state={"old": 1}))
    ctx.replace_state({"new": 1})
    assert recorded[-1] == ag.StateSnapshotEvent(snapshot={"new": 1})


def test_reset_makes_the_next_publishing_a_snapshot_even_without_a_change():
    ctx, recorded = recorded_context(run_input(state={"a": 1}))
    ctx.publish_state()
    ctx.reset_state()
    ctx.publish_state()
    assert [event.type for event in recorded[1:]] == [EventType.STATE_SNAPSHOT] * 2


def test_a_refused_publishing_is_said_again():
    ctx, recorded = recorded_context(transformers=[Refusing()])
    with pytest.raises(SerializationError):
        ctx.publish_state()
    ctx.publish_state()
    assert recorded[-1].type is EventType.STATE_SNAPSHOT


class Refusing:
    """Turns the first event into one that has no JSON form."""

    def __init__(self) -> None:
        self.first = True

    def __call__(self, event: ag.Event) -> list[ag.Event]:
        first, self.first = self.first, False
        return [ag.StateSnapshotEvent(snapshot=float("nan"))] if first else [event]
