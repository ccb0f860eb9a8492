"""Ending a run whose worker is gone, without waiting for the sweep."""

from __future__ import annotations

import pytest

from shared.store import keys
from tests.web.operators import Desk, desk
from tests.web.played_worker import problem_of

__all__ = ["desk"]


@pytest.fixture
def orphan(desk: Desk) -> str:
    """A claimed run whose lease ran out; the sweep judges no lease before its first patience is over."""
    key = desk.submit()
    desk.worker.claim(key)
    desk.store.client.zadd(keys.leases(key[:2]), {key: 1})
    return key


def test_an_orphan_is_ended_as_worker_lost_with_who_and_why(desk: Desk, orphan: str):
    assert desk.viewer.get(f"/ops/api/runs/{orphan}").get_json()["actions"]["mark_lost"] == {"allowed": True}
    answer = desk.admin.post(f"/ops/api/runs/{orphan}/mark-lost", json={"reason": "host burnt"}).get_json()
    assert (answer["result"], answer["run"]["status"], answer["run"]["code"]) == (
        *("marked_lost", "failed", "worker_lost"),
    )
    assert answer["run"]["detail"] == "Marked lost by adam: host burnt"
    (entry,) = desk.audit()
    assert (entry["action"], entry["run"], entry["reason"]) == ("mark_lost", orphan, "host burnt")
    last = desk.ann.get("/threads/thread/runs/run/events", Accept="application/json").get_json()["events"][-1]
    assert (last["event"]["type"], last["event"]["code"]) == ("RUN_ERROR", "worker_lost")


def test_what_the_lost_worker_still_writes_is_refused(desk: Desk):
    key = desk.submit()
    claim = desk.worker.claim(key)
    desk.store.client.zadd(keys.leases(key[:2]), {key: 1})
    desk.admin.post(f"/ops/api/runs/{key}/mark-lost")
    before = desk.store.runs.get(key).last_seq
    with pytest.raises(AssertionError):
        desk.worker.finish(claim)
    assert desk.store.runs.get(key).last_seq == before


def test_a_run_that_lost_its_lease_altogether_can_be_marked(desk: Desk, orphan: str):
    desk.store.client.zrem(keys.leases(orphan[:2]), orphan)
    assert desk.admin.post(f"/ops/api/runs/{orphan}/mark-lost").status_code == 200
    assert desk.store.runs.get(orphan).texts["code"] == "worker_lost"


def test_a_run_whose_worker_is_there_is_not_marked(desk: Desk):
    running, queued = desk.submit("r1", "t1"), desk.submit("r2", "t2")
    desk.worker.claim(running)
    for key in (running, queued):
        problem_of(desk.admin.post(f"/ops/api/runs/{key}/mark-lost"), 409, "RUN_ACTIVE")
    assert [desk.store.runs.get(key).status for key in (running, queued)] == ["running", "queued"]
    assert {entry["result"] for entry in desk.audit()} == {"refused"}


def test_an_ended_run_keeps_its_outcome(desk: Desk):
    key = desk.submit()
    desk.worker.run(key, "x")
    problem_of(desk.admin.post(f"/ops/api/runs/{key}/mark-lost"), 409, "RUN_ENDED")
    assert desk.store.runs.get(key).status == "succeeded"


def test_a_cancel_that_another_ender_began_stays_a_cancel(desk: Desk, orphan: str):
    desk.store.client.hset(keys.record(orphan), "ending", "cancelled")
    problem_or_done = desk.admin.post(f"/ops/api/runs/{orphan}/mark-lost")
    assert problem_or_done.status_code == 200
    assert desk.store.runs.get(orphan).status == "cancelled"


def test_an_operator_may_not(desk: Desk, orphan: str):
    answer = desk.operator.post(f"/ops/api/runs/{orphan}/mark-lost")
    assert "admin" in problem_of(answer, 403, "FORBIDDEN")["detail"]
    assert desk.store.runs.get(orphan).status == "running"
