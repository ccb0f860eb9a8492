"""One run's events on their way to its log: verified, numbered, buffered, flushed, repaired."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import islice

from shared.logs import get_logger
from shared.protocol import events, sse
from shared.protocol.verifier import VerificationError, Verifier
from shared.runs.outcome import StopCause
from shared.settings import Settings
from shared.store.answers import Append
from shared.store.errors import StoreError, StoreFull
from shared.store.log import Batch
from worker.bounds import Bounds, is_closing
from worker.cancellation import CancellationToken, Disconnected, wake
from worker.sink import EventBufferFull
from worker.writer import Writer

BATCH_EVENTS = 256
BATCH_BYTES = 64 * 1024
"""Most that one flush takes: small enough that the batch itself travels on the channel, not as a doorbell."""

SOFT_EVENTS = 4096
SOFT_BYTES = 2**20
"""Unwritten frames above which emitters off the loop's thread wait and generators pause."""

HARD_EVENTS = 100_000
HARD_BYTES = 16 * 2**20
"""Unwritten frames above which an emitter that must not wait is refused: Redis is away or too slow."""

TAIL_SECONDS = 5.0
TAIL_BYTES = 8 * 2**20
"""Acknowledged frames kept for a Redis that forgot them: killed, it loses about its last second."""

log = get_logger(__name__)


