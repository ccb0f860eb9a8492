"""The sweep in a worker's main process, and the ending of runs whose pool child died."""

from __future__ import annotations

import os
import socket
import time

from shared.logs import get_logger
from shared.queue import Queue
from shared.runs.lifecycle import Status
from shared.runs.outcome import FailureCode
from shared.store.ending import end_from_outside
from shared.store.errors import StoreError
from shared.store.retrying import retry_lost
from shared.store.store import Store
from shared.store.sweep import Sweep, SweepLoop, Swept
from worker.fork_gate import FORK_GATE
from worker.process import FAMILY

_TRIES = 8

log = get_logger(__name__)


class _GatedSweep(Sweep):
    """A pass under the fork gate, so that no pool child is forked in the middle of one."""

    def tick(self) -> Swept | None:
        with FORK_GATE:
            try:
                return super().tick()
            except StoreError as error:
                log.warning("sweep.store_unavailable", error=type(error).__name__)
                return None


def sweep_loop(store: Store, queue: Queue) -> SweepLoop:
    """The loop that sweeps while this process leads."""
    sweep = _GatedSweep(store.runs, store.log, enqueue=queue.enqueue, queue_depth=queue.depth)
    return SweepLoop(sweep)


def end_run_of_dead_child(store: Store, queue: Queue, key: str) -> bool:
    """Retries a run, or ends it as ``worker_lost``, if a dead child of this very pool executes it."""
    for attempt in range(_TRIES):
        try:
            return _end(store, queue, key)
        except StoreError as error:
            log.warning("run.dead_child_not_recorded", run=key, error=type(error).__name__)
            time.sleep(min(0.1 * 2**attempt, 2.0))
    return False


def _end(store: Store, queue: Queue, key: str) -> bool:
    record = store.runs.get(key)
    if record is None or record.status is not Status.RUNNING or record.pid is None:
        return False
    worker = record.texts.get("worker", "")
    ours = record.texts.get("host") == socket.gethostname() and worker.endswith(f":{FAMILY}")
    if not ours or _alive(record.pid):
        return False
    pid = str(record.pid)
    if retry_lost(store.runs, store.log, key, guard="child", value=worker, value2=pid):
        queue.enqueue(key)
        return True
    finish = end_from_outside(
        store.runs,
        store.log,
        key,
        ending=str(FailureCode.WORKER_LOST),
        guard="child",
        value=worker,
        value2=pid,
    )
    if finish is None or not finish.recorded:
        return False
    log.warning("run.child_died", run=key, pid=record.pid)
    if finish.successor:
        queue.enqueue(finish.successor)
    return True


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
