"""An activity is shown when it is made and changes by a patch or as a whole."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from shared.protocol import events as ag
from shared.protocol.events import EventType, SerializationError
from shared.protocol.verifier import Verifier
from shared.runs.outcome import StopCause
from worker.agents import Cancelled, ProtocolError, RunContext
from worker.agents.testing import CancellationToken, RecordingSink, recorded_context, run_input

LONG = {"title": "x" * 200}


@pytest.fixture
def run():
    return recorded_context()


def test_an_activity_is_shown_at_once_under_a_deterministic_id(run):
    ctx, recorded = run
    plan = ctx.activity("PLAN", {"steps": []})
    ctx.activity("MAP", {})
    assert plan.id == "run-act-1"
    assert recorded[1:] == [
        ag.ActivitySnapshotEvent(message_id="run-act-1", activity_type="PLAN", content={"steps": []}),
        ag.ActivitySnapshotEvent(message_id="run-act-2", activity_type="MAP", content={}),
    ]


def test_a_changed_content_is_published_as_a_patch_where_that_is_shorter(run):
    ctx, recorded = run
    plan = ctx.activity("PLAN", dict(LONG))
    plan.content["done"] = 1
    plan.publish()
    plan.publish()
    assert [event.type for event in recorded[2:]] == [EventType.ACTIVITY_DELTA]
    assert [operation.model_dump() for operation in recorded[2].patch] == [
        {"op": "add", "path": "/done", "value": 1}
    ]


def test_a_changed_content_is_published_whole_where_a_patch_is_longer(run):
    ctx, recorded = run
    plan = ctx.activity("PLAN", {"a": 1})
    plan.content = {"a": 2}
    plan.publish()
    assert recorded[-1] == ag.ActivitySnapshotEvent(
        message_id=plan.id, activity_type="PLAN", content={"a": 2}
    )


def test_content_may_be_replaced(run):
    ctx, recorded = run
    plan = ctx.activity("PLAN", dict(LONG))
    plan.replace({"done": True})
    assert recorded[-1].content == {"done": True}
    plan.publish()
    assert len(recorded) == 3


def test_a_patch_is_sent_and_applied(run):
    ctx, recorded = run
    plan = ctx.activity("PLAN", {"steps": ["a"]})
    plan.patch([{"op": "add", "path": "/steps/-", "value": "b"}])
    assert plan.content == {"steps": ["a", "b"]}
    assert recorded[-1].type is EventType.ACTIVITY_DELTA
    plan.publish()
    assert len(recorded) == 3


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "remove", "path": "/nowhere"}],
        [{"op": "add", "value": 1}],
        [{"op": "add", "path": "/a", "value": 1}, {"op": "test", "path": "/a", "value": 2}],
    ],
    ids=["does not apply", "no path", "half of it applies"],
)
def test_a_patch_that_does_not_apply_sends_and_changes_nothing(run, operations):
    ctx, recorded = run
    plan = ctx.activity("PLAN", {"steps": []})
    with pytest.raises(ProtocolError):
        plan.patch(operations)
    assert plan.content == {"steps": []}
    assert len(recorded) == 2


def test_a_models_content_is_sent_as_its_json(run):
    class Plan(BaseModel):
        steps: list[str] = []

    ctx, recorded = run
    plan = ctx.activity("PLAN", Plan())
    plan.content.steps.append("a")
    plan.publish()
    assert recorded[-1].content == {"steps": ["a"]}


def test_a_patched_model_is_a_model_still(run):
    class Plan(BaseModel):
        steps: list[str] = []

    ctx, recorded = run
    plan = ctx.activity("PLAN", Plan())
    plan.patch([{"op": "add", "path": "/steps/-", "value": "a"}])
    assert plan.content == Plan(steps=["a"])
    plan.publish()
    assert len(recorded) == 3


def test_a_patch_that_the_model_refuses_sends_and_changes_nothing(run):
    class Plan(BaseModel):
        steps: list[str] = []

    ctx, recorded = run
    plan = ctx.activity("PLAN", Plan())
    with pytest.raises(SerializationError):
        plan.patch([{"op": "replace", "path": "/steps", "value": 3}])
    assert plan.content == Plan()
    assert len(recorded) == 2


def test_content_that_is_no_object_is_refused(run):
    ctx, recorded = run
    with pytest.raises(SerializationError):
        ctx.activity("PLAN", [1])
    assert len(recorded) == 1


def test_later_changes_do_not_reach_what_was_sent(run):
    ctx, recorded = run
    plan = ctx.activity("PLAN", {"steps": []})
    plan.content["steps"].append("a")
    assert recorded[-1].content == {"steps": []}


def test_an_activity_of_an_earlier_run_may_be_left_as_the_client_has_it(run):
    ctx, recorded = run
    plan = ctx.activity("PLAN", {"steps": []}, activity_id="kept", replace=False)
    assert (recorded[-1].message_id, recorded[-1].replace) == ("kept", False)
    plan.content["x"] = 1
    plan.publish()
    # What the client has is not known, so it gets all of it.
    assert recorded[-1].type is EventType.ACTIVITY_SNAPSHOT


def test_an_activity_belongs_to_the_subagent_that_made_it(run):
    ctx, recorded = run
    with ctx.subagent("s") as helper:
        plan = ctx.activity("PLAN", dict(LONG))
    plan.content["done"] = 1
    plan.publish()
    assert [recorded[2].subagent_run_id, recorded[-1].subagent_run_id] == [helper.id, helper.id]


def test_a_change_after_the_trip_is_refused(run):
    ctx, recorded = run
    plan = ctx.activity("PLAN", dict(LONG))
    plan.content["done"] = 1
    ctx.token.trip(StopCause.CLIENT)
    with pytest.raises(Cancelled):
        plan.publish()
    assert len(recorded) == 2


def shown(events: Sequence[ag.Event]) -> Any:
    """The content that a client has which applies every event."""
    seen = None
    for event in events[1:]:
        if event.type is EventType.ACTIVITY_SNAPSHOT:
            seen = event.content
        else:
            seen = jsonpatch.apply_patch(seen, [operation.model_dump() for operation in event.patch])
    return seen


CONTENT = st.dictionaries(
    st.text("ab/~", max_size=2), st.integers(0, 3) | st.lists(st.integers(0, 2), max_size=3), max_size=4
)


@settings(deadline=None)
@given(st.lists(CONTENT, min_size=2, max_size=5))
def test_a_client_that_applies_every_event_has_the_content(contents):
    ctx, recorded = recorded_context()
    activity = ctx.activity("PLAN", contents[0])
    for content in contents[1:]:
        activity.content = content
        activity.publish()
    assert shown(recorded) == contents[-1]


class Paused(RecordingSink):
    """Holds the first delta up until another thread had its chance to publish."""

    def __init__(self, verifier: Verifier) -> None:
        super().__init__(verifier)
        self.reached, self.go_on = threading.Event(), threading.Event()

    def take(self, event: ag.Event) -> None:
        if event.type is EventType.ACTIVITY_DELTA and not self.reached.is_set():
            self.reached.set()
            self.go_on.wait(0.3)
        super().take(event)


def test_two_threads_that_publish_at_once_send_each_change_once():
    given = run_input()
    sink = Paused(Verifier(given.messages))
    sink.take(ag.run_started(given.thread_id, given.run_id))
    plan = RunContext(given, sink=sink, token=CancellationToken()).activity("PLAN", LONG | {"done": []})
    plan.content["done"].append(1)
    first = threading.Thread(target=plan.publish)
    first.start()
    assert sink.reached.wait(5)
    plan.content["done"].append(2)
    plan.publish()
    sink.go_on.set()
    first.join(5)
    assert shown(sink.events) == plan.content
