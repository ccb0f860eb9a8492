"""The live end of one run's log as this process follows it: a ring of recent frames for all its readers."""

from __future__ import annotations

import threading
from bisect import bisect_right
from enum import Enum
from typing import NamedTuple

from shared.protocol import sse

RING_BYTES = 2**20
"""How much of a run's recent past is kept; readers further behind read the log."""

SCANT_RING_BYTES = 64 * 1024
"""The same while the rings of the whole process take too much memory."""

PIECE_BYTES = 32 * 1024
"""About how much a reader takes from the ring at once."""

_CHUNK_COST = 160


class Chunk(NamedTuple):
    """Consecutive frames as they were published: numbers of the first and the last, and their bytes."""

    first: int
    last: int
    data: bytes


class Want(Enum):
    """What a reader does when the ring has nothing for it."""

    LOG = "read the log"
    END = "end: the reader has everything"
    SLEEP = "sleep: it was put on the list of sleepers"


class Waiter:
    """One sleeping thread or greenlet. Not a Condition: who wakes must not queue for the feed's lock."""

    __slots__ = ("_gate",)

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()

    def sleep(self, seconds: float) -> bool:
        """Whether it was woken within that time; a negative time has no end."""
        return self._gate.acquire(timeout=seconds)

    def wake(self) -> None:
        """To be called once per sleep, by whoever took the waiter off its list."""
        self._gate.release()


