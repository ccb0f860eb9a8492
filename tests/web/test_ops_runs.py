"""What operators see through the API."""

from __future__ import annotations

import pytest

from shared.runs.outcome import FailureCode, Outcome
from shared.store import keys
from tests.web.operators import Desk, desk
from tests.web.played_worker import problem_of

__all__ = ["desk"]

READS = ["runs", "attention", "workers", "queues", "stats", "audit", "system", "bulk-cancel"]


@pytest.mark.parametrize("path", READS)
def test_viewers_see_and_who_only_owns_runs_does_not(desk: Desk, path: str):
    assert desk.viewer.get(f"/ops/api/{path}").status_code == 200
    assert "viewer" in problem_of(desk.ann.get(f"/ops/api/{path}"), 403, "FORBIDDEN")["detail"]


def test_a_list_shows_everybodys_runs_with_their_ages(desk: Desk):
    desk.submit("r1")
    desk.submit("r2", "other")
    rows = desk.viewer.get("/ops/api/runs").get_json()["runs"]
    assert {row["run_id"] for row in rows} == {"r1", "r2"}
    assert all(row["age_seconds"] >= 0 and row["attention"] == [] for row in rows)


def test_filters_and_cursors_go_together(desk: Desk):
    for number in range(5):
        desk.submit(f"r{number}", f"t{number}")
    desk.worker.run(desk.submit("failed", "t9"), outcome=Outcome.failed(FailureCode.TRANSPORT_TIMEOUT))
    found, cursor = [], ""
    while True:
        page = desk.viewer.get(f"/ops/api/runs?status=queued&agent=echo&limit=2{cursor}").get_json()
        found += [row["run_id"] for row in page["runs"]]
        if "next" not in page:
            break
        cursor = f"&cursor={page['next']}"
    assert found == [f"r{number}" for number in reversed(range(5))]
    (row,) = desk.viewer.get("/ops/api/runs?code=transport_timeout").get_json()["runs"]
    assert row["run_id"] == "failed"
    (row,) = desk.viewer.get("/ops/api/runs?q=faile").get_json()["runs"]
    assert row["run_id"] == "failed"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=running&status=odd", "status"),
        ("attention=odd", "attention"),
        ("code=odd", "code"),
        ("older_than=-1", "older_than"),
        ("newer_than=nan", "newer_than"),
        ("cursor=odd", "cursor"),
        ("limit=0", "limit"),
    ],
)
def test_a_query_that_cannot_be_meant_is_refused_by_name(desk: Desk, query: str, field: str):
    body = problem_of(desk.viewer.get(f"/ops/api/runs?{query}"), 400, "INVALID_INPUT")
    assert body["field"] == field


def test_a_run_comes_with_its_failure_neighbours_and_what_may_be_done(desk: Desk):
    failed = Outcome.failed(FailureCode.AGENT_ERROR, detail="Traceback: secret", incident="i1")
    key = desk.submit("r1")
    desk.worker.run(key, outcome=failed)
    desk.submit("r2")
    page = desk.viewer.get(f"/ops/api/runs/{key}").get_json()
    assert "secret" not in page["run"]["detail"]
    told = desk.reader.get(f"/ops/api/runs/{key}").get_json()
    assert told["run"]["detail"] == "Traceback: secret"
    assert [row["run_id"] for row in page["thread"]] == ["r2", "r1"]
    assert page["actions"]["retry"] == {"allowed": True}
    assert not page["actions"]["cancel"]["allowed"]
    assert (page["payloads"], page["events"]) == (False, 2)
    assert page["input_bytes"] > 10


def test_an_unknown_run_is_a_404(desk: Desk):
    for key in ("nonsense", "b0" + "a" * 26):
        problem_of(desk.viewer.get(f"/ops/api/runs/{key}"), 404, "UNKNOWN_RUN")


def test_a_running_run_shows_its_troubles_and_its_workers_power(desk: Desk):
    desk.store.workers.beat("host:1:fam", {"host": "host", "pid": 1, "pool": "prefork", "slots": 2}, {})
    key = desk.submit()
    claim = desk.store.runs.claim(key, "execution", worker="host:9:fam", host="host", pid=9)
    assert claim is not None
    desk.store.client.zadd(keys.leases(key[:2]), {key: 1})
    desk.ann.post(f"/runs/{key}/cancel")
    page = desk.viewer.get(f"/ops/api/runs/{key}").get_json()
    assert [one["kind"] for one in page["attention"]] == ["orphaned", "cancelling"]
    assert page["attention"][1]["by"] == "ann"
    assert "pool child is killed" in page["actions"]["terminate"]["effect"]
    assert page["worker_facts"]["name"] == "host:1:fam"
    (worker,) = [
        row
        for row in desk.viewer.get("/ops/api/workers").get_json()["workers"]
        if row["pid"] == 1
        if row["name"] == "host:1:fam"
    ]
    assert [(run["key"], run["run_id"]) for run in worker["runs"]] == [(key, "run")]


def test_the_attention_table_puts_the_worst_first(desk: Desk, eventually):
    orphan, deaf = desk.submit("r1", "t1"), desk.submit("r2", "t2")
    for key in (orphan, deaf):
        desk.worker.claim(key)
    desk.ann.post(f"/runs/{deaf}/cancel")
    desk.store.client.zadd(keys.leases(orphan[:2]), {orphan: 1})
    # Within the sweep's first patience nobody judges the lease, so the orphan stays for a while.
    found = eventually(
        lambda: (
            table if len((table := desk.viewer.get("/ops/api/attention").get_json())["rows"]) == 2 else None
        ),
        1.8,
    )
    assert [row["key"] for row in found["rows"]] == [orphan, deaf]
    assert found["counts"]["orphaned"] == 1
    assert found["counts"]["cancelling"] == 1
    page = desk.viewer.get("/ops/api/runs?attention=cancelling").get_json()
    assert [row["key"] for row in page["runs"]] == [deaf]


def test_events_need_the_right_to_read_payloads(desk: Desk):
    key = desk.submit()
    desk.worker.run(key, "hello")
    problem_of(desk.admin.get(f"/ops/api/runs/{key}/events"), 403, "FORBIDDEN")
    page = desk.reader.get(f"/ops/api/runs/{key}/events?after=1").get_json()
    assert [one["seq"] for one in page["events"]] == [2, 3]
    assert page["events"][0]["event"]["delta"] == "hello"
    assert "next" not in page


def test_numbers_queue_and_system_tell_what_happened(desk: Desk):
    desk.worker.run(desk.submit("r1"), outcome=Outcome.failed(FailureCode.TRANSPORT_TIMEOUT))
    desk.submit("r2")
    numbers = desk.viewer.get("/ops/api/stats?minutes=5").get_json()
    assert len(numbers["series"]) == 5
    assert (numbers["accepted"], numbers["endings"]["failed"]) == (2, 1)
    assert numbers["endings"]["transport_timeout"] == 1
    assert numbers["agents"] == [
        {
            "agent": "echo",
            "succeeded": 0,
            "interrupted": 0,
            "cancelled": 0,
            "failed": 1,
            "transport_timeout": 1,
            "ended_per_minute": [0, 0, 0, 0, 1],
        }
    ]
    assert numbers["histograms"]["duration"]["count"] == 1
    queue = desk.viewer.get("/ops/api/queues").get_json()
    assert (queue["ready"], queue["waiting"], queue["depth"]) == (1, 0, 2)
    system = desk.viewer.get("/ops/api/system").get_json()
    assert system["keys"] == {"live": 1, "ended": 1, "runs": 2}
    assert system["redis"]["version"]
