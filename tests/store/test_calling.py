"""What the record says of a run's calls and of its first event."""

from __future__ import annotations

from shared.store.calling import Calling


def test_only_the_running_execution_says_what_it_waits_for(bench):
    claim = bench.running()
    calling = Calling(bench.store.client)
    calling.tell({(claim.key, "another"): '{"since":1}'})
    assert bench.store.runs.get(claim.key).calling is None
    calling.tell({(claim.key, claim.execution): '{"name":"model","since":1}'})
    assert bench.store.runs.get(claim.key).calling == {"name": "model", "since": 1}
    calling.tell({(claim.key, claim.execution): None})
    assert bench.store.runs.get(claim.key).calling is None


def test_an_ended_run_waits_for_nothing(bench):
    claim = bench.running()
    calling = Calling(bench.store.client)
    calling.tell({(claim.key, claim.execution): '{"since":1}'})
    bench.finish(claim, 2)
    assert bench.store.runs.get(claim.key).calling is None
    calling.tell({(claim.key, claim.execution): '{"since":1}'})
    assert bench.store.runs.get(claim.key).calling is None


def test_the_first_event_has_its_time_once(bench):
    claim = bench.running()
    assert bench.store.runs.get(claim.key).first_event_at is None
    bench.store.log.append(bench.batch(claim, 2, ["a"]))
    first = bench.store.runs.get(claim.key).first_event_at
    assert first is not None
    bench.store.log.append(bench.batch(claim, 3, ["b"]))
    bench.finish(claim, 4)
    record = bench.store.runs.get(claim.key)
    assert record.first_event_at == first
    assert record.times["started_at"] <= first <= record.times["finished_at"]
