"""A bulk cancel over runs that were named one by one, and another one for those that failed."""

from __future__ import annotations

import pytest

from shared.store.bulk import BulkCancels
from tests.web.operators import Body, Desk, desk
from tests.web.played_worker import problem_of

__all__ = ["desk"]


def _done(desk: Desk, eventually, bulk_id: str) -> Body:
    def read() -> Body | None:
        found = desk.viewer.get(f"/ops/api/bulk-cancel/{bulk_id}").get_json()
        return found if found["state"] != "running" else None

    return eventually(read, 10)


def _tick(desk: Desk, run_keys: list[str], **body: str):
    return desk.operator.post("/ops/api/bulk-cancel", json={"keys": run_keys, **body})


def test_named_runs_are_one_bulk_with_one_entry_and_a_word_on_each_run(desk: Desk, eventually):
    run_keys = [desk.submit(f"r{number}", f"t{number}") for number in range(3)]
    desk.worker.run(run_keys[0], "x")
    made = _tick(desk, [*run_keys, run_keys[1]], reason="wrong model")
    assert made.status_code == 202
    found = _done(desk, eventually, made.get_json()["id"])
    assert (found["words"], found["total"], "filter" in found) == ("3 ticked runs", 3, False)
    assert (found["counts"]["cancelled"], found["counts"]["already_finished"]) == (2, 1)
    (entry,) = desk.audit()
    assert (entry["action"], entry["detail"], entry["counts"]["total"]) == ("bulk_cancel", "3 ticked runs", 3)
    (own,) = desk.viewer.get(f"/ops/api/audit?run={run_keys[1]}").get_json()["entries"]
    assert (own["by"], own["result"], own["bulk"], own["reason"]) == (
        *("olga", "cancelled", found["id"], "wrong model"),
    )


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"keys": []}, 409, "NOTHING_MATCHES"),
        ({"keys": ["no key"]}, 400, "INVALID_INPUT"),
        ({"keys": "b0"}, 400, "INVALID_INPUT"),
        ({"keys": [], "filter": {"agent": "echo"}}, 400, "INVALID_INPUT"),
    ],
)
def test_keys_are_run_keys_and_no_filter_is_beside_them(desk: Desk, body: Body, status: int, code: str):
    desk.submit()
    problem_of(desk.operator.post("/ops/api/bulk-cancel", json=body), status, code)


def test_a_viewer_names_no_runs(desk: Desk):
    key = desk.submit()
    problem_of(desk.viewer.post("/ops/api/bulk-cancel", json={"keys": [key]}), 403, "FORBIDDEN")
    assert desk.store.runs.get(key).status == "queued"


def test_those_that_could_not_be_asked_are_asked_again_in_a_bulk_of_their_own(
    desk: Desk, eventually, monkeypatch
):
    run_keys = [desk.submit(f"r{number}", f"t{number}") for number in range(2)]
    ask = BulkCancels._cancel
    monkeypatch.setattr(
        BulkCancels,
        "_cancel",
        lambda self, key, *rest: "failed" if key == run_keys[0] else ask(self, key, *rest),
    )
    first = _tick(desk, run_keys, reason="flood").get_json()["id"]
    assert _done(desk, eventually, first)["counts"]["failed"] == 1
    monkeypatch.setattr(BulkCancels, "_cancel", ask)
    again = desk.operator.post(f"/ops/api/bulk-cancel/{first}/retry")
    found = _done(desk, eventually, again.get_json()["id"])
    assert (found["retry_of"], found["total"], found["reason"]) == (first, 1, "flood")
    assert found["words"] == "what failed of: 2 ticked runs"
    assert desk.store.runs.get(run_keys[0]).status == "cancelled"
    problem_of(desk.operator.post(f"/ops/api/bulk-cancel/{found['id']}/retry"), 409, "NOTHING_MATCHES")
    assert [entry["action"] for entry in desk.audit()] == ["retry_bulk", "retry_bulk", "bulk_cancel"]


def test_only_what_is_there_can_be_repeated(desk: Desk):
    problem_of(desk.operator.post("/ops/api/bulk-cancel/none/retry"), 404, "UNKNOWN_BULK")
