"""The process-wide writer: flushes all runs with unwritten events in one round trip, every 2 ms at most."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from shared.logs import get_logger
from shared.store.answers import Append
from shared.store.errors import StoreError
from shared.store.log import Batch, EventLog

WINDOW_SECONDS = 0.002
"""A process quiet for this long flushes at once; a busy one gathers for this long."""

_BACK_OFF_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8)

log = get_logger(__name__)


class Flushable(Protocol):
    """What the writer knows of an emitter."""

    key: str

    @property
    def idle(self) -> bool:
        """Whether there is nothing to flush or somebody is at it."""

    @property
    def urgent(self) -> bool:
        """Whether a whole batch waits."""

    def begin(self) -> Batch | None:
        """Becomes the run's flusher; None when there is nothing to do."""

    def settle(self, answer: Append | StoreError) -> None:
        """Takes the answer to the batch."""


class Writer:
    """One thread per process; start it after the fork."""

    def __init__(self, event_log: EventLog) -> None:
        self._log = event_log
        self._lock = threading.Lock()
        self._dirty: dict[Flushable, None] = {}
        self._work = threading.Event()
        self._hurry = threading.Event()
        self._stopping = False
        self._last_emit = 0.0
        self._last_flush = 0.0
        self._hold_until = 0.0
        self._failures = 0
        self._thread = threading.Thread(target=self._loop, name="outlast-writer", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self, timeout: float = 1.0) -> None:
        """Writes what waits, as far as Redis answers, and ends the thread."""
        self._stopping = True
        self._work.set()
        self._hurry.set()
        self._thread.join(timeout)

    @property
    def holding(self) -> bool:
        """Whether Redis failed a moment ago, so that nobody asks it before the back-off is over."""
        return time.monotonic() < self._hold_until

    def note(self, emitter: Flushable, *, inline: bool) -> None:
        """An event was taken: flushed here and now when the process was quiet, else left to the thread."""
        now = time.monotonic()
        quiet = now - self._last_emit >= WINDOW_SECONDS
        self._last_emit = now
        if inline and quiet and now >= self._hold_until:
            batch = emitter.begin()
            if batch is not None:
                self.write(emitter, batch)
                return
        self.wake(emitter)

    def wake(self, emitter: Flushable) -> None:
        """Has the thread flush this run soon."""
        if emitter not in self._dirty:
            with self._lock:
                self._dirty[emitter] = None
            self._work.set()
        if not self._hurry.is_set() and emitter.urgent:
            self._hurry.set()

    def write(self, emitter: Flushable, batch: Batch) -> bool:
        """Writes one batch in this thread; False when Redis did not answer, then the batch stays."""
        answer: Append | StoreError
        try:
            answer = self._log.append(batch)
        except StoreError as error:
            answer = error
        self._last_flush = time.monotonic()
        return self._settle(emitter, answer)

    def _settle(self, emitter: Flushable, answer: Append | StoreError) -> bool:
        answered = isinstance(answer, Append)
        if answered:
            if self._failures:
                log.info("writer.recovered", failures=self._failures)
            self._failures, self._hold_until = 0, 0.0
        else:
            self._hold(answer)
        emitter.settle(answer)
        if not emitter.idle:
            self.wake(emitter)
        return answered

    def _hold(self, error: Append | StoreError) -> None:
        if not self._failures:
            log.warning("writer.store_unavailable", error=type(error).__name__)
        pause = _BACK_OFF_SECONDS[min(self._failures, len(_BACK_OFF_SECONDS) - 1)]
        self._failures += 1
        self._hold_until = time.monotonic() + pause

    def _loop(self) -> None:
        while True:
            self._work.wait()
            self._work.clear()
            self._pause()
            with self._lock:
                dirty, self._dirty = self._dirty, {}
            try:
                self._flush(dirty)
            except Exception:
                log.exception("writer.failed")
            if self._stopping and (not self._dirty or self._failures):
                return

    def _pause(self) -> None:
        while not self._stopping and (wait := self._hold_until - time.monotonic()) > 0:
            time.sleep(min(wait, 0.1))
        wait = self._last_flush + WINDOW_SECONDS - time.monotonic()
        if wait > 0:
            self._hurry.wait(wait)
        self._hurry.clear()

    def _flush(self, dirty: dict[Flushable, None]) -> None:
        work = [(emitter, batch) for emitter in dirty if (batch := emitter.begin()) is not None]
        if not work:
            return
        answers: list[Append | StoreError]
        try:
            answers = self._log.append_many([batch for _, batch in work])
        except StoreError as error:
            answers = [error] * len(work)
        self._last_flush = time.monotonic()
        for (emitter, _), answer in zip(work, answers, strict=True):
            self._settle(emitter, answer)
