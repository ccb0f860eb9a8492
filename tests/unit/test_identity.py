"""Run keys."""

from __future__ import annotations

import pytest

from shared.runs.identity import BUCKETS, KEY_PATTERN, RunIdentity, bucket_of_key


def test_a_key_is_deterministic_url_safe_and_starts_with_its_bucket():
    key = RunIdentity("ann", "t/1 ü", "r\u2028").key
    assert key == RunIdentity("ann", "t/1 ü", "r\u2028").key
    assert KEY_PATTERN.fullmatch(key)
    assert bucket_of_key(key) in BUCKETS


def test_all_runs_of_a_thread_share_a_bucket():
    assert len({RunIdentity("ann", "t", f"r{number}").bucket for number in range(50)}) == 1


def test_threads_spread_over_all_buckets():
    assert {RunIdentity("ann", f"t{number}", "r").bucket for number in range(2000)} == set(BUCKETS)


@pytest.mark.parametrize("text", ["", "b0", "../../etc", "b0" + "A" * 26, "x" * 28])
def test_a_text_that_is_no_run_key_is_refused(text):
    with pytest.raises(ValueError, match="run key"):
        bucket_of_key(text)
