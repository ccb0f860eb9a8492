"""A reader that lost its connection goes on exactly behind the last event that it has."""

from __future__ import annotations

import pytest

from tests.journeys.invariants import check_invariants
from tests.journeys.sse_stream import Refused
from tests.journeys.stack import Run, Stack


@pytest.fixture(scope="module")
def ended(stack: Stack) -> Run:
    run = stack.submit("counts", deltas=10)
    run.live.finish()
    check_invariants(stack, run)
    return run


@pytest.mark.parametrize("place", ["0", "1", "middle", "last"])
@pytest.mark.parametrize("how", ["after", "header"])
def test_exactly_the_events_behind_the_cursor_follow(stack: Stack, ended: Run, place: str, how: str):
    total = len(ended.live.items)
    cursor = {"0": 0, "1": 1, "middle": total // 2, "last": total - 1}[place]
    stream = ended.watch(cursor) if how == "after" else ended.watch(**{"Last-Event-ID": str(cursor)})
    stream.finish()
    assert stream.items == ended.live.items[cursor:]


@pytest.mark.parametrize("ahead", [0, 5])
def test_behind_the_terminal_event_there_is_nothing(stack: Stack, ended: Run, ahead: int):
    answer = stack.request("GET", f"{ended.path}/events?after={len(ended.live.items) + ahead}")
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("cursor", ["-1", "abc", "1.5", "0x1", "99999999999999999999", "1-0"])
@pytest.mark.parametrize("how", ["after", "header"])
def test_a_made_up_cursor_is_refused(stack: Stack, ended: Run, cursor: str, how: str):
    query, headers = (f"?after={cursor}", {}) if how == "after" else ("", {"Last-Event-ID": cursor})
    with pytest.raises(Refused) as refused:
        stack.open("GET", f"{ended.path}/events{query}", headers=headers)
    assert refused.value.status == 400


def test_a_cursor_ahead_of_a_live_log_never_waits_longer_than_the_run(stack: Stack):
    run = stack.submit("waits", seconds=0.5)
    ahead = stack.open("GET", f"{run.path}/events?after=1000")
    run.live.finish()
    assert ahead.ended.wait(3)
    check_invariants(stack, run)


def test_a_reader_of_a_live_run_may_leave_and_come_back(stack: Stack):
    run = stack.submit("counts", deltas=40, pause=0.03)
    got = []
    cursor = 0
    for _ in range(4):
        reader = run.watch(cursor)
        reader.until(lambda stream: len(stream.items) >= 5 or stream.ended.is_set())
        reader.close()
        got += reader.items
        cursor = got[-1][0] or 0
    rest = run.watch(cursor)
    rest.finish()
    assert [*got, *rest.items] == run.watch(0).until(lambda stream: stream.ended.is_set()).items
    check_invariants(stack, run)


def test_pages_of_json_hold_the_same_events(stack: Stack, ended: Run):
    answer = stack.request("GET", f"{ended.path}/events?after=2", headers={"Accept": "application/json"})
    assert answer.headers["content-type"].startswith("application/json")
    assert [item["event"] for item in answer.json()["events"]] == ended.live.events[2:]
