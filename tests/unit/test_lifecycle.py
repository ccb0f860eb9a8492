"""The transition table and what derives from it."""

from __future__ import annotations

from shared.runs.lifecycle import TRANSITIONS, Status, Step, before, follows, is_terminal


def test_endings_are_the_statuses_that_nothing_leaves():
    left = {status for edges in TRANSITIONS.values() for status, _ in edges}
    assert {status for status in Status if is_terminal(status)} == set(Status) - left


def test_every_status_is_reached_by_some_step():
    reached = {status for edges in TRANSITIONS.values() for _, after in edges for status in after}
    assert reached == set(Status)


def test_scripts_take_the_allowed_statuses_from_the_table():
    assert before(Step.CLAIM) == ("queued",)
    assert before(Step.FINISH) == ("queued", "running")


def test_a_queued_run_is_never_recorded_as_succeeded():
    assert Status.SUCCEEDED not in follows(Step.FINISH, Status.QUEUED)
    assert follows(Step.CLAIM, Status.RUNNING) == frozenset()
