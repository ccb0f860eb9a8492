"""What a serving process holds: made on first use, once per process, never before a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

from flask import current_app

from shared.logs import get_logger
from shared.queue import Queue
from shared.runs.access import Actor
from shared.settings import Settings
from shared.store.store import Store, open_store
from shared.store.sweep import Sweep, SweepLoop
from web.memo import Memo
from web.quota import ActiveRuns
from web.tokens import TokenVerifier

CATALOGUE_SECONDS = 1.0
"""How long the agent catalogue is kept before it is read again."""

API_KEY_SECONDS = 5.0
"""How long a revoked API key may still be honoured."""

log = get_logger(__name__)


class RunReader(Protocol):
    """One open stream of a run: SSE bytes until the terminal frame."""

    def __iter__(self) -> Iterator[bytes]: ...

    def __next__(self) -> bytes: ...

    def close(self) -> None:
        """Ends the stream; harmless when it has ended."""
        ...


class FreshReader(RunReader, Protocol):
    """A stream that may have been opened before its run was accepted."""

    def begin(self, started: bytes) -> None:
        """The run was accepted meanwhile; its first frame."""
        ...


class RunHub(Protocol):
    """What the rooms use of the hub, which stands above this module."""

    def open(self, key: str, after: int = 0, *, hang_up: Callable[[], None] | None = None) -> FreshReader:
        """A stream of the frames after seq ``after``; ``hang_up`` cuts a connection that is stuck."""
        ...

    def wait_ended(self, key: str, timeout: float) -> bool:
        """Whether the run ended within ``timeout`` seconds."""
        ...

    def stats(self) -> dict[str, int]:
        """Counters of this process."""
        ...

    def close(self) -> None:
        """Ends every stream at once."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """One process's connections and short-lived caches."""

    settings: Settings
    store: Store
    queue: Queue
    hub: RunHub
    catalogue: Memo[str, dict[str, dict[str, Any]]]
    quota: ActiveRuns
    known_keys: Memo[str, Actor]
    tokens: TokenVerifier
    sweeper: SweepLoop

    def agents(self) -> dict[str, dict[str, Any]]:
        """Agent name -> description, capabilities, policy, and when it was ``offered``; at most a second old.

        An empty catalogue is not kept: the first worker is seen at once. Raises ``StoreError``.
        """
        found = self.catalogue.get("", self.store.workers.agents)
        if not found:
            self.catalogue.forget("")
        return found


class ServiceHolder:
    """Makes the services of the running process and ends them; kept as ``app.extensions["outlast"]``."""

    def __init__(self, settings: Settings, make_hub: Callable[[Store, Settings], RunHub]) -> None:
        self.settings = settings
        self._make_hub = make_hub
        self._held: Services | None = None
        self._pid = 0
        self._sweeping = False
        self._lock = threading.Lock()

    def get(self) -> Services:
        """This process's services; nothing connects before it is used."""
        held = self._held
        if held is not None and self._pid == os.getpid():
            return held
        with self._lock:
            if self._held is None or self._pid != os.getpid():
                self._held, self._pid, self._sweeping = self._make(), os.getpid(), False
            return self._held

    def serving(self) -> None:
        """Called where serving starts and with every request; the first call starts the sweep."""
        if self._sweeping and self._pid == os.getpid():
            return
        held = self.get()
        with self._lock:
            if not self._sweeping:
                self._sweeping = True
                held.sweeper.start()

    def close(self) -> None:
        """Ends every stream of this process at once and lets its sweep end; harmless when nothing was made.

        Takes no lock and waits for nothing of its own; under gevent call it from a greenlet, not from a
        signal handler. Streams opened later end at once too.
        """
        held = self._held
        if held is None or self._pid != os.getpid():
            return
        held.hub.close()
        if self._sweeping:
            held.sweeper.stop(timeout=0)

    def _make(self) -> Services:
        settings = self.settings
        store = open_store(settings)
        queue = Queue(settings, store)
        sweep = Sweep(store.runs, store.log, enqueue=queue.enqueue, queue_depth=queue.depth)
        return Services(
            settings=settings,
            store=store,
            queue=queue,
            hub=self._make_hub(store, settings),
            catalogue=Memo(CATALOGUE_SECONDS),
            quota=ActiveRuns(store, settings.max_active_runs_per_actor),
            known_keys=Memo(API_KEY_SECONDS, most=4096),
            tokens=TokenVerifier(settings),
            sweeper=SweepLoop(sweep),
        )


def services() -> Services:
    """The services of the application that handles the current request or command."""
    return cast("ServiceHolder", current_app.extensions["outlast"]).get()
