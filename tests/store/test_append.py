"""Appends: fenced by the execution id, numbered without holes, safe to repeat."""

from __future__ import annotations

from shared.store import keys
from shared.store.log import Batch


def test_a_batch_is_appended_in_order(bench):
    claim = bench.running()
    answer = bench.store.log.append(bench.batch(claim, 2, ["a", "b"]))
    assert (answer.state, answer.last_seq, answer.cancel) == ("ok", 3, None)
    assert bench.types(claim.key) == ["RUN_STARTED", "CUSTOM", "CUSTOM"]


def test_a_repeated_batch_is_harmless(bench):
    claim = bench.running()
    batch = bench.batch(claim, 2, ["a", "b"])
    for _ in range(3):
        assert bench.store.log.append(batch).last_seq == 3
    assert len(bench.store.log.read_all(claim.key)) == 3


def test_a_batch_beyond_the_end_is_refused_with_the_end(bench):
    claim = bench.running()
    answer = bench.store.log.append(bench.batch(claim, 9, ["a"]))
    assert (answer.state, answer.last_seq) == ("gap", 1)


def test_another_execution_appends_nothing(bench):
    claim = bench.running()
    batch = bench.batch(claim, 2, ["a"])
    assert bench.store.log.append(Batch(batch.key, "other", 2, batch.frames)).state == "lost"
    assert bench.types(claim.key) == ["RUN_STARTED"]


def test_nothing_is_appended_after_the_ending(bench):
    claim = bench.running()
    bench.finish(claim, 2)
    assert bench.store.log.append(bench.batch(claim, 3, ["late"])).state == "lost"
    assert bench.types(claim.key) == ["RUN_STARTED", "RUN_FINISHED"]


def test_the_answer_of_an_append_tells_the_cancel_request(bench):
    claim = bench.running()
    bench.store.runs.request_cancel(claim.key, by="ann", reason="enough")
    assert bench.store.log.append(bench.batch(claim, 2, ["a"])).cancel == "client"


def test_a_record_that_is_gone_or_forgot_its_claim_is_told_apart(bench):
    claim = bench.running()
    bench.store.client.hdel(keys.record(claim.key), "execution")
    bench.store.client.hset(keys.record(claim.key), "status", "queued")
    assert bench.store.log.append(bench.batch(claim, 2, ["a"])).state == "unclaimed"
    bench.store.client.delete(keys.record(claim.key))
    assert bench.store.log.append(bench.batch(claim, 2, ["a"])).state == "gone"


def test_many_runs_are_appended_in_one_round_trip_and_one_failure_is_its_own(bench):
    first, second = bench.running("r1"), bench.running("r2", thread="t2")
    stale = Batch(first.key, "other", 2, (b"x",))
    answers = bench.store.log.append_many([stale, bench.batch(second, 2, ["a"])])
    assert [answer.state for answer in answers] == ["lost", "ok"]


def test_a_published_batch_carries_its_numbers_and_its_bytes(bench, eventually):
    claim = bench.running()
    listener = bench.store.client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(keys.run_channel(claim.key))
    eventually(lambda: bench.store.client.pubsub_numsub(keys.run_channel(claim.key))[0][1])
    batch = bench.batch(claim, 2, ["a", "b"])
    bench.store.log.append(batch)
    message = eventually(lambda: listener.get_message(timeout=1))
    assert message["data"] == b"2 2\n" + b"".join(batch.frames)


def test_a_large_batch_rings_the_bell_only(bench, eventually):
    claim = bench.running()
    listener = bench.store.client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(keys.run_channel(claim.key))
    eventually(lambda: bench.store.client.pubsub_numsub(keys.run_channel(claim.key))[0][1])
    bench.store.log.append(bench.batch(claim, 2, ["a" * 70_000]))
    assert eventually(lambda: listener.get_message(timeout=1))["data"] == b"2 1\n"
    assert len(bench.store.log.read_all(claim.key)) == 2


def test_a_batch_of_ten_thousand_frames_is_appended(bench):
    claim = bench.running()
    assert bench.store.log.append(bench.batch(claim, 2, ["x"] * 10_000)).last_seq == 10_001
    assert len(bench.store.log.read(claim.key, 0, 20_000)) > 100
    assert bench.store.log.last_seqs([claim.key, bench.key("nobody")]) == [10_001, 0]


def test_reading_after_a_seq_gives_exactly_the_rest(bench):
    claim = bench.running()
    batch = bench.batch(claim, 2, [str(number) for number in range(50)])
    bench.store.log.append(batch)
    assert bench.store.log.read(claim.key, 11, 1000) == list(batch.frames[10:])
    assert bench.store.log.read(claim.key, 51, 10) == []


def test_a_page_ends_soon_after_its_bytes_and_holds_at_least_one_frame(bench):
    claim = bench.running()
    for seq in range(2, 34):
        bench.store.log.append(bench.batch(claim, seq, ["x" * 100_000]))
    page = bench.store.log.read(claim.key, 0, 1000, 250_000)
    assert 3 <= len(page) <= 6
    assert len(bench.store.log.read(claim.key, 5, 1000, 1)) == 1
    read = []
    while page := bench.store.log.read(claim.key, len(read), 1000, 250_000):
        read += page
    assert read == bench.store.log.read_all(claim.key)
