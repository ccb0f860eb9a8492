"""What a worker's main process does besides: heartbeat, sweep, shutdown, care for its pool's children."""

from __future__ import annotations

import mmap
import os
import platform
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from shared.logs import get_logger
from shared.queue import Queue
from shared.settings import Settings
from shared.store.connection import FAILURES
from shared.store.store import open_store
from worker import process
from worker.agents.registry import RegistryError
from worker.children import Children
from worker.condition import Condition
from worker.drain import AFTER_DRAIN_SECONDS, Drain
from worker.forms import coroutines_left
from worker.heartbeat import Heartbeat
from worker.restart import execute_again, on_restart
from worker.roster import Agents
from worker.sweeper import end_run_of_dead_child, sweep_loop

EXIT_UNFIT = 1
"""Exit status of a worker that gave itself up: supervisors restart what does not end with 0."""

_MARGIN_SECONDS = 0.2

log = get_logger(__name__)


class Hands(Protocol):
    """What the main process needs of its pool and its consumer; any thread may call."""

    def busy(self) -> int:
        """Slots in use."""
        ...

    def take_runs(self, wanted: bool) -> None:
        """Takes messages from the queue, or leaves them there."""
        ...

    def kill_child(self, key: str, pid: int) -> None:
        """Kills a pool child if it executes this very run."""
        ...

    def kill_children(self) -> None:
        """Kills all of them."""
        ...

    def stop(self, code: int) -> None:
        """Lets the worker shut down and exit with this status."""
        ...


