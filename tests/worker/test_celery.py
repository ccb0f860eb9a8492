"""Real worker processes: ``celery -A worker worker`` in every pool."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from shared.local.server import EmbeddedServer
from shared.queue import Queue
from shared.runs.lifecycle import Status
from shared.runs.record import RunRecord
from shared.settings import Settings, child_environment
from shared.store.store import Store, open_store
from tests.conftest import wait_for
from tests.worker.stage import accept, record_of, types_of
from worker.celery import pool_asked_for

ROOT = Path(__file__).resolve().parents[2]
CELERY = ROOT / ".venv" / "bin" / "celery"
DRAIN_SECONDS = 1.5
STOP_SECONDS = DRAIN_SECONDS + 2 + 1


class Worker:
    """One ``celery`` process in a session of its own."""

    def __init__(self, url: str, folder: Path, *options: str, **environment: str) -> None:
        self.log = folder / "worker.log"
        with self.log.open("ab") as output:
            self.popen = subprocess.Popen(
                [str(CELERY), "-A", "worker", "worker", *options],
                cwd=ROOT,
                env=child_environment(
                    **{
                        "OUTLAST_REDIS_URL": url,
                        "OUTLAST_AGENTS": "tests.worker.celery_agents:AGENTS",
                        "OUTLAST_LEASE_SECONDS": "3",
                        "OUTLAST_SWEEP_SECONDS": "0.5",
                        "OUTLAST_DRAIN_SECONDS": str(DRAIN_SECONDS),
                        "OUTLAST_CANCEL_GRACE_SECONDS": "0.5",
                    }
                    | environment
                ),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        if self.popen.poll() is None:
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(10)


class Stage:
    """A store, its queue, and the workers a test starts."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.settings = Settings(redis_url=url, lease_seconds=3, sweep_seconds=0.5)
        self.store: Store = open_store(self.settings)
        self.queue = Queue(self.settings, self.store)
        self.workers: list[Worker] = []

    def start(self, *options: str, **environment: str) -> Worker:
        before = {beat.name for beat in self.store.workers.alive()}
        worker = Worker(self.url, self.folder, *options, **environment)
        self.workers.append(worker)
        try:
            wait_for(lambda: {beat.name for beat in self.store.workers.alive()} - before, 40)
        except AssertionError:
            raise AssertionError(worker.log.read_text()[-4000:]) from None
        return worker

    def submit(self, agent: str, **members: Any) -> str:
        key = accept(self.store, agent, **members)
        self.queue.enqueue(key)
        return key

    def speaking(self, key: str) -> RunRecord:
        wait_for(lambda: record_of(self.store, key).last_seq > 1, 20)
        return record_of(self.store, key)

    def ended(self, key: str, seconds: float = 20) -> RunRecord:
        wait_for(lambda: record_of(self.store, key).ended, seconds)
        types_of(self.store, key)
        return record_of(self.store, key)

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.store.close()


