"""What one worker process has: store, queue, agents, event loop, writer and pulse; made after the fork."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import threading
import time
from collections import deque

from shared.logs import get_logger
from shared.queue import Queue
from shared.settings import Settings, load
from shared.store.answers import Claim
from shared.store.errors import StoreError
from shared.store.store import open_store
from worker.agents.registry import Registry, load_registry
from worker.emitter import TAIL_SECONDS
from worker.execution import Execution
from worker.forms import LoopThread
from worker.pulse import Pulse
from worker.recording import Recording
from worker.resources import Resources
from worker.roster import Agents, probe
from worker.writer import Writer

FAMILY = secrets.token_hex(4)
"""Made before the fork: a pool's children carry it in their names, so their parent knows its own."""

log = get_logger(__name__)


def worker_name(pid: int) -> str:
    """``host:pid:family``, the name under which a process claims and is told of cancels."""
    return f"{socket.gethostname()}:{pid}:{FAMILY}"


class Process:
    """The services of one process. Nothing runs before ``start``, nothing survives ``close``."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self.settings = settings
        self.registry = registry
        self.pid = os.getpid()
        self.host = socket.gethostname()
        self.name = worker_name(self.pid)
        self.store = open_store(settings)
        self.queue = Queue(settings, self.store)
        self.writer = Writer(self.store.log)
        self.draining = False
        self.in_pool_child = False
        self._loop_thread = LoopThread()
        self.resources = Resources(self._loop_thread.loop)
        self._retries = registry.retries()
        self._recent: deque[Recording] = deque(maxlen=256)
        self.pulse = Pulse(
            self.store,
            settings,
            self.name,
            reclaim=self.reclaim,
            reconnected=self._reconnected,
            enqueue=self.queue.enqueue,
            deaf=self._deaf,
        )

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of all async agents of this process."""
        return self._loop_thread.loop

    @property
    def loop_blocked_seconds(self) -> float:
        """For how long the loop has not answered; something blocks it when that is more than a moment."""
        return self._loop_thread.blocked_seconds()

    def start(self) -> None:
        """Starts loop, writer and pulse."""
        self._loop_thread.start()
        self.writer.start()
        self.pulse.start()

    def close(self) -> None:
        """Stops them; runs still in hand lose their lease."""
        self.writer.close()
        self.pulse.close()
        self.resources.close()
        self._loop_thread.close()
        self.store.close()

    def say_claim(self, key: str, execution_id: str, *, again: bool = False) -> Claim | None:
        """Claims a run for this process; repeatable. Raises StoreError, and ValueError for no run key."""
        return self.store.runs.claim(
            key,
            execution_id,
            worker=self.name,
            host=self.host,
            pid=self.pid,
            again=again,
            retries=self._retries,
        )

    def reclaim(self, execution: Execution) -> bool:
        """Says a claim again to a Redis that forgot it; False when the run is not to be had any more."""
        claim = self.say_claim(execution.key, execution.id, again=True)
        log.warning("run.claimed_again", run=execution.key, ours=claim is not None)
        return claim is not None

    def _deaf(self, execution: Execution) -> None:
        """A pool child has a parent that can kill it; a thread can only be left behind."""
        if self.in_pool_child:
            self.store.controls.kill_child(execution.key, execution.id, worker=self.name, pid=self.pid)

    def remember(self, recording: Recording) -> None:
        """Keeps a recorded ending for some seconds, in case Redis forgets it."""
        self._recent.append(recording)

    def _reconnected(self) -> None:
        """Redis was away and may have come back a second younger: everything recent is said again."""
        for execution in list(self.pulse.executions.values()):
            if execution.emitter is not None:
                execution.emitter.suspect()
        since = time.monotonic() - TAIL_SECONDS - self.settings.lease_seconds
        recent = [recording for recording in list(self._recent) if recording.at >= since]
        if recent:
            threading.Thread(
                target=self._say_again, args=(recent,), name="outlast-again", daemon=True
            ).start()

    def _say_again(self, recent: list[Recording]) -> None:
        for recording in recent:
            try:
                finish = recording.carry_out()
            except StoreError:
                continue
            if finish is not None and finish.state == "finished":
                log.warning("run.recorded_again", run=recording.execution.key)
                if finish.successor:
                    self.queue.enqueue(finish.successor)


_lock = threading.Lock()
_processes: dict[int, Process] = {}
_registries: list[Registry] = []


def agents(*, forks: bool) -> Agents:
    """What a worker's main process tells of the agents; one that forks loads none. Raises RegistryError."""
    return probe(load()) if forks else registry()


def registry() -> Registry:
    """The agents, loaded once, in the process that executes them. Raises RegistryError."""
    if not _registries:
        _registries.append(load_registry(load()))
    return _registries[0]


def current() -> Process:
    """This process's services, started on the first call after a fork."""
    pid = os.getpid()
    found = _processes.get(pid)
    if found is None:
        with _lock:
            found = _processes.get(pid)
            if found is None:
                found = Process(load(), registry())
                found.start()
                _processes[pid] = found
    return found


def started() -> Process | None:
    """This process's services if they were started."""
    return _processes.get(os.getpid())
