"""A day of numbers, the queue's in and out, and the attempts of a run."""

from __future__ import annotations

import json
import re

from shared.runs.access import Role
from shared.runs.identity import BUCKETS
from shared.store import keys
from tests.web.operators import Desk, desk
from web.ops.pages.run import attempts
from web.ops.plots import areas, lines
from web.ops.wording import OUTCOMES, count

__all__ = ["desk"]


def test_the_queue_tells_what_came_and_what_was_taken(desk: Desk):
    now = int(desk.store.client.time()[0]) // 60
    fields = {"accepted": 7, "queue_wait:3": 4, "queue_wait:5": 1, "queue_wait:sum": 900}
    desk.store.client.hset(keys.stats(BUCKETS[0], now - 1), mapping=fields)
    queue = desk.viewer.get("/ops/api/queues").get_json()
    assert queue["flow"][-2] | {"at": ""} == {"at": "", "minute": now - 1, "accepted": 7, "claimed": 5}


def test_a_line_has_a_gap_where_nothing_is_known():
    series = [
        {"at": f"2026-01-01T00:0{at}:00Z", "n": value} for at, value in enumerate((1, 2, None, 4, None))
    ]
    plot = lines(series, {"n": "runs"}, "Runs", count)
    path = re.search(r'class="line line-n" d="([^"]*)"', str(plot.svg))
    assert path
    assert path[1].count("M") == 2
    assert plot.label == "Runs: at most 4, lines for runs."


def test_areas_are_stacked_and_say_their_sums():
    minute = dict.fromkeys(OUTCOMES, 0)
    series = [minute | {"at": "2026-01-01T00:00:00Z", "succeeded": 3, "failed": 2, "transport_timeout": 1}]
    plot = areas(series, OUTCOMES)
    assert "In all: 3 succeeded, 1 failed, other, 1 provider time-out" in plot.label
    assert str(plot.svg).count("<path") == 3


def test_attempts_are_listed_with_what_became_of_their_workers():
    lost = [{"attempt": 1, "execution": "e", "worker": "w1", "host": "h", "pid": 7, "at": 1_767_225_600_000}]
    run = {"attempt": 2, "lost": lost, "worker": "w2", "pid": 8, "started_at": "2026-01-01T00:00:01.000Z"}
    first, second = attempts(run | {"status": "running"})[::-1]
    assert (first["number"], first["worker"], first["came"]) == (1, "w1", "worker lost")
    assert first["until"] == "2026-01-01T00:00:00.000Z"
    assert (second["number"], second["pid"], second["came"]) == (2, 8, "running")
    assert attempts({"status": "queued"}) == []


def test_the_page_of_a_run_names_its_attempts_and_calls_of_unknown_effect(desk: Desk):
    key = desk.submit()
    desk.worker.claim(key)
    lost = [
        {"attempt": 1, "execution": "e", "worker": "w-before", "host": "h", "pid": 7, "at": 1_767_225_600_000}
    ]
    calls = [{"id": "call-1", "name": "pay"}]
    fields = {"attempt": 2, "lost": json.dumps(lost), "retries": 3, "unknown_calls": json.dumps(calls)}
    desk.store.client.hset(keys.record(key), mapping=fields)
    run = desk.viewer.get(f"/ops/api/runs/{key}").get_json()["run"]
    assert (run["lost"], run["unknown_calls"], run["retries"]) == (lost, calls, 3)


def test_a_day_is_shown_as_charts_and_as_a_table(desk: Desk):
    browser = desk.app.test_client()
    word = re.search(r'name="csrf" value="(\w+)"', browser.get("/ops/sign-in").text)
    secret, _ = desk.store.api_keys.create("vic", frozenset({Role.VIEWER}))
    assert word
    browser.post("/ops/sign-in", data={"csrf": word[1], "token": secret, "next": "/ops/"})
    now = int(desk.store.client.time()[0]) // 60
    fields = {"accepted": 7, "echo|succeeded|": 6, "duration:3": 6, "duration:sum": 300}
    desk.store.client.hset(keys.stats(BUCKETS[3], now - 1000), mapping=fields)
    page = browser.get("/ops/metrics").text
    assert "Runs ended per minute, at most 6. In all: 6 succeeded." in page
    assert page.count('role="img"') == 8
    assert re.search(r'<td class="num">7</td><td class="num">6</td>', page)
    assert browser.get("/ops/metrics?minutes=7").status_code == 400
