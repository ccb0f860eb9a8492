"""Runs that paused for people's input, as operators see them."""

from __future__ import annotations

from typing import Any

from shared.runs.outcome import Outcome
from tests.web.operators import Desk, desk
from tests.web.played_worker import run_input

__all__ = ["desk"]

QUESTION = {"id": "q1", "reason": "confirmation", "message": "Send the secret letter?"}


def _ask(desk: Desk, run_id: str = "run") -> str:
    key = desk.submit(run_id)
    desk.worker.run(key, outcome=Outcome.interrupted([QUESTION]))
    return key


def _row(desk: Desk, key: str) -> dict[str, Any]:
    rows = desk.viewer.get("/ops/api/runs").get_json()["runs"]
    return next(row for row in rows if row["key"] == key)


def test_a_run_waits_for_input_until_the_next_run_has_brought_it(desk: Desk):
    key = _ask(desk)
    assert _row(desk, key)["waiting_for"] == [{"id": "q1"}]
    answer = run_input("answer", resume=[{"interruptId": "q1", "status": "resolved", "payload": True}])
    assert desk.ann.start_in_background(answer).status_code == 202
    next_key = next(row["key"] for row in desk.viewer.get("/ops/api/runs").get_json()["runs"])
    assert _row(desk, key)["waiting_for"] == [{"id": "q1", "by": next_key}]
    assert desk.viewer.get(f"/ops/api/runs/{key}").get_json()["run"]["waiting_for"][0]["by"] == next_key
    desk.worker.run(next_key)
    assert _row(desk, key)["waiting_for"] == []


def test_what_was_asked_is_a_payload(desk: Desk):
    key = _ask(desk)
    for path in ("/ops/api/runs", f"/ops/api/runs/{key}"):
        assert "secret letter" not in desk.admin.get(path).text
        assert '"reason":"confirmation"' in desk.admin.get(path).text.replace(" ", "")
        assert "secret letter" in desk.reader.get(path).text


def test_other_runs_wait_for_nothing(desk: Desk):
    key = desk.submit()
    desk.worker.run(key)
    assert "waiting_for" not in _row(desk, key)
