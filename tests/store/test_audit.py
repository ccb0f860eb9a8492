"""The audit: what was done, newest first, for all and for one run."""

from __future__ import annotations

import pytest

from shared.store import keys
from shared.store.audit import Audit, Entry


def test_an_entry_reads_as_it_was_written_without_what_is_unknown(store):
    store.audit.write(Entry("cancel", "olga", "requested", reason="stuck", roles=("operator",)))
    (entry,), cursor = store.audit.page()
    assert cursor is None
    assert {"id", "at"} <= entry.keys()
    assert entry | {"id": "", "at": ""} == {
        "id": "",
        "at": "",
        "by": "olga",
        "action": "cancel",
        "result": "requested",
        "reason": "stuck",
        "roles": ["operator"],
    }


def test_pages_go_from_the_newest_to_the_oldest_without_repeating_any(store):
    for number in range(7):
        store.audit.write(Entry("cancel", f"o{number}", "requested"))
    seen, cursor = [], None
    while True:
        entries, cursor = store.audit.page(limit=3, cursor=cursor)
        seen += [entry["by"] for entry in entries]
        if cursor is None:
            break
    assert seen == [f"o{number}" for number in reversed(range(7))]


def test_a_bad_cursor_is_a_value_error(store):
    with pytest.raises(ValueError, match="cursor"):
        store.audit.page(cursor="-")


def test_a_run_has_its_own_list(bench):
    bench.accept()
    bench.store.audit.write(Entry("cancel", "olga", "requested", run=bench.key()))
    bench.store.audit.write(Entry("cancel", "olga", "requested", run=bench.key("other")))
    assert [entry["run"] for entry in bench.store.audit.of_run(bench.key())] == [bench.key()]
    assert bench.store.client.pttl(keys.acts(bench.key())) > 0


def test_entries_past_their_time_are_dropped(store):
    long_ago = store.runs.now_ms() - 100_000_000_000
    for number in range(300):
        store.client.xadd(keys.AUDIT, {"entry": "{}"}, id=f"{long_ago}-{number + 1}")
    Audit(store.client, 60).write(Entry("pause", "olga", "paused"))
    # Redis trims whole nodes of a hundred entries.
    assert store.client.xlen(keys.AUDIT) < 150
