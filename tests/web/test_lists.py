"""Lists of runs: newest first, filtered, page by page."""

from __future__ import annotations

import pytest

from shared.store.store import Store
from tests.web.played_worker import Caller, PlayedWorker, key_of, problem_of, run_input


def _ids(caller: Caller, path: str) -> list[str]:
    return [record["run_id"] for record in caller.get(path).get_json()["runs"]]


def _start(
    caller: Caller, store: Store, *run_ids: str, thread: str | None = None, agent: str = "echo"
) -> None:
    for run_id in run_ids:
        caller.start_in_background(run_input(run_id, thread or f"t-{run_id}"), agent=agent)
        begun = store.runs.now_ms()
        while store.runs.now_ms() == begun:
            pass


def test_runs_are_listed_newest_first_over_all_threads(caller: Caller, store: Store):
    _start(caller, store, "one", "two", "three")
    assert _ids(caller, "/runs") == ["three", "two", "one"]


def test_pages_follow_each_other_without_gap_or_repeat(caller: Caller, store: Store):
    _start(caller, store, *(f"r{number}" for number in range(5)))
    seen, query = [], "?limit=2"
    for _ in range(3):
        page = caller.get(f"/runs{query}").get_json()
        seen += [record["run_id"] for record in page["runs"]]
        query = f"?limit=2&cursor={page.get('next')}"
    assert seen == ["r4", "r3", "r2", "r1", "r0"]
    assert "next" not in page


def test_status_may_be_asked_for_more_than_once(caller: Caller, worker: PlayedWorker, store: Store):
    _start(caller, store, "queued", "running", "ended")
    worker.claim(key_of("running", "t-running"))
    worker.run(key_of("ended", "t-ended"))
    assert _ids(caller, "/runs?status=queued") == ["queued"]
    assert _ids(caller, "/runs?status=queued&status=succeeded") == ["ended", "queued"]
    assert _ids(caller, "/runs?status=failed") == []


def test_runs_of_one_agent(caller: Caller, worker: PlayedWorker, store: Store):
    worker.offer(other="enqueue")
    _start(caller, store, "a")
    _start(caller, store, "b", agent="other")
    assert _ids(caller, "/runs?agent=other") == ["b"]
    assert _ids(caller, "/runs?agent=nobody") == []


def test_runs_of_one_thread(caller: Caller, store: Store):
    _start(caller, store, "a", "b", thread="mine")
    _start(caller, store, "c", thread="other")
    assert _ids(caller, "/threads/mine/runs") == ["b", "a"]
    assert _ids(caller, "/threads/unheard/runs") == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=asleep", "status"),
        ("limit=0", "limit"),
        ("limit=-1", "limit"),
        ("limit=many", "limit"),
        ("cursor=x", "cursor"),
        ("cursor=1", "cursor"),
    ],
)
@pytest.mark.parametrize("path", ["/runs", "/threads/t/runs"])
def test_a_query_that_means_nothing_is_refused_by_name(caller: Caller, path: str, query: str, field: str):
    assert problem_of(caller.get(f"{path}?{query}"), 400, "INVALID_INPUT")["field"] == field