class Mainstay:
    """Made before the pool; with ``prefork`` the children hear of the shutdown through a pipe."""

    def __init__(self, settings: Settings, agents: Agents, *, pool: str, slots: int) -> None:
        self.settings = settings
        self.agents = agents
        self.pool = pool
        self.slots = slots
        self.pid = os.getpid()
        self.forks = pool == "prefork"
        self._store = open_store(settings)
        self._queue = Queue(settings, self._store)
        self.name = process.worker_name(self.pid)
        self._hands: Hands | None = None
        self._started_at = int(time.time() * 1000)
        self._draining = False
        self._drained = False
        self._exit_code = 0
        self._restarting = False
        self._heartbeat = Heartbeat(
            self._store.workers, self.name, self.facts, agents.catalogue(), self._obey
        )
        self._sweep = sweep_loop(self._store, self._queue)
        # The write end stays open in the parent alone; its closing is what every child hears.
        self._hear, self._tell = os.pipe() if self.forks else (-1, -1)
        # One byte of memory that parent and children share: whether the drain time is over.
        self._cold = mmap.mmap(-1, 1)

    def start(self, hands: Hands) -> None:
        """Starts heartbeat and sweep, once the pool stands."""
        self._hands = hands
        on_restart(partial(self._restart, hands))
        self._heartbeat.start()
        self._sweep.start()
        found = process.started()
        if self.forks:
            Children(self.settings, self.name, hands.kill_child).start()
        elif found is not None:
            Condition(found, self.settings, self.slots, self._unfit).start()
        log.info("worker.ready", pool=self.pool, slots=self.slots, agents=list(self.agents.names()))

    def facts(self) -> dict[str, Any]:
        """What the heartbeat tells."""
        found = process.started()
        told: dict[str, Any] = {
            "host": self.name.split(":", 1)[0],
            "pid": self.pid,
            "pool": self.pool,
            "slots": self.slots,
            "busy": self._hands.busy() if self._hands else 0,
            "abandoned": found.pulse.abandoned if found else 0,
            "coroutines_left": coroutines_left(),
            "draining": self._draining or self._drained,
            "started_at": self._started_at,
            "redis_errors": sum(FAILURES.values()),
            "versions": {"python": platform.python_version()},
        }
        blocked = found.loop_blocked_seconds if found and not self.forks else 0.0
        return told | ({"loop_blocked_seconds": round(blocked, 1)} if blocked >= 1 else {})

    def _obey(self) -> None:
        """Takes runs, takes none or ends, as operators have switched this worker; at every heartbeat."""
        switch = self._store.controls.drained(self.name)
        drained = switch is not None
        if drained != self._drained:
            log.warning("worker.drained" if drained else "worker.undrained")
        if self._hands is not None and not self._draining and (drained or self._drained):
            self._hands.take_runs(not drained)
            found = process.started()
            if found is not None:
                found.draining = drained
        self._drained = drained
        if switch is not None and switch.exit and self._hands is not None and not self._draining:
            log.warning("worker.told_to_shut_down", by=switch.by)
            self._hands.stop(0)
            self.drain(cold=False, last_resort=self._hands.kill_children)

    def _unfit(self, reason: str) -> None:
        """This process cannot be trusted with runs any more: out with it, a supervisor starts another."""
        if self._hands is not None and not self._draining:
            log.error("worker.unfit", reason=reason)
            self._exit_code = EXIT_UNFIT
            self._hands.stop(EXIT_UNFIT)
            self.drain(cold=False, last_resort=self._hands.kill_children)

    def child_died(self, key: str) -> None:
        """Celery lost the child that executed this run."""
        end_run_of_dead_child(self._store, self._queue, key)

    # --- shutdown ---------------------------------------------------------------------------------------

    def drain(self, *, cold: bool, last_resort: Callable[[], None]) -> None:
        """Begins the shutdown, once; ``cold``, at any time, ends the drain time now.

        The process ends within the drain time and 2 s, come what may.
        """
        if self._draining and (not cold or self._hurried()):
            return
        first, self._draining = not self._draining, True
        if cold:
            self._cold[0] = 1
        seconds = 0.0 if cold else self.settings.drain_seconds
        threading.Thread(
            target=self._exit_for_certain, args=(seconds, last_resort), name="outlast-exit", daemon=True
        ).start()
        found = process.started()
        if not first:
            return
        if self.forks:
            os.close(self._tell)
        if found is not None:
            threading.Thread(
                target=self._drain, args=(found, last_resort), name="outlast-drain", daemon=True
            ).start()

    def _restart(self, hands: Hands) -> None:
        self._restarting = True
        self.drain(cold=False, last_resort=hands.kill_children)

    def stay_down(self) -> None:
        """Takes back a restart: this process ends for good."""
        self._restarting = False

    def _hurried(self) -> bool:
        return self._cold[0] == 1

    def _drain(self, mine: process.Process, last_resort: Callable[[], None]) -> None:
        Drain(mine, self.settings.drain_seconds, self._hurried).run()
        if mine.pulse.abandoned:
            # Their threads would keep Celery, and the interpreter, from ending.
            mine.resources.close(_MARGIN_SECONDS)
            self._exit(last_resort)

    def _exit_for_certain(self, seconds: float, last_resort: Callable[[], None]) -> None:
        time.sleep(seconds + AFTER_DRAIN_SECONDS - _MARGIN_SECONDS)
        self._exit(last_resort)

    def _exit(self, last_resort: Callable[[], None]) -> None:
        log.warning("worker.exit_forced", code=self._exit_code)
        self._heartbeat.leave(timeout=_MARGIN_SECONDS / 2)
        last_resort()
        if self._restarting:
            execute_again()
        os._exit(self._exit_code)

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
        try:
            mine = process.current()
        except RegistryError as error:
            # The probe found them in order a moment ago; Celery starts another child.
            raise SystemExit(str(error)) from None
        mine.in_pool_child = True
        threading.Thread(target=self._await_parent, args=(mine,), name="outlast-parent", daemon=True).start()

    def _await_parent(self, mine: process.Process) -> None:
        os.read(self._hear, 1)
        if not Drain(mine, self.settings.drain_seconds, self._hurried).run():
            mine.resources.close(_MARGIN_SECONDS)
