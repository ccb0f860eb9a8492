"""Endings: record and terminal event in one step, the first finisher wins, the thread goes on."""

from __future__ import annotations

from threading import Barrier, Thread

from shared.runs.outcome import FailureCode, Outcome
from shared.store.ending import end_from_outside


def test_an_ending_is_recorded_with_its_terminal_event(bench):
    claim = bench.running()
    finish = bench.finish(
        claim, 2, Outcome.failed(FailureCode.TRANSPORT_TIMEOUT, detail="secret", incident="i1")
    )
    assert (finish.state, finish.last_seq) == ("finished", 2)
    record = bench.store.runs.get(claim.key)
    assert (record.status, record.texts["code"]) == ("failed", "transport_timeout")
    assert bench.types(claim.key) == ["RUN_STARTED", "RUN_ERROR"]
    assert "detail" not in record.public()
    assert record.operator_view()["detail"] == "secret"


def test_a_repeated_finish_changes_nothing(bench):
    claim = bench.running()
    bench.finish(claim, 2)
    again = bench.finish(claim, 2)
    assert (again.state, again.status) == ("repeated", "succeeded")
    assert bench.types(claim.key) == ["RUN_STARTED", "RUN_FINISHED"]


def test_a_finish_with_the_wrong_seq_is_refused_with_the_end_of_the_log(bench):
    claim = bench.running()
    finish = bench.finish(claim, 5)
    assert (finish.state, finish.last_seq) == ("gap", 1)
    assert bench.store.runs.get(claim.key).status == "running"


def test_an_ending_from_outside_shuts_the_old_execution_out(bench):
    claim = bench.running()
    bench.store.log.append(bench.batch(claim, 2, ["a"]))
    ended = end_from_outside(bench.store.runs, bench.store.log, claim.key, ending="worker_lost", guard="any")
    assert ended.recorded
    late = bench.finish(claim, 3)
    assert (late.state, late.status) == ("ended", "failed")
    assert bench.types(claim.key) == ["RUN_STARTED", "CUSTOM", "RUN_ERROR"]


def test_a_dead_child_is_ended_only_when_worker_and_pid_match(bench):
    claim = bench.running()
    arguments = {"ending": "worker_lost", "guard": "child"}
    runs, log = bench.store.runs, bench.store.log
    assert end_from_outside(runs, log, claim.key, **arguments, value="w1", value2="8") is None
    assert end_from_outside(runs, log, claim.key, **arguments, value="w2", value2="7") is None
    assert end_from_outside(runs, log, claim.key, **arguments, value="w1", value2="7").recorded


def test_the_next_run_of_the_thread_becomes_ready(bench):
    claim = bench.running("r1")
    bench.accept("r2")
    bench.accept("r3")
    assert bench.finish(claim, 2).successor == bench.key("r2")
    second = bench.claim(bench.key("r2"))
    assert bench.claim(bench.key("r3")) is None
    assert bench.finish(second, 2).successor == bench.key("r3")
    third = bench.claim(bench.key("r3"))
    assert bench.finish(third, 2).successor is None
    assert bench.accept("r4").state == "ready"


def test_two_finishers_and_one_terminal_event(bench):
    for trial in range(300):
        run = f"r{trial}"
        claim = bench.running(run, thread=run)
        states: list[str] = []
        gate = Barrier(2)

        def own(claim=claim, gate=gate, states=states) -> None:
            gate.wait()
            states.append(bench.finish(claim, 2).state)

        def sweep(claim=claim, gate=gate, states=states) -> None:
            gate.wait()
            ended = end_from_outside(
                bench.store.runs, bench.store.log, claim.key, ending="worker_lost", guard="any"
            )
            states.append(ended.state if ended else "kept")

        threads = [Thread(target=own), Thread(target=sweep)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        types = bench.types(claim.key)
        assert len(types) == 2
        status = bench.store.runs.get(claim.key).status
        assert (types[-1], status) in {("RUN_FINISHED", "succeeded"), ("RUN_ERROR", "failed")}
        assert states.count("finished") == 1


def test_an_actors_prompts_do_not_outlive_the_retention(bench):
    claim = bench.running()
    bench.finish(claim, 2)
    lives = [bench.store.client.pttl(name) for name in bench.store.client.scan_iter(f"*{claim.key}")]
    assert len(lives) == 3
    assert all(0 < life <= (bench.store.settings.retention_seconds + 86_400) * 1000 for life in lives)
