"""What operators do through the API: by role, audited, refused in order."""

from __future__ import annotations

import pytest

from shared.runs.outcome import Outcome
from shared.store import keys
from tests.web.operators import Desk, desk
from tests.web.played_worker import problem_of

__all__ = ["desk"]


def test_a_cancel_names_the_operator_and_the_reason_and_is_audited(desk: Desk):
    key = desk.submit()
    desk.worker.claim(key)
    body = {"reason": "stuck"}
    answer = desk.operator.post(f"/ops/api/runs/{key}/cancel", json=body, headers={"X-Request-Id": "q1"})
    assert answer.get_json()["result"] == "requested"
    record = desk.store.runs.get(key)
    assert (record.texts["cancel_by"], record.texts["cancel_cause"]) == ("olga", "operator")
    (entry,) = desk.audit()
    assert entry | {"id": "", "at": "", "detail": ""} == {
        "id": "",
        "at": "",
        "detail": "",
        "by": "olga",
        "action": "cancel",
        "result": "requested",
        "run": key,
        "reason": "stuck",
        "request_id": "q1",
        "roles": ["operator"],
    }
    assert desk.viewer.get(f"/ops/api/audit?run={key}").get_json()["entries"][0]["by"] == "olga"


def test_a_queued_run_is_cancelled_on_the_spot(desk: Desk):
    key = desk.submit()
    answer = desk.operator.post(f"/ops/api/runs/{key}/cancel").get_json()
    assert (answer["result"], answer["run"]["status"]) == ("cancelled", "cancelled")
    problem_of(desk.operator.post(f"/ops/api/runs/{key}/cancel"), 409, "RUN_ENDED")
    assert [entry["result"] for entry in desk.audit()] == ["refused", "cancelled"]


REFUSED = [
    ("viewer", "runs/{key}/cancel", "operator"),
    ("viewer", "runs/{key}/retry", "operator"),
    ("viewer", "runs/{key}/requeue", "operator"),
    ("ann", "runs/{key}/cancel", "operator"),
    ("operator", "runs/{key}/terminate", "admin"),
    ("operator", "pause", "admin"),
    ("operator", "resume", "admin"),
    ("operator", "workers/played@here/drain", "admin"),
    ("viewer", "bulk-cancel/b1/stop", "operator"),
]


@pytest.mark.parametrize(("who", "path", "role"), REFUSED)
def test_an_action_beyond_the_role_is_refused_and_the_attempt_audited(
    desk: Desk, who: str, path: str, role: str
):
    key = desk.submit()
    answer = getattr(desk, who).post(f"/ops/api/{path.format(key=key)}")
    assert role in problem_of(answer, 403, "FORBIDDEN")["detail"]
    assert desk.store.runs.get(key).status == "queued"
    entry = desk.audit()[0]
    assert (entry["result"], entry["by"]) == (
        "refused",
        {"viewer": "vera", "operator": "olga"}.get(who, "ann"),
    )


def test_a_forced_stop_waits_for_the_grace_unless_told_not_to(desk: Desk, eventually):
    first, second = desk.submit("r1", "t1"), desk.submit("r2", "t2")
    for key in (first, second):
        desk.worker.claim(key)
    refused = problem_of(desk.admin.post(f"/ops/api/runs/{first}/terminate"), 409, "GRACE")
    assert refused["seconds_left"] == 0.5
    desk.operator.post(f"/ops/api/runs/{first}/cancel")
    problem_of(desk.admin.post(f"/ops/api/runs/{first}/terminate"), 409, "GRACE")
    answer = eventually(
        lambda: (found := desk.admin.post(f"/ops/api/runs/{first}/terminate")).status_code == 200 and found, 3
    )
    assert answer.get_json()["result"] == "terminated"
    record = desk.store.runs.get(first)
    assert (record.status, record.texts["cancel_by"]) == ("cancelled", "olga")
    assert record.texts["terminated_by"] == "adam"
    now = desk.admin.post(f"/ops/api/runs/{second}/terminate?now=1", json={"reason": "fire"})
    assert now.get_json()["run"]["terminate_reason"] == "fire"
    problem_of(desk.admin.post(f"/ops/api/runs/{second}/terminate?now=1"), 409, "RUN_ENDED")


