"""What a worker's main process does besides: heartbeat, sweep, shutdown, care for its pool's children."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable
from typing import Any

from shared.logs import get_logger
from shared.queue import Queue
from shared.settings import Settings
from shared.store.store import open_store
from worker import process
from worker.agents.registry import Registry
from worker.drain import AFTER_DRAIN_SECONDS, Drain
from worker.heartbeat import Heartbeat
from worker.sweeper import end_run_of_dead_child, sweep_loop

_MARGIN_SECONDS = 0.2

log = get_logger(__name__)


class Mainstay:
    """Made before the pool; with ``prefork`` the children hear of the shutdown through a pipe."""

    def __init__(self, settings: Settings, agents: Registry, *, pool: str, slots: int) -> None:
        self.settings = settings
        self.agents = agents
        self.pool = pool
        self.slots = slots
        self.pid = os.getpid()
        self.forks = pool == "prefork"
        self._store = open_store(settings)
        self._queue = Queue(settings, self._store)
        self._busy: Callable[[], int] = lambda: 0
        self._started_at = int(time.time() * 1000)
        self._draining = False
        self._heartbeat = Heartbeat(
            self._store.workers, process.worker_name(self.pid), self.facts, agents.catalogue()
        )
        self._sweep = sweep_loop(self._store, self._queue)
        # The write end stays open in the parent alone; its closing is what every child hears.
        self._hear, self._tell = os.pipe() if self.forks else (-1, -1)

    def start(self, *, busy: Callable[[], int]) -> None:
        """Starts heartbeat and sweep, once the pool stands."""
        self._busy = busy
        self._heartbeat.start()
        self._sweep.start()
        log.info("worker.ready", pool=self.pool, slots=self.slots, agents=list(self.agents.names()))

    def facts(self) -> dict[str, Any]:
        """What the heartbeat tells."""
        found = process.started()
        return {
            "host": process.worker_name(self.pid).split(":", 1)[0],
            "pid": self.pid,
            "pool": self.pool,
            "slots": self.slots,
            "busy": self._busy(),
            "abandoned": found.pulse.abandoned if found else 0,
            "draining": self._draining,
            "started_at": self._started_at,
            "versions": {"python": platform.python_version()},
        }

    def child_died(self, key: str) -> None:
        """Celery lost the child that executed this run."""
        end_run_of_dead_child(self._store, self._queue, key)

    # --- shutdown ---------------------------------------------------------------------------------------

    def drain(self, *, cold: bool, last_resort: Callable[[], None]) -> None:
        """Begins the shutdown, once; the process ends within the drain time and 2 s, come what may."""
        if self._draining and not cold:
            return
        first, self._draining = not self._draining, True
        seconds = 0.0 if cold else self.settings.drain_seconds
        threading.Thread(
            target=self._exit_for_certain, args=(seconds, last_resort), name="outlast-exit", daemon=True
        ).start()
        if self.forks and first:
            os.close(self._tell)
        found = process.started()
        if found is not None:
            Drain(found, seconds).start()

    def _exit_for_certain(self, seconds: float, last_resort: Callable[[], None]) -> None:
        time.sleep(seconds + AFTER_DRAIN_SECONDS - _MARGIN_SECONDS)
        log.warning("worker.exit_forced")
        self._heartbeat.leave(timeout=_MARGIN_SECONDS / 2)
        last_resort()
        os._exit(0)

    def leave(self) -> None:
        """The pool has stopped: out of the list of workers."""
        self._heartbeat.leave()
        found = process.started()
        if found is not None:
            found.close()

    # --- in a pool child ----------------------------------------------------------------------------------

    def in_child(self) -> None:
        """Starts the child's own services and listens for the parent's shutdown or death."""
        os.close(self._tell)
        mine = process.current()
        threading.Thread(target=self._await_parent, args=(mine,), name="outlast-parent", daemon=True).start()

    def _await_parent(self, mine: process.Process) -> None:
        os.read(self._hear, 1)
        Drain(mine, self.settings.drain_seconds).run()