class RunEmitter:
    """The sink of one execution; ``put`` from any thread, one flusher at a time, no I/O under the lock.

    ``stop`` trips the run's token from outside the agent; ``reclaim`` says the claim again to a Redis that
    forgot it and answers whether the run is still ours. ``last_seq`` and ``size`` tell what the log holds.
    """

    def __init__(
        self,
        key: str,
        execution: str,
        *,
        verifier: Verifier,
        token: CancellationToken,
        settings: Settings,
        writer: Writer,
        last_seq: int,
        size: int = 0,
        stop: Callable[[StopCause], None],
        reclaim: Callable[[], bool],
    ) -> None:
        self.key = key
        self.execution = execution
        self.token = token
        self.pending_terminal: events.Event | None = None
        self.refused_terminal: VerificationError | None = None
        self.overflowed = False
        self._verifier = verifier
        self._bounds = Bounds(settings, events=last_seq, size=size)
        self._writer = writer
        self._stop = stop
        self._reclaim = reclaim
        self._changed = threading.Condition()
        self._fresh: deque[bytes] = deque()
        self._fresh_bytes = 0
        self._batch: Batch | None = None
        self._acknowledged = last_seq
        self._next_seq = last_seq + 1
        self._tail: deque[tuple[float, int, tuple[bytes, ...]]] = deque()
        self._tail_bytes = 0
        self._flushing = False
        self._closed = False
        self._suspect = False
        self._refused = False
        self._waiters: list[asyncio.Future[None]] = []
        token.on_trip(self._wake)

    @property
    def verifier(self) -> Verifier:
        """The order of the run so far."""
        return self._verifier

    @property
    def next_seq(self) -> int:
        """The number that the next frame gets."""
        return self._next_seq

    @property
    def pending(self) -> int:
        """Frames that the log has not confirmed."""
        return len(self._fresh) + (len(self._batch.frames) if self._batch else 0)

    # --- taking events ----------------------------------------------------------------------------------

    def put(self, event: events.Event) -> None:
        """Waits for room, takes an event and has it written; raises as these three do."""
        self.await_room()
        self.take(event)
        self.flush()

    def await_room(self) -> None:
        """Waits while more is unwritten than the soft bound, but never on a loop's thread.

        Raises Cancelled and Disconnected.
        """
        if not self._over(SOFT_EVENTS, SOFT_BYTES) or _on_loop_thread():
            return
        with self._changed:
            while self._over(SOFT_EVENTS, SOFT_BYTES) and not self._closed:
                if self.token.tripped:
                    raise self.token.stopping()
                self._writer.wake(self)
                self._changed.wait(1.0)

    def take(self, event: events.Event) -> None:
        """Takes an event; it neither waits nor writes.

        Raises VerificationError, SerializationError, ProtocolError (over the size limit), EventBufferFull
        and Disconnected.
        """
        data = events.dump(event)
        try:
            with self._changed:
                if self._closed:
                    raise Disconnected("this execution has ended")
                self._require_room()
                self._bounds.check(len(data), closing=is_closing(event))
                self._observe(event)
                if self.pending_terminal is None:
                    self._append(data)
        except EventBufferFull:
            self.overflowed = True
            self.token.trip(StopCause.BUFFER_FULL)
            raise

    def flush(self) -> None:
        """Writes what was taken, off a loop's thread and when the process was quiet; else the writer does."""
        self._writer.note(self, inline=not _on_loop_thread())

    def _observe(self, event: events.Event) -> None:
        terminal = isinstance(event, events.RunFinishedEvent | events.RunErrorEvent)
        try:
            self._verifier.observe(event)
        except VerificationError as error:
            if terminal and not self._verifier.terminated:
                self.refused_terminal = error
            raise
        if terminal:
            # Recorded together with the outcome, never appended on its own.
            self.pending_terminal = event

    def _append(self, data: bytes) -> None:
        frame = sse.frame(self._next_seq, data)
        self._next_seq += 1
        self._fresh.append(frame)
        self._fresh_bytes += len(frame)
        self._bounds.count(len(frame))

    def _require_room(self) -> None:
        if self._over(HARD_EVENTS, HARD_BYTES):
            raise EventBufferFull(f"{self.pending} events wait for Redis")

    def _over(self, most_events: int, most_bytes: int) -> bool:
        return len(self._fresh) >= most_events or self._fresh_bytes >= most_bytes

    async def drained(self) -> None:
        """Returns at once below the soft bound, else when the buffer is below it or the token trips."""
        while True:
            with self._changed:
                if self._closed or self.token.tripped or not self._over(SOFT_EVENTS, SOFT_BYTES):
                    return
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
            await waiter

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            wake(waiter)

    # --- flushing: begin, I/O without the lock, settle ------------------------------------------------------

    @property
    def urgent(self) -> bool:
        """Whether a whole batch waits, so that there is nothing to gain by waiting for more."""
        return len(self._fresh) >= BATCH_EVENTS or self._fresh_bytes >= BATCH_BYTES

    @property
    def idle(self) -> bool:
        """Whether there is nothing to flush or somebody is at it."""
        return self._flushing or (self._batch is None and not self._fresh and not self._suspect)

    def begin(self) -> Batch | None:
        """Becomes the run's flusher and gives the frozen batch; None when there is nothing to do."""
        with self._changed:
            if self.idle or (self._closed and self._batch is None):
                return None
            if self._batch is None:
                self._batch = Batch(self.key, self.execution, self._acknowledged + 1, tuple(self._cut()))
            self._flushing = True
            return self._batch

    def _cut(self) -> list[bytes]:
        frames: list[bytes] = []
        size = 0
        while (
            self._fresh
            and len(frames) < BATCH_EVENTS
            and (not frames or size + len(self._fresh[0]) <= BATCH_BYTES)
        ):
            frame = self._fresh.popleft()
            frames.append(frame)
            size += len(frame)
        self._fresh_bytes -= size
        return frames

    def settle(self, answer: Append | StoreError) -> None:
        """Takes the answer to the batch that ``begin`` gave."""
        cause: str | None = None
        reclaim = False
        with self._changed:
            self._refused = isinstance(answer, StoreFull)
            if isinstance(answer, Append):
                if answer.state == "ok":
                    self._acknowledge()
                    cause = answer.cancel
                elif answer.state == "gap":
                    cause = self._rewind(answer.last_seq)
                elif answer.state == "unclaimed":
                    reclaim = True
                else:
                    cause = StopCause.LOST
        if reclaim and not self._claimed_again():
            cause = StopCause.LOST
        if cause:
            self._stop(StopCause(cause))
        with self._changed:
            self._flushing = False
            if cause == StopCause.LOST:
                self._close()
        self._wake()

    def _claimed_again(self) -> bool:
        try:
            return self._reclaim()
        except StoreError:
            return True

    def _acknowledge(self) -> None:
        batch, self._batch, self._suspect = self._batch, None, False
        if batch is None or not batch.frames:
            return
        now = time.monotonic()
        self._acknowledged += len(batch.frames)
        self._tail.append((now, batch.first_seq, batch.frames))
        self._tail_bytes += sum(map(len, batch.frames))
        while self._tail and (now - self._tail[0][0] > TAIL_SECONDS or self._tail_bytes > TAIL_BYTES):
            self._tail_bytes -= sum(map(len, self._tail.popleft()[2]))

    def _rewind(self, length: int) -> StopCause | None:
        """Makes a batch of everything sent after ``length``; LOST when that is not kept any more."""
        sent = self._sent_after(length)
        if sent is None:
            log.error("run.log_shortened", run=self.key, length=length, acknowledged=self._acknowledged)
            return StopCause.LOST
        log.warning("run.log_repaired", run=self.key, length=length, frames=len(sent))
        self._tail.clear()
        self._tail_bytes = 0
        self._acknowledged = length
        self._batch = Batch(self.key, self.execution, length + 1, tuple(sent)) if sent else None
        return None

    def _sent_after(self, length: int) -> list[bytes] | None:
        first = self._tail[0][1] if self._tail else self._acknowledged + 1
        sent = [frame for _, _, frames in self._tail for frame in frames]
        sent += self._batch.frames if self._batch else ()
        if not first <= length + 1 <= first + len(sent):
            return None
        return list(islice(sent, length + 1 - first, None))

    def suspect(self) -> None:
        """Has the log's length compared with what was acknowledged: Redis may have been restarted."""
        self._suspect = True
        self._writer.wake(self)

    # --- the end ----------------------------------------------------------------------------------------

    def seal(self) -> None:
        """Refuses every further event; what was taken stays to be written."""
        with self._changed:
            self._closed = True
        self._wake()

    def rest(self, timeout: float) -> tuple[int, list[bytes]] | None:
        """What a sealed run's finish has to carry: first seq and frames; None while the log is not that far.

        Small rests travel with the finish in one round trip; larger ones are flushed first.
        """
        deadline = time.monotonic() + timeout
        while True:
            with self._changed:
                if not self._flushing and self._batch is None and not self.urgent:
                    return self._acknowledged + 1, list(self._fresh)
                if not self._flushing and self._refused:
                    # A full Redis takes endings but no appends, so the ending carries everything.
                    return self._acknowledged + 1, [
                        *(self._batch.frames if self._batch else ()),
                        *self._fresh,
                    ]
                if self._flushing:
                    self._changed.wait(max(deadline - time.monotonic(), 0.0))
            if time.monotonic() >= deadline:
                return None
            if not self._flush_sealed():
                with self._changed:
                    self._changed.wait(0.05)

    def _flush_sealed(self) -> bool:
        with self._changed:
            if self._flushing:
                return True
            if self._batch is None:
                self._batch = Batch(self.key, self.execution, self._acknowledged + 1, tuple(self._cut()))
            self._flushing = True
            batch = self._batch
        return self._writer.write(self, batch)

    def rewound(self, length: int) -> bool:
        """After a finish that met a gap: whether everything from ``length`` on can be written again."""
        with self._changed:
            return self._rewind(length) is None

    def _close(self) -> None:
        self._closed = True
        self._fresh.clear()
        self._fresh_bytes = 0
        self._batch = None


def _on_loop_thread() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