def test_a_retry_is_a_new_run_of_the_same_owner_and_both_know_each_other(desk: Desk):
    key = desk.submit(text="the same words")
    desk.worker.run(key, outcome=Outcome.cancelled())
    retry = desk.operator.post(f"/ops/api/runs/{key}/retry").get_json()["run"]
    assert (retry["run_id"], retry["actor"], retry["status"]) == ("run-retry-1", "ann", "queued")
    new = retry["key"]
    assert desk.viewer.get(f"/ops/api/runs/{new}").get_json()["retry_of"] == key
    assert desk.viewer.get(f"/ops/api/runs/{key}").get_json()["retried_as"] == [new]
    claim = desk.worker.claim(new)
    assert b"the same words" in claim.input
    assert b'"runId": "run-retry-1"' in claim.input or b'"runId":"run-retry-1"' in claim.input
    desk.worker.finish(claim)
    again = desk.operator.post(f"/ops/api/runs/{new}/retry").get_json()["run"]
    assert again["run_id"] == "run-retry-2"
    first = desk.ann.get("/threads/thread/runs/run-retry-1/events", Accept="application/json").get_json()
    assert first["events"][0]["event"]["runId"] == "run-retry-1"


def test_a_run_that_goes_on_is_not_retried(desk: Desk):
    problem_of(desk.operator.post(f"/ops/api/runs/{desk.submit()}/retry"), 409, "RUN_ACTIVE")


def test_a_queued_run_gets_a_new_message_and_no_other_does(desk: Desk):
    key, waiting = desk.submit("r1"), desk.submit("r2")
    before = desk.worker.messages()
    assert desk.operator.post(f"/ops/api/runs/{key}/requeue").get_json()["result"] == "enqueued"
    assert desk.worker.messages() == before + 1
    problem_of(desk.operator.post(f"/ops/api/runs/{waiting}/requeue"), 409, "THREAD_BUSY")
    claim = desk.worker.claim(key)
    problem_of(desk.operator.post(f"/ops/api/runs/{key}/requeue"), 409, "RUN_ACTIVE")
    desk.worker.finish(claim)
    problem_of(desk.operator.post(f"/ops/api/runs/{key}/requeue"), 409, "RUN_ENDED")


def test_the_intake_is_paused_and_resumed_and_everybody_sees_by_whom(desk: Desk):
    assert desk.admin.post("/ops/api/pause", json={"reason": "deploy"}).get_json()["result"] == "paused"
    paused = desk.viewer.get("/ops/api/queues").get_json()["paused"]
    assert (paused["by"], paused["reason"]) == ("adam", "deploy")
    key = desk.submit()
    assert desk.store.runs.claim(key, "e", worker="w", host="h", pid=1) is None
    assert desk.admin.post("/ops/api/resume").get_json()["result"] == "resumed"
    assert desk.admin.post("/ops/api/resume").get_json()["result"] == "unchanged"
    desk.worker.claim(key)


def test_a_known_worker_is_drained(desk: Desk):
    problem_of(desk.admin.post("/ops/api/workers/nobody/drain"), 404, "UNKNOWN_WORKER")
    answer = desk.admin.post("/ops/api/workers/played@here/drain", json={"reason": "hot"})
    assert answer.get_json()["result"] == "draining"
    assert desk.store.controls.drained("played@here")
    (row,) = desk.viewer.get("/ops/api/workers").get_json()["workers"]
    assert (row["draining"], row["draining_by"]["by"]) == (True, "adam")
    assert desk.admin.post("/ops/api/workers/played@here/undrain").get_json()["result"] == "resumed"
    assert not desk.store.controls.drained("played@here")


def test_a_known_worker_is_told_to_shut_down(desk: Desk):
    path = "/ops/api/workers/played@here/shutdown"
    problem_of(desk.operator.post(path), 403, "FORBIDDEN")
    problem_of(desk.admin.post("/ops/api/workers/nobody/shutdown"), 404, "UNKNOWN_WORKER")
    assert desk.admin.post(path, json={"reason": "leaks"}).get_json()["result"] == "shutting_down"
    switch = desk.store.controls.drained("played@here")
    assert switch is not None
    assert (switch.exit, switch.reason) == (True, "leaks")
    (row,) = desk.viewer.get("/ops/api/workers").get_json()["workers"]
    assert row["draining_by"]["exit"] is True
    assert [entry["result"] for entry in desk.audit()] == ["shutting_down", "refused", "refused"]


def test_forms_of_other_sites_cannot_act(desk: Desk):
    key = desk.submit()
    answer = desk.operator.post(f"/ops/api/runs/{key}/cancel", data={"reason": "x"})
    problem_of(answer, 415, "UNSUPPORTED_MEDIA_TYPE")
    assert desk.store.runs.get(key).status == "queued"


def test_a_record_that_disappeared_is_refused_and_audited(desk: Desk):
    key = desk.submit()
    desk.store.client.delete(keys.record(key))
    problem_of(desk.operator.post(f"/ops/api/runs/{key}/cancel"), 404, "UNKNOWN_RUN")
    assert desk.audit()[0]["result"] == "refused"
