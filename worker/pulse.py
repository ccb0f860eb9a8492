"""The process's pulse: renews leases, hears cancels, watches deadlines, graces and calls; one thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from shared.logs import get_logger
from shared.runs.outcome import FailureCode, StopCause
from shared.settings import Settings
from shared.store import keys
from shared.store.calling import Calling
from shared.store.channel import Gap, Message, Subscription
from shared.store.ending import end_from_outside
from shared.store.errors import StoreError
from shared.store.store import Store
from worker.execution import Execution
from worker.waiting import Waiting

TICK_SECONDS = 0.1
"""Longest delay of a deadline or a grace while runs are in hand."""

IDLE_TICK_SECONDS = 0.5

CANCELLED_TASK_SECONDS = 1.0
"""What a cancelled asyncio task gets to end before its overdue run is ended from outside."""

_TRIES = 20
_CAUSES = frozenset(map(str, StopCause))

log = get_logger(__name__)


class Pulse:
    """Follows this process's executions from their claim to their recorded ending.

    ``reclaim`` says a claim again to a Redis that forgot it; ``reconnected`` is called when the connection to
    Redis was lost and made again; ``enqueue`` takes the run whose turn an ending brought; ``deaf`` is told of
    an execution whose agent goes on although its run was ended from outside.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        name: str,
        *,
        reclaim: Callable[[Execution], bool],
        reconnected: Callable[[], None],
        enqueue: Callable[[str], None],
        deaf: Callable[[Execution], None],
    ) -> None:
        self.executions: dict[str, Execution] = {}
        self._store = store
        self._settings = settings
        self._channel = keys.worker_channel(name)
        self._reclaim = reclaim
        self._reconnected = reconnected
        self._enqueue = enqueue
        self._deaf = deaf
        self._subscription = Subscription(settings.redis_url)
        self._renew_at = 0.0
        self._waiting = Waiting(Calling(store.client))
        self._thread = threading.Thread(target=self._loop, name="outlast-pulse", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._subscription.subscribe(self._channel)
        self._thread.start()

    def close(self, timeout: float = 1.0) -> None:
        """Ends the thread; leases are not renewed any more."""
        self._subscription.close()
        self._thread.join(timeout)

    def follow(self, execution: Execution) -> None:
        """Keeps the run's lease from now on."""
        self.executions[execution.key] = execution

    def leave(self, execution: Execution) -> None:
        """The run has its ending, or is not ours any more."""
        if self.executions.get(execution.key) is execution:
            del self.executions[execution.key]

    @property
    def abandoned(self) -> int:
        """Executions whose run was ended from outside while their agent goes on: each keeps its slot."""
        return sum(execution.left_behind for execution in list(self.executions.values()))

    @property
    def busy(self) -> bool:
        """Whether there is an execution whose ending is still to be recorded."""
        return any(not execution.left_behind for execution in list(self.executions.values()))

    def _loop(self) -> None:
        while not self._subscription.closed:
            try:
                self._beat()
            except Exception:
                log.exception("pulse.failed")
                time.sleep(TICK_SECONDS)

    def _beat(self) -> None:
        tick = TICK_SECONDS if self.executions else IDLE_TICK_SECONDS
        happening = self._subscription.get(tick)
        if isinstance(happening, Message):
            self._told(happening.data)
        elif isinstance(happening, Gap):
            self._renew_at = 0.0
            self._reconnected()
        elif happening is not None:
            # Just subscribed: a cancel that was sent before is in the answer to the next renewal.
            self._renew_at = 0.0
        now = time.monotonic()
        if now >= self._renew_at:
            self._renew(now)
        held = list(self.executions.values())
        for execution in held:
            self._watch(execution, now)
        self._waiting.look(held, now)

    def _told(self, data: bytes) -> None:
        word, _, rest = data.decode(errors="replace").partition(" ")
        key, _, argument = rest.partition(" ")
        execution = self.executions.get(key)
        if execution is None:
            return
        if word == "cancel" and argument in _CAUSES:
            log.info("run.cancel_heard", run=key, cause=argument)
            execution.stop(StopCause(argument))
        elif word == "terminate" and argument == execution.id:
            self.let_go(execution)

    # --- leases -----------------------------------------------------------------------------------------

    def _renew(self, now: float) -> None:
        held = {key: execution for key, execution in list(self.executions.items()) if not execution.abandoned}
        if not held:
            self._renew_at = now + self._settings.lease_seconds / 3
            return
        try:
            told = self._store.runs.renew({key: execution.id for key, execution in held.items()})
        except StoreError as error:
            log.warning("pulse.store_unavailable", error=type(error).__name__, runs=len(held))
            self._renew_at = now + min(1.0, self._settings.lease_seconds / 10)
            return
        # From the moment before the question: a slow answer must not stretch the interval.
        self._renew_at = now + self._settings.lease_seconds / 3
        for key, answer in told.items():
            # One that left meanwhile may have been released, which is no forgotten claim.
            if self.executions.get(key) is held[key]:
                self._hear(held[key], answer)

    def _hear(self, execution: Execution, answer: str) -> None:
        word, _, cause = answer.partition(" ")
        if word == "cancel":
            execution.stop(StopCause(cause))
        elif word == "unclaimed":
            if not self._reclaim(execution):
                execution.stop(StopCause.LOST)
        elif word != "ok":
            execution.stop(StopCause.LOST)

    # --- deadlines and graces ---------------------------------------------------------------------------

    def _watch(self, execution: Execution, now: float) -> None:
        if execution.abandoned or execution.recording:
            return
        if now >= execution.deadline:
            execution.stop(StopCause.DEADLINE)
        if execution.stopped_at is None:
            return
        grace = self._settings.cancel_grace_seconds
        if execution.token.cause is StopCause.LOST and now >= execution.stopped_at + grace:
            # Somebody else ended it, and nobody told us in time how.
            self.let_go(execution)
            return
        if now >= execution.stopped_at + grace * (execution.task_cancels + 1):
            execution.cancel_task()
        overdue = max(execution.stopped_at, execution.deadline) + grace
        if execution.task_cancels:
            overdue += CANCELLED_TASK_SECONDS
        if now >= overdue:
            self.abandon(execution, FailureCode.DEADLINE_EXCEEDED)

    def abandon(self, execution: Execution, code: FailureCode) -> None:
        """Ends a run whose agent does not stop, in a thread of its own; what it still writes is refused."""
        if not execution.abandoned:
            execution.abandoned = True
            threading.Thread(
                target=self._end_outside, args=(execution, code), name="outlast-abandon", daemon=True
            ).start()

    def let_go(self, execution: Execution) -> None:
        """Somebody else ended the run: stops its agent as far as its form allows, and records nothing."""
        if execution.abandoned:
            return
        execution.abandoned = True
        log.warning("run.let_go", run=execution.key)
        execution.stop(StopCause.LOST)
        execution.cancel_task()
        threading.Thread(
            target=self._await_unwinding, args=(execution,), name="outlast-let-go", daemon=True
        ).start()

    def _await_unwinding(self, execution: Execution) -> None:
        give_up = time.monotonic() + CANCELLED_TASK_SECONDS
        while self.executions.get(execution.key) is execution and time.monotonic() < give_up:
            time.sleep(0.02)
        self._leave_behind(execution)

    def _leave_behind(self, execution: Execution) -> None:
        execution.left_behind = True
        if execution.running is not None:
            execution.running.abandon()
        if self.executions.get(execution.key) is execution:
            log.warning("run.left_behind", run=execution.key)
            try:
                self._deaf(execution)
            except StoreError as error:
                log.warning("run.parent_not_told", run=execution.key, error=type(error).__name__)

    def _end_outside(self, execution: Execution, code: FailureCode) -> None:
        for attempt in range(_TRIES):
            try:
                finish = end_from_outside(
                    self._store.runs,
                    self._store.log,
                    execution.key,
                    ending=execution.ending(code),
                    guard="execution",
                    value=execution.id,
                )
            except StoreError:
                time.sleep(min(0.1 * 2**attempt, 2.0))
                continue
            if finish is not None and finish.recorded:
                log.warning("run.abandoned", run=execution.key, code=str(code), status=finish.status)
                if finish.successor:
                    self._enqueue(finish.successor)
            break
        execution.stop(StopCause.LOST)
        self._leave_behind(execution)
