"""Lists: newest first over all buckets, page by page, nobody else's runs."""

from __future__ import annotations

import pytest


def test_pages_over_all_buckets_are_complete_and_in_order(bench):
    for number in range(45):
        bench.accept(f"r{number}", thread=f"t{number}")
        bench.accept("other", thread=f"t{number}", actor="bob")
    seen, cursor = [], None
    while True:
        page = bench.store.listing.of_actor("ann", limit=10, cursor=cursor)
        seen += page.records
        cursor = page.cursor
        if cursor is None:
            break
    assert {record.identity.run_id for record in seen} == {f"r{number}" for number in range(45)}
    assert len(seen) == 45
    order = [(record.times["created_at"], record.key) for record in seen]
    assert order == sorted(order, reverse=True)


def test_a_thread_lists_its_own_runs(bench):
    bench.accept("r1")
    bench.accept("r2")
    bench.accept("r3", thread="t2")
    page = bench.store.listing.of_thread("ann", "t1")
    assert {record.identity.run_id for record in page.records} == {"r1", "r2"}


def test_a_filter_is_applied_before_the_page_is_cut(bench):
    for number in range(20):
        bench.accept(f"r{number}", thread=f"t{number}")
    page = bench.store.listing.of_all(limit=5, keep=lambda record: record.identity.run_id.endswith("7"))
    assert {record.identity.run_id for record in page.records} == {"r7", "r17"}


def test_a_made_up_cursor_is_refused(bench):
    with pytest.raises(ValueError, match="cursor"):
        bench.store.listing.of_all(cursor="yesterday")
