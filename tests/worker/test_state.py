"""Shared state: changed silently, published as a snapshot, then as the shorter of patch and snapshot."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.protocol import events as ag
from shared.protocol.events import EventType, SerializationError
from shared.runs.outcome import StopCause
from worker.agents import Cancelled
from worker.agents.testing import recorded_context, run_input
from worker.state import SharedState

BIG = {f"member-{number}": "x" * 20 for number in range(20)}


@pytest.fixture
def run():
    return recorded_context(run_input(state=dict(BIG)))


def test_changes_are_silent(run):
    ctx, recorded = run
    ctx.state["x"] = 1
    assert len(recorded) == 1


def test_the_first_publishing_is_a_snapshot_even_without_changes(run):
    ctx, recorded = run
    ctx.publish_state()
    assert recorded[-1] == ag.StateSnapshotEvent(snapshot=BIG)


def test_a_small_change_of_a_big_state_is_a_patch(run):
    ctx, recorded = run
    ctx.publish_state()
    ctx.state["x"] = 1
    ctx.publish_state()
    assert recorded[-1].type is EventType.STATE_DELTA
    assert [operation.model_dump() for operation in recorded[-1].delta] == [
        {"op": "add", "path": "/x", "value": 1}
    ]


def test_a_patch_that_is_not_shorter_is_a_snapshot():
    ctx, recorded = recorded_context(run_input(state={"a": 1}))
    ctx.publish_state()
    ctx.state["a"] = 2
    ctx.publish_state()
    assert recorded[-1] == ag.StateSnapshotEvent(snapshot={"a": 2})


def test_nothing_is_sent_when_nothing_changed(run):
    ctx, recorded = run
    ctx.publish_state()
    ctx.state = dict(reversed(ctx.state.items()))
    ctx.publish_state()
    assert len(recorded) == 2


def test_true_is_not_one(run):
    ctx, recorded = run
    ctx.state["x"] = 1
    ctx.publish_state()
    ctx.state["x"] = True
    ctx.publish_state()
    assert recorded[-1].delta[0].value is True


def test_later_changes_do_not_reach_what_was_published(run):
    ctx, recorded = run
    ctx.state["list"] = [1]
    ctx.publish_state()
    ctx.state["list"].append(2)
    assert recorded[-1].snapshot["list"] == [1]


def test_the_state_may_be_replaced(run):
    ctx, recorded = run
    ctx.publish_state()
    ctx.state = [1, 2]
    ctx.publish_state()
    assert recorded[-1] == ag.StateSnapshotEvent(snapshot=[1, 2])


def test_a_hand_made_state_event_makes_the_next_publishing_a_snapshot(run):
    ctx, recorded = run
    ctx.publish_state()
    ctx.emit(ag.StateSnapshotEvent(snapshot={}))
    ctx.publish_state()
    assert recorded[-1] == ag.StateSnapshotEvent(snapshot=BIG)


def test_a_state_without_json_is_refused_and_can_be_mended(run):
    ctx, recorded = run
    ctx.state["x"] = float("nan")
    with pytest.raises(SerializationError):
        ctx.publish_state()
    ctx.state["x"] = 0
    ctx.publish_state()
    assert recorded[-1].snapshot["x"] == 0


def test_publishing_after_the_trip_is_refused_also_without_changes(run):
    ctx, _ = run
    ctx.publish_state()
    ctx.token.trip(StopCause.CLIENT)
    with pytest.raises(Cancelled):
        ctx.publish_state()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab/~", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.text("abc", max_size=2), JSON, max_size=5), min_size=2, max_size=5))
def test_a_client_that_applies_every_event_has_the_state(states: list[Any]):
    shared = SharedState(states[0])
    seen: Any = None

    def apply(event: Any) -> None:
        nonlocal seen
        if isinstance(event, ag.StateSnapshotEvent):
            seen = event.snapshot
        else:
            seen = jsonpatch.apply_patch(seen, [operation.model_dump() for operation in event.delta])

    for state in states:
        shared.value = state
        shared.publish(apply)
        assert repr_of(seen) == repr_of(state)


def repr_of(value: Any) -> str:
    if isinstance(value, dict):
        return repr(sorted((key, repr_of(member)) for key, member in value.items()))
    if isinstance(value, list):
        return repr([repr_of(member) for member in value])
    return repr(value)
