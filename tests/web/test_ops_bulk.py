"""Cancelling many runs: counted, confirmed, bounded, in the background."""

from __future__ import annotations

import pytest

from shared.store import bulk as bulk_module
from tests.web.operators import Body, Desk, desk
from tests.web.played_worker import problem_of
from web.ops import bulk_acts

__all__ = ["desk"]


def submit_many(desk: Desk, count: int) -> list[str]:
    return [desk.submit(f"r{number}", f"t{number}") for number in range(count)]


def post(desk: Desk, **body: object):
    return desk.operator.post("/ops/api/bulk-cancel", json=body)


def done(desk: Desk, eventually, bulk_id: str) -> Body:
    def read() -> Body | None:
        found = desk.viewer.get(f"/ops/api/bulk-cancel/{bulk_id}").get_json()
        return found if found["state"] != "running" else None

    return eventually(read, 10)


def test_a_dry_run_counts_and_shows_five_examples_and_stops_nothing(desk: Desk):
    run_keys = submit_many(desk, 7)
    preview = post(desk, filter={"agent": "echo"}, dry_run=True).get_json()
    assert (preview["count"], preview["matched"], preview["capped"]) == (7, 7, False)
    assert [row["key"] for row in preview["examples"]] == run_keys[:5]
    assert preview["words"] == "agent echo"
    assert desk.store.runs.get(run_keys[0]).status == "queued"


def test_confirmed_runs_are_stopped_and_each_result_is_told(desk: Desk, eventually):
    run_keys = submit_many(desk, 6)
    desk.worker.claim(run_keys[0])
    answer = post(desk, filter={"actor": "ann"}, reason="flood", confirm_count=6)
    assert answer.status_code == 202
    bulk_id = answer.get_json()["id"]
    assert answer.headers["Location"] == f"/ops/api/bulk-cancel/{bulk_id}"
    found = done(desk, eventually, bulk_id)
    assert found["counts"] == {"asked": 1, "cancelled": 5, "already_finished": 0, "refused": 0, "failed": 0}
    assert {one["key"]: one["result"] for one in found["results"]}[run_keys[0]] == "asked"
    assert (found["by"], found["reason"], found["done"]) == ("olga", "flood", 6)
    (entry,) = desk.audit()
    assert (entry["action"], entry["bulk"], entry["filter"]) == ("bulk_cancel", bulk_id, {"actor": "ann"})
    assert entry["counts"]["total"] == 6


def test_without_a_confirmed_count_or_with_too_small_a_one_nothing_happens(desk: Desk):
    run_keys = submit_many(desk, 3)
    for confirmed in ({}, {"confirm_count": 2}):
        refused = problem_of(post(desk, filter={"agent": "echo"}, **confirmed), 409, "COUNT_CHANGED")
        assert refused["preview"]["count"] == 3
    assert {desk.store.runs.get(key).status for key in run_keys} == {"queued"}
    assert [entry["result"] for entry in desk.audit()] == ["refused", "refused"]


@pytest.mark.parametrize("empty", [{}, {"status": []}, {"q": ""}])
def test_an_empty_filter_is_refused(desk: Desk, empty: Body):
    submit_many(desk, 1)
    problem_of(post(desk, filter=empty, confirm_count=1), 400, "EMPTY_FILTER")
    problem_of(post(desk, filter=empty, dry_run=True), 400, "EMPTY_FILTER")
    problem_of(desk.operator.post("/ops/api/bulk-cancel"), 400, "EMPTY_FILTER")


def test_a_misspelt_member_is_refused_rather_than_ignored(desk: Desk):
    submit_many(desk, 1)
    body = problem_of(post(desk, filter={"agnet": "other"}, confirm_count=9), 400, "INVALID_INPUT")
    assert body["field"] == "agnet"


def test_a_filter_that_only_ended_runs_fit_matches_nothing(desk: Desk):
    submit_many(desk, 2)
    problem_of(post(desk, filter={"status": ["failed"]}, confirm_count=9), 409, "NOTHING_MATCHES")


def test_more_than_the_cap_are_left_for_the_next_time(desk: Desk, eventually, monkeypatch):
    monkeypatch.setattr(bulk_acts, "MOST_RUNS", 3)
    run_keys = submit_many(desk, 5)
    found = done(desk, eventually, post(desk, filter={"agent": "echo"}, confirm_count=3).get_json()["id"])
    assert (found["matched"], found["total"]) == (5, 3)
    ended = [key for key in run_keys if desk.store.runs.get(key).ended]
    assert ended == run_keys[:3]


def test_a_stop_leaves_the_rest_alone(desk: Desk, monkeypatch):
    monkeypatch.setattr(bulk_module.BulkCancels, "work", lambda *_: 0)
    submit_many(desk, 2)
    bulk_id = post(desk, filter={"agent": "echo"}, confirm_count=2).get_json()["id"]
    assert desk.operator.post(f"/ops/api/bulk-cancel/{bulk_id}/stop").get_json()["state"] == "stopped"
    assert [entry["action"] for entry in desk.audit()] == ["stop_bulk", "bulk_cancel"]
    problem_of(desk.operator.post("/ops/api/bulk-cancel/none/stop"), 404, "UNKNOWN_BULK")
    problem_of(desk.viewer.get("/ops/api/bulk-cancel/none"), 404, "UNKNOWN_BULK")


def test_what_a_dead_process_left_is_finished_by_the_sweep(desk: Desk, eventually, monkeypatch):
    monkeypatch.setattr(bulk_acts, "_work", lambda *_: None)
    submit_many(desk, 4)
    bulk_id = post(desk, filter={"agent": "echo"}, confirm_count=4).get_json()["id"]
    assert done(desk, eventually, bulk_id)["counts"]["cancelled"] == 4
    assert desk.viewer.get("/ops/api/bulk-cancel").get_json()["bulks"][0]["id"] == bulk_id
