"""The worker's heartbeat: who it is, how busy it is, which agents it has."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from shared.logs import get_logger
from shared.store.errors import StoreError
from shared.store.workers import HEARTBEAT_SECONDS, Workers
from worker.fork_gate import FORK_GATE

log = get_logger(__name__)


class Heartbeat:
    """A daemon thread in a worker's main process; ``obey`` and then ``facts`` are called at every beat."""

    def __init__(
        self,
        workers: Workers,
        name: str,
        facts: Callable[[], dict[str, Any]],
        agents: dict[str, dict[str, Any]],
        obey: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._workers = workers
        self._facts = facts
        self._agents = agents
        self._obey = obey
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="outlast-heartbeat", daemon=True)

    def start(self) -> None:
        """Starts beating, the first time at once."""
        self._thread.start()

    def leave(self, timeout: float = 0.5) -> None:
        """Takes the worker out of the list; waits at most ``timeout`` seconds for Redis."""
        self._stop.set()
        goodbye = threading.Thread(target=self._goodbye, name="outlast-goodbye", daemon=True)
        goodbye.start()
        goodbye.join(timeout)

    def _loop(self) -> None:
        while not self._stop.is_set():
            with FORK_GATE:
                self._beat()
            self._stop.wait(HEARTBEAT_SECONDS)

    def _beat(self) -> None:
        try:
            self._obey()
            self._workers.beat(self.name, self._facts(), self._agents)
        except StoreError as error:
            log.warning("heartbeat.store_unavailable", error=type(error).__name__)
        except Exception:
            log.exception("heartbeat.failed")

    def _goodbye(self) -> None:
        try:
            self._workers.leave(self.name)
        except StoreError:
            log.warning("heartbeat.not_left", worker=self.name)