@pytest.fixture
def stage(redis_server: EmbeddedServer, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(redis_server.url, tmp_path)
    yield made
    made.close()


def lives(process: psutil.Process) -> bool:
    """Whether it still does anything; who collects an orphan's remains is the machine's business."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


POOLS = {"threads": (), "prefork": ("-P", "prefork", "-c", "3"), "solo": ("-P", "solo")}


@pytest.mark.parametrize("pool", POOLS)
def test_runs_end_and_the_worker_survives_what_escapes_them(stage: Stage, pool: str):
    worker = stage.start(*POOLS[pool])
    (beat,) = stage.store.workers.alive()
    assert (beat.facts["pool"], beat.facts["slots"]) == (pool, {"threads": 64, "prefork": 3, "solo": 1}[pool])
    assert set(stage.store.workers.agents()) >= {"echo", "waits"}
    for agent in ("out_of_memory", "leaves"):
        assert stage.ended(stage.submit(agent)).texts["code"] == "AGENT_ERROR"
    for agent in ("pid", "imports_late"):
        assert stage.ended(stage.submit(agent)).status is Status.SUCCEEDED
    record = stage.ended(stage.submit("pid"))
    assert (record.pid == worker.popen.pid) == (pool != "prefork")
    for agent in ("waits", "sync_waits"):
        key = stage.submit(agent)
        stage.speaking(key)
        stage.store.runs.request_cancel(key, by="alice")
        assert stage.ended(key, 3).status is Status.CANCELLED
    assert worker.popen.poll() is None


@pytest.mark.parametrize("pool", POOLS)
def test_a_term_to_the_group_drains_records_and_exits_for_certain(stage: Stage, pool: str):
    worker = stage.start(*POOLS[pool])
    agents = ["deaf"] if pool == "solo" else ["short", "waits", "deaf"]
    keys = {agent: stage.submit(agent, forwardedProps={"seconds": 0.5}) for agent in agents}
    for key in keys.values():
        stage.speaking(key)
    children = psutil.Process(worker.popen.pid).children(recursive=True)
    began = time.monotonic()
    os.killpg(worker.popen.pid, signal.SIGTERM)
    assert worker.popen.wait(STOP_SECONDS + 3) == 0
    assert time.monotonic() - began < STOP_SECONDS
    wait_for(lambda: not any(map(lives, children)), 2)
    outcomes = {agent: stage.ended(key, 0.1).texts.get("code") for agent, key in keys.items()}
    assert outcomes.pop("short", None) is None
    assert set(outcomes.values()) == {"worker_shutdown"}
    assert stage.store.workers.alive() == []


@pytest.mark.parametrize("pool", POOLS)
def test_an_idle_worker_does_not_wait_for_the_drain_time(stage: Stage, pool: str):
    worker = stage.start(*POOLS[pool], OUTLAST_DRAIN_SECONDS="30")
    began = time.monotonic()
    worker.popen.send_signal(signal.SIGTERM)
    assert worker.popen.wait(15) == 0
    # Celery looks once a second whether it is to stop, and a pool's child takes a second to leave.
    assert time.monotonic() - began < 6
    assert stage.store.workers.alive() == []


def test_a_killed_pool_child_costs_its_run_within_five_seconds_and_no_other(stage: Stage):
    stage.start("-P", "prefork", "-c", "2", OUTLAST_LEASE_SECONDS="60")
    hit, neighbour = stage.submit("waits"), stage.submit("short")
    pid = stage.speaking(hit).pid
    stage.speaking(neighbour)
    assert pid is not None
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    assert stage.ended(hit, 6).texts["code"] == "worker_lost"
    assert time.monotonic() - began < 5
    assert stage.ended(neighbour).status is Status.SUCCEEDED
    assert stage.ended(stage.submit("pid")).status is Status.SUCCEEDED


def test_a_killed_worker_is_noticed_by_another_ones_sweep(stage: Stage):
    first = stage.start()
    key = stage.submit("waits")
    stage.speaking(key)
    stage.start()
    first.kill()
    # Lease, sweep interval, and the lease that a new leader waits before it judges.
    assert stage.ended(key, 3 + 3 + 3 * 0.5 + 5).texts["code"] == "worker_lost"


def test_a_lost_message_is_sent_again_by_the_sweep(stage: Stage):
    stage.start()
    key = accept(stage.store, "pid")
    assert stage.ended(key, 10).status is Status.SUCCEEDED


def test_a_message_delivered_many_times_runs_once(stage: Stage):
    stage.start()
    key = accept(stage.store, "short")
    for _ in range(10):
        stage.queue.enqueue(key)
    assert stage.ended(key).attempt == 1
    assert types_of(stage.store, key).count("RUN_STARTED") == 1


def test_a_saturated_worker_refills_at_once(stage: Stage):
    stage.start("-c", "2")
    keys = [stage.submit("short", forwardedProps={"seconds": 0.05}) for _ in range(20)]
    began = time.monotonic()
    for key in keys:
        assert stage.ended(key).status is Status.SUCCEEDED
    assert time.monotonic() - began < 5


def test_a_redis_that_restarts_costs_no_run_and_the_worker_goes_on(
    own_server: EmbeddedServer, tmp_path: Path, eventually: Callable[..., Any]
):
    stage = Stage(own_server.url, tmp_path)
    try:
        worker = stage.start()
        running = stage.submit("short", forwardedProps={"seconds": 4})
        waiting = stage.submit("waits")
        for key in (running, waiting):
            stage.speaking(key)
        began = time.monotonic()
        eventually(lambda: time.monotonic() - began > 1.1)
        own_server.kill()
        own_server.restart()
        assert stage.ended(stage.submit("pid"), 15).status is Status.SUCCEEDED
        assert stage.ended(running, 15).status is Status.SUCCEEDED
        stage.store.runs.request_cancel(waiting, by="alice")
        assert stage.ended(waiting, 5).status is Status.CANCELLED
        assert worker.popen.poll() is None
    finally:
        stage.close()


def test_the_gevent_pool_is_refused_with_a_sentence(redis_server: EmbeddedServer):
    done = subprocess.run(
        [str(CELERY), "-A", "worker", "worker", "-P", "gevent"],
        cwd=ROOT,
        env=child_environment(OUTLAST_REDIS_URL=redis_server.url),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "does not run in Celery's gevent or eventlet pool" in done.stderr


def test_a_bad_agents_variable_is_told_in_a_sentence(redis_server: EmbeddedServer):
    done = subprocess.run(
        [str(CELERY), "-A", "worker", "worker"],
        cwd=ROOT,
        env=child_environment(OUTLAST_REDIS_URL=redis_server.url, OUTLAST_AGENTS="no_such_module:AGENTS"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 78
    assert "OUTLAST_AGENTS names the module no_such_module, which does not exist" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("line", "pool"),
    [
        ("celery -A worker worker", None),
        ("celery -A worker worker -P prefork", "prefork"),
        ("celery -A worker worker --pool=solo -c 2", "solo"),
        ("celery -A worker worker -Pprefork", "prefork"),
        ("celery -A worker worker --pool prefork", "prefork"),
        ("celery -A worker worker -P", None),
    ],
)
def test_the_pool_is_read_from_the_command_line(line: str, pool: str | None):
    assert pool_asked_for(line.split()) == pool
