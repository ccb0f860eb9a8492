"""Operators' lists: served from indexes, newest first, page by page, and never wrong at the seams."""

from __future__ import annotations

import itertools
import random

import pytest

from shared.runs.outcome import FailureCode, Outcome
from shared.store import keys, search
from shared.store.search import Filter, filter_of

CODES = (FailureCode.TRANSPORT_TIMEOUT, FailureCode.AGENT_ERROR)


@pytest.fixture
def runs(bench):
    """Sixty runs of three actors in every status, spread over the buckets."""
    for number in range(60):
        where = {"thread": f"thread-{number % 17}-{number}", "actor": f"actor-{number % 3}"}
        bench.accept(f"run-{number}", **where)
        if number % 5 == 0:
            continue
        claim = bench.claim(bench.key(f"run-{number}", **where))
        if number % 5 == 1:
            continue
        outcome = [Outcome.succeeded(), Outcome.failed(CODES[number % 2]), Outcome.cancelled()][
            number % 5 - 2
        ]
        bench.finish(claim, 2, outcome)
    page = bench.store.listing.of_all(limit=100)
    assert len(page.records) == 60
    return page.records


FILTERS = [
    Filter(),
    Filter(statuses=frozenset({"queued"})),
    Filter(statuses=frozenset({"queued", "running"})),
    Filter(statuses=frozenset({"failed"})),
    Filter(statuses=frozenset({"failed", "running", "succeeded"})),
    Filter(code="transport_timeout"),
    Filter(code="transport_timeout", statuses=frozenset({"failed"}), agent="echo", actor="actor-1"),
    Filter(agent="echo"),
    Filter(agent="none"),
    Filter(actor="actor-2"),
    Filter(actor="actor-2", statuses=frozenset({"cancelled"})),
    Filter(thread="thread-3-3"),
    Filter(thread="thread-3-3", actor="actor-0"),
    Filter(thread="thread-3-3", actor="actor-1"),
    Filter(text="run-1"),
    Filter(text="thread-4-", statuses=frozenset({"succeeded"})),
    Filter(older_than=0, newer_than=3600),
    Filter(older_than=3600),
]


@pytest.mark.parametrize("wanted", FILTERS, ids=lambda wanted: wanted.words())
@pytest.mark.parametrize("limit", [7, 200])
def test_pages_hold_exactly_what_fits_newest_first(bench, runs, wanted: Filter, limit: int):
    now = bench.store.runs.now_ms()
    expected = [record.key for record in runs if wanted.fits(record, now)]
    found, cursor = [], None
    for _ in itertools.count():
        page = bench.store.search.find(wanted, limit=limit, cursor=cursor)
        assert len(page.keys) <= limit
        assert not page.partial
        found += page.keys
        cursor = page.cursor
        if cursor is None:
            break
    assert found == expected


@pytest.mark.parametrize("wanted", FILTERS, ids=lambda wanted: wanted.words())
def test_a_bounded_search_goes_on_where_it_stopped(bench, runs, wanted: Filter, monkeypatch):
    monkeypatch.setattr(search, "MOST_LOOKED_AT", 2)
    monkeypatch.setattr(search, "MOST_READ", 2)
    now = bench.store.runs.now_ms()
    expected = [record.key for record in runs if wanted.fits(record, now)]
    found, cursor = [], None
    for _ in range(200):
        page = bench.store.search.find(wanted, limit=5, cursor=cursor)
        found += page.keys
        cursor = page.cursor
        if cursor is None:
            break
    assert cursor is None
    assert found == expected


def test_runs_of_one_moment_are_all_listed(bench, runs):
    for record in runs:
        for index in (keys.runs(record.key[:2]), keys.runs_of_agent(record.key[:2], "echo")):
            bench.store.client.zadd(index, {record.key: 1000})
    found, cursor = [], None
    for _ in itertools.count():
        page = bench.store.search.find(Filter(agent="echo"), limit=4, cursor=cursor)
        found += page.keys
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(found) == sorted(record.key for record in runs)
    assert len(set(found)) == len(found)


def test_a_run_key_is_found_at_once(bench, runs, monkeypatch):
    monkeypatch.setattr(search, "MOST_READ", 1)
    oldest = runs[-1].key
    assert bench.store.search.find(Filter(text=oldest)).keys == (oldest,)


def test_a_bad_cursor_is_a_value_error(bench):
    with pytest.raises(ValueError, match="cursor"):
        bench.store.search.find(Filter(), cursor="nonsense")


def test_live_matches_are_live_whatever_the_filter_says(bench, runs):
    live = {record.key for record in runs if not record.ended}
    assert set(bench.store.search.live_matches(Filter(agent="echo"), 100).keys) == live
    mixed = Filter(statuses=frozenset({"failed", "running"}))
    running = {record.key for record in runs if record.status == "running"}
    assert set(bench.store.search.live_matches(mixed, 100).keys) == running


def test_runs_in_trouble_are_found_by_their_trouble(bench, runs):
    record = next(record for record in runs if record.status == "running")
    bench.store.client.zadd(keys.leases(record.key[:2]), {record.key: 1})
    wanted = Filter(attention=frozenset({"orphaned"}))
    assert bench.store.search.find(wanted).keys == (record.key,)
    assert bench.store.search.live_matches(wanted, 10).keys == (record.key,)


def test_the_live_view_tells_status_lease_and_who_cancels(bench):
    claim = bench.running()
    bench.accept("r2")
    bench.store.runs.request_cancel(claim.key, by="ann")
    view = bench.store.live.view()
    running = next(run for run in view.runs if run.key == claim.key)
    assert (running.cancel_by, running.worker, running.agent) == ("ann", "w1", "echo")
    assert running.lease_until == bench.store.live.lease_of(claim.key)
    assert view.counts() == {
        "queued": 1,
        "ready": 0,
        "waiting": 1,
        "running": 1,
        "cancelling": 1,
        "total": 2,
    }


def test_indexes_hold_nothing_of_an_expired_run(bench):
    claim = bench.running()
    bench.finish(claim, 2, Outcome.failed(FailureCode.AGENT_ERROR))
    bench.store.client.hset(keys.record(claim.key), "finished_at", 1)
    assert bench.store.runs.expire(claim.key)
    assert bench.store.listing.sizes() == {"live": 0, "ended": 0, "runs": 0}
    left = [name for name in bench.store.client.scan_iter("outlast:*") if claim.key in str(name)]
    assert left == [keys.tombstone(claim.key).encode()]
    for wanted in FILTERS:
        assert bench.store.search.find(wanted).keys == ()


def test_a_filter_survives_being_stored():
    for wanted in FILTERS:
        assert filter_of(wanted.document()) == wanted
    assert Filter().empty
    assert not Filter(older_than=0).empty
    picked = random.Random(7).choice(FILTERS[1:])
    assert picked.words() != Filter().words()