class Feed:
    """What this process knows of one run.

    ``head`` is the last event of the ring, ``known`` the last one the log is known to hold, ``reached`` the
    last one a client came with, ``end`` the terminal event once seen and ``terminal`` its frame. The ring has
    no holes: after one it starts anew and the log fills in.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.head = 0
        self.known = 0
        self.reached = 0
        self.end: int | None = None
        self.terminal: bytes | None = None
        self.confirmed = False
        self.looked_early = False
        self.users = 0
        self.idle_since = 0.0
        self.missing_since: float | None = None
        self.limit = RING_BYTES
        self.ring_bytes = 0
        self.refilling = threading.Lock()
        self._looked = False
        self._rewound = False
        self._chunks: list[Chunk] = []
        self._start = 0
        self._lock = threading.Lock()
        self._sleepers: set[Waiter] = set()
        self._end_sleepers: set[Waiter] = set()

    # --- what the hub tells -------------------------------------------------------------------------

    def publish(self, message: bytes) -> None:
        """Takes a published message: ``first count LF frames``, or without frames a mere announcement."""
        cut = message.index(b"\n")
        first_text, count_text = message[:cut].split()
        first = int(first_text)
        last = first + int(count_text) - 1
        data = message[cut + 1 :]
        if not data:
            self.announce(last)
            return
        terminal = _terminal_at_end(data)
        with self._lock:
            if last <= self.head:
                if terminal is not None:
                    self._rewind(last, terminal)
            else:
                self._extend(Chunk(first, last, data))
                if terminal is not None:
                    self.end, self.terminal = last, terminal
            sleepers = self._awake(ended=terminal is not None)
        _wake(sleepers)

    def begin(self, started: bytes, *, confirmed: bool) -> bool:
        """Takes the first frame of a run that was accepted just now, so that nobody reads it from the log.

        ``confirmed``: the subscription stood before that. False if the log must be compared once, because
        something may have been published between acceptance and subscription.
        """
        with self._lock:
            if not self.head:
                self._extend(Chunk(1, 1, started))
            elif self._start < len(self._chunks) and self._chunks[self._start].first == 2:
                self._chunks.insert(self._start, Chunk(1, 1, started))
                self.ring_bytes += len(started) + _CHUNK_COST
            else:
                return True
            self._looked = True
            self.looked_early |= not self.confirmed
            return confirmed or not self.confirmed

    def announce(self, last: int) -> bool:
        """The log holds events up to ``last``; whether that is news."""
        with self._lock:
            news = last > self.known
            if news:
                self.known = last
            sleepers = self._awake(ended=True) if news else ()
        _wake(sleepers)
        return news

    def confirm(self) -> bool:
        """The subscription stands; whether somebody read the log before that, so that it must be compared."""
        with self._lock:
            again = self.confirmed or self.looked_early
            self.confirmed, self.looked_early = True, False
            sleepers = self._awake(ended=False)
        _wake(sleepers)
        return again

    def end_with(self, last: int, terminal: bytes) -> None:
        """The run ended at ``last``, which readers may have passed: Redis forgot events, or all of them.

        Readers that are past it get ``terminal`` and end.
        """
        with self._lock:
            self._rewind(last, terminal)
            sleepers = self._awake(ended=True)
        _wake(sleepers)

    def wake_all(self) -> None:
        """Wakes everybody, so that they see that the hub is closing."""
        with self._lock:
            sleepers = self._awake(ended=True)
        _wake(sleepers)

    def trim(self, limit: int) -> None:
        """Keeps the ring below ``limit`` bytes from now on."""
        with self._lock:
            self.limit = limit
            self._trim()

    # --- what readers ask ---------------------------------------------------------------------------

    def take(self, cursor: int, waiter: Waiter) -> tuple[bytes, int] | Want:
        """The next frames after ``cursor`` and the number of the last of them, or what to do instead."""
        with self._lock:
            if self.end is not None and cursor >= self.end:
                passed = cursor > self.end or self._rewound
                return (self.terminal, cursor) if passed and self.terminal else Want.END
            found = self._after(cursor)
            if not found:
                if cursor < self.known or not self._looked:
                    return Want.LOG
                self._sleepers.add(waiter)
                return Want.SLEEP
        if len(found) == 1 and found[0].first > cursor:
            return found[0].data, found[0].last
        first = found[0]
        data = _from(first, cursor + 1) + b"".join(chunk.data for chunk in found[1:])
        return data, found[-1].last

    def covers(self, cursor: int) -> bool:
        """Whether the ring holds the event after ``cursor``."""
        with self._lock:
            return bool(self._after(cursor))

    def looked(self, last: int, *, confirmed: bool) -> None:
        """A reader came to the end of the log and saw ``last``, or nothing (0).

        ``confirmed``: the subscription stood before it looked.
        """
        with self._lock:
            # Confirmed while the reader looked: nobody compares for it, so somebody has to look again.
            if confirmed or not self.confirmed:
                self._looked = True
                self.looked_early |= not confirmed
            self.known = max(self.known, last)
            if self._start == len(self._chunks):
                self.head = max(self.head, last)

    def ended(self, last: int, terminal: bytes) -> None:
        """A reader found the terminal event in the log."""
        with self._lock:
            self.end, self.terminal = last, terminal
            self.known = max(self.known, last)
            sleepers = self._awake(ended=True)
        _wake(sleepers)

    def offer(self, chunk: Chunk) -> None:
        """A reader at the live end read this from the log; the others may have it too."""
        with self._lock:
            if self.head and chunk.first == self.head + 1:
                self._extend(chunk)

    def lie_down(self, waiter: Waiter) -> None:
        """Puts the waiter on the list of those that the next message wakes."""
        with self._lock:
            self._sleepers.add(waiter)

    def lie_down_until_end(self, waiter: Waiter) -> bool:
        """Puts the waiter on the list that is woken when the run may have ended; False if it did end."""
        with self._lock:
            if self.end is None:
                self._end_sleepers.add(waiter)
            return self.end is None

    def sleep(self, waiter: Waiter, seconds: float) -> bool:
        """Sleeps as a listed waiter; whether it was woken."""
        if waiter.sleep(max(seconds, 0.0)):
            return True
        with self._lock:
            listed = waiter in self._sleepers or waiter in self._end_sleepers
            self._sleepers.discard(waiter)
            self._end_sleepers.discard(waiter)
        # Taken off the list by another: its wake is under way and must not be left for the next sleep.
        return not listed and waiter.sleep(-1)

    # --- under the lock -----------------------------------------------------------------------------

    def _after(self, cursor: int) -> list[Chunk]:
        chunks, start = self._chunks, self._start
        if start == len(chunks) or cursor >= self.head or cursor + 1 < chunks[start].first:
            return []
        index = len(chunks) - 1
        if chunks[index].first > cursor + 1:
            index = bisect_right(chunks, cursor + 1, lo=start, key=_first) - 1
        found: list[Chunk] = []
        size = 0
        while index < len(chunks) and (not found or size + len(chunks[index].data) <= PIECE_BYTES):
            found.append(chunks[index])
            size += len(chunks[index].data)
            index += 1
        return found

    def _extend(self, chunk: Chunk) -> None:
        if chunk.first != self.head + 1:
            self._clear()
        self._chunks.append(chunk)
        self.ring_bytes += len(chunk.data) + _CHUNK_COST
        self.head = chunk.last
        self.known = max(self.known, chunk.last)
        self._trim()

    def _trim(self) -> None:
        while self.ring_bytes > self.limit and self._start < len(self._chunks) - 1:
            self.ring_bytes -= len(self._chunks[self._start].data) + _CHUNK_COST
            self._chunks[self._start] = _NOTHING
            self._start += 1
        if self._start > 512 and self._start * 2 > len(self._chunks):
            del self._chunks[: self._start]
            self._start = 0

    def _clear(self) -> None:
        self._chunks, self._start, self.ring_bytes = [], 0, 0

    def _rewind(self, last: int, terminal: bytes) -> None:
        self._clear()
        self.head = self.known = self.end = last
        self.terminal, self._rewound = terminal, True

    def _awake(self, *, ended: bool) -> tuple[Waiter, ...]:
        sleepers = tuple(self._sleepers)
        self._sleepers.clear()
        if ended and self._end_sleepers:
            sleepers += tuple(self._end_sleepers)
            self._end_sleepers.clear()
        return sleepers


_NOTHING = Chunk(0, 0, b"")


def _first(chunk: Chunk) -> int:
    return chunk.first


def _wake(sleepers: tuple[Waiter, ...]) -> None:
    for waiter in sleepers:
        waiter.wake()


def _from(chunk: Chunk, seq: int) -> bytes:
    """The chunk's frames from number ``seq`` on; a line break never occurs inside a frame's data."""
    if chunk.first >= seq:
        return chunk.data
    return chunk.data[chunk.data.index(b"\n\nid: %d\n" % seq) + 2 :]


def _terminal_at_end(data: bytes) -> bytes | None:
    """The last frame if it ends the run."""
    cut = data.rfind(b"\n\n", 0, -2)
    last = data if cut < 0 else data[cut + 2 :]
    return last if sse.is_terminal(last) else None
