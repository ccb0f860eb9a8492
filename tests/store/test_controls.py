"""The intake's switch and the workers' switches."""

from __future__ import annotations

from shared.store import keys
from shared.store.sweep import Sweep


def test_while_the_intake_is_paused_no_claim_is_granted(bench):
    bench.accept()
    bench.store.controls.pause(by="olga", reason="deploy")
    assert bench.claim(bench.key()) is None
    assert bench.store.runs.get(bench.key()).status == "queued"
    bench.store.controls.resume()
    assert bench.claim(bench.key()) is not None


def test_a_claim_that_was_granted_may_be_asked_again_while_paused(bench):
    claim = bench.running()
    bench.store.controls.pause(by="olga")
    assert bench.claim(claim.key, claim.execution) is not None


def test_the_pause_says_who_when_and_why_and_keeps_the_first_words(bench):
    controls = bench.store.controls
    assert controls.paused() is None
    controls.pause(by="olga", reason="deploy")
    controls.pause(by="otto")
    found = controls.paused()
    assert (found.by, found.reason) == ("olga", "deploy")
    assert abs(found.since - bench.store.runs.now_ms()) < 5000
    assert controls.resume()
    assert not controls.resume()
    assert controls.paused() is None


def sweep_of(bench, sent: list[str]) -> Sweep:
    store = bench.store
    return Sweep(store.runs, store.log, enqueue=sent.append, queue_depth=lambda: 0, patient=False)


def age(bench, key: str, milliseconds: int) -> None:
    long_ago = bench.store.runs.now_ms() - milliseconds
    bench.store.client.hset(keys.record(key), "ready_at", long_ago)
    bench.store.client.zadd(keys.ready(key[:2]), {key: long_ago})


def test_while_paused_queued_runs_are_neither_sent_again_nor_timed_out(bench):
    bench.accept()
    sent: list[str] = []
    timeout_ms = int(bench.store.settings.queue_timeout_seconds * 1000)
    age(bench, bench.key(), timeout_ms + 60_000)
    bench.store.controls.pause(by="olga")
    assert sweep_of(bench, sent).tick().timed_out == 0
    assert sent == []
    assert not bench.store.runs.fence(
        bench.key(), ending="queue_timeout", guard="queue", value=str(timeout_ms)
    )


def test_after_the_pause_waiting_begins_anew_and_messages_are_sent(bench):
    bench.accept()
    sent: list[str] = []
    timeout_ms = int(bench.store.settings.queue_timeout_seconds * 1000)
    age(bench, bench.key(), timeout_ms + 60_000)
    bench.store.controls.pause(by="olga")
    bench.store.controls.resume()
    assert sweep_of(bench, sent).tick().timed_out == 0
    assert sent == [bench.key()]


def test_a_worker_is_drained_until_it_is_undrained_or_leaves(bench):
    controls, workers = bench.store.controls, bench.store.workers
    workers.beat("w1", {"pid": 1}, {})
    controls.drain("w1", by="olga", reason="hot")
    assert controls.drained("w1")
    assert controls.draining()["w1"].document()["reason"] == "hot"
    assert controls.undrain("w1")
    assert not controls.undrain("w1")
    controls.drain("w1", by="olga")
    workers.leave("w1")
    assert controls.draining() == {}
