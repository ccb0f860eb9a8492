"""The sweep: ends runs whose lease ran out, sends lost queue messages again, expires old runs."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from shared.logs import get_logger
from shared.runs.identity import BUCKETS
from shared.runs.outcome import FailureCode
from shared.store import keys
from shared.store.answers import Survey
from shared.store.bulk import BulkCancels
from shared.store.connection import ask
from shared.store.ending import end_from_outside
from shared.store.errors import StoreError
from shared.store.log import EventLog
from shared.store.retrying import retry_lost
from shared.store.runs import RunStore
from shared.store.scripts import scripts
from shared.store.stats import Stats

HINT_SECONDS = 30.0
"""First wait before a ready run without a claim is enqueued again; doubles each time."""

EMPTY_QUEUE_HINT_SECONDS = 2.0
"""The same while the broker queue is empty: the message is lost or in a busy worker's hands."""

SAMPLE_SECONDS = 10.0
"""Pause between two looks at the depth of the queue."""

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Swept:
    """What one pass did, by count."""

    ended: int = 0
    enqueued: int = 0
    timed_out: int = 0
    expired: int = 0
    retried: int = 0


class Sweep:
    """One pass at a time over all buckets; whoever holds the leader lock sweeps."""

    def __init__(
        self,
        runs: RunStore,
        event_log: EventLog,
        *,
        enqueue: Callable[[str], None],
        queue_depth: Callable[[], int | None],
        patient: bool = True,
    ) -> None:
        """``patient``: after a time without contact to Redis, wait one lease before judging leases."""
        self.runs = runs
        self.event_log = event_log
        self.enqueue = enqueue
        self.queue_depth = queue_depth
        self.settings = runs.settings
        self.token = secrets.token_hex(8)
        self.patient = patient
        self._last_contact: float | None = None
        self._judge_from = 0.0
        self._bulk = BulkCancels(runs.client, runs, event_log)
        self._stats = Stats(runs.client)
        self._sample_at = 0.0

    def tick(self) -> Swept | None:
        """One pass, or None when another process leads; raises ``StoreError`` when Redis does not answer."""
        leading = self._lead()
        self._note_contact()
        if not leading:
            return None
        depth = self.queue_depth()
        hint = EMPTY_QUEUE_HINT_SECONDS if depth == 0 else HINT_SECONDS
        patience = self.settings.lease_seconds if self.patient else 0
        total = [0, 0, 0, 0, 0]
        for bucket in BUCKETS:
            survey = self.runs.survey(bucket, hint_seconds=hint, patience_seconds=patience)
            done = self._sweep_bucket(survey)
            total = [sum(pair) for pair in zip(total, done, strict=True)]
        self._last_contact = time.monotonic()
        swept = Swept(*total)
        self._bulk.go_on(self.enqueue)
        self._note(swept)
        if time.monotonic() < self._judge_from:
            # Whoever may judge leases already must not be kept from it by one that may not yet.
            self._lead(hold_ms=1)
        return swept

    def _note(self, swept: Swept) -> None:
        self._stats.note_sweep(asdict(swept))
        if time.monotonic() >= self._sample_at:
            self._sample_at = time.monotonic() + SAMPLE_SECONDS
            self._stats.sample()

    def _lead(self, hold_ms: int | None = None) -> bool:
        hold = hold_ms or int(max(self.settings.sweep_seconds * 3, 3) * 1000)
        arguments: list[str | int] = [self.token, hold]
        return bool(ask(lambda: scripts().lead.run(self.runs.client, [keys.SWEEPER], arguments)))

    def _note_contact(self) -> None:
        now = time.monotonic()
        pause = max(self.settings.sweep_seconds * 3, 3)
        if self.patient and (self._last_contact is None or now - self._last_contact > pause):
            self._judge_from = now + self.settings.lease_seconds
        self._last_contact = now

    def _sweep_bucket(self, survey: Survey) -> tuple[int, int, int, int, int]:
        ended = timed_out = expired = retried = 0
        if time.monotonic() >= self._judge_from:
            for key in survey.late:
                if self._retry(key):
                    retried += 1
                else:
                    ended += self._end(key, FailureCode.WORKER_LOST, "late")
        for key in survey.timeouts:
            wait = str(int(self.settings.queue_timeout_seconds * 1000))
            timed_out += self._end(key, FailureCode.QUEUE_TIMEOUT, "queue", wait)
        for key in survey.hints:
            self.enqueue(key)
            log.info("run.enqueued_again", run=key)
        for key in survey.old:
            expired += self.runs.expire(key)
        return ended, len(survey.hints), timed_out, expired, retried

    def _retry(self, key: str) -> bool:
        if not retry_lost(self.runs, self.event_log, key, guard="late"):
            return False
        self.enqueue(key)
        return True

    def _end(self, key: str, code: FailureCode, guard: str, value: str = "") -> bool:
        try:
            finish = end_from_outside(
                self.runs, self.event_log, key, ending=str(code), guard=guard, value=value
            )
        except StoreError:
            raise
        except Exception:
            # One run that cannot be ended must not keep the others open.
            log.exception("sweep.run_failed", run=key)
            return False
        if finish is None or not finish.recorded:
            return False
        log.warning("run.ended_by_sweep", run=key, status=finish.status, code=str(code))
        if finish.successor:
            self.enqueue(finish.successor)
        return True


class SweepLoop:
    """A daemon thread around :class:`Sweep`; an error of one pass never ends the loop."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="outlast-sweep", daemon=True)

    def start(self) -> None:
        """Starts sweeping."""
        self._thread.start()

    def stop(self, timeout: float = 1.0) -> None:
        """Ends the loop after the pass under way."""
        self._stop.set()
        self._thread.join(timeout)

    def _loop(self) -> None:
        while not self._stop.wait(self.sweep.settings.sweep_seconds):
            try:
                self.sweep.tick()
            except StoreError as error:
                log.warning("sweep.store_unavailable", error=type(error).__name__)
            except Exception:
                log.exception("sweep.failed")
