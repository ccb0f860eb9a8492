"""One open stream of a run: a cursor that takes from the feed where it can and from the log where it must."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from shared.logs import get_logger
from shared.protocol import sse
from shared.store.errors import StoreError
from shared.store.log import PAGE_BYTES as LOG_PAGE_BYTES
from shared.store.log import EventLog
from web.feed import PIECE_BYTES, Chunk, Feed, Waiter, Want

OPENING = sse.comment("outlast")
"""Sent before anything is known, so that the headers go out at once."""

CONFIRM_SECONDS = 0.25
"""Longest wait for the subscription before the log is read anyway; it is compared again once that stands."""

RETRY_SECONDS = 0.5
"""Pause after the log could not be read, or did not hold what was announced."""

PAGE_BYTES = PIECE_BYTES
"""About how much of a log one reader holds at a time."""

FAST_PAGE_BYTES = 4 * PIECE_BYTES
"""The same of a reader whose server takes every piece within ``FAST_SECONDS``: fewer round trips."""

FAST_SECONDS = 0.02

UNSENT_BYTES = 2 * PIECE_BYTES
"""How much of one stream may wait in the kernel for a client that does not fetch it."""

FIRST_PAGE = 16

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """What readers of one process share: the log, the right to read it, and what they tell the hub."""

    log: EventLog
    turns: threading.BoundedSemaphore
    heartbeat_seconds: float
    suspect: Callable[[Feed], None]
    leave: Callable[[Reader], None]
    closing: Callable[[], bool]


class Reader:
    """An iterator of SSE bytes that ends right after the terminal frame.

    It also ends when the hub closes, and when the server took nothing for the reader time-out. While Redis
    is away it sends heartbeats and goes on afterwards. Closing it twice is harmless.
    """

    def __init__(
        self, feed: Feed, after: int, source: Source, hang_up: Callable[[], None] | None = None
    ) -> None:
        self.feed = feed
        self.cursor = after
        self.inside = False
        self.left_at = time.monotonic()
        self._source = source
        self._hang_up = hang_up
        self._waiter = Waiter()
        self._page = FIRST_PAGE
        self._page_bytes = PAGE_BYTES
        self._resuming = after > 0
        self._stood = feed.confirmed
        self._ended = False
        self._left = False
        self._beat_at = 0.0
        self._pieces = self._run()

    def begin(self, started: bytes) -> None:
        """The run was accepted after this stream was opened: its first frame, so the log needs no look."""
        if not self.feed.begin(started, confirmed=self._stood):
            self._source.suspect(self.feed)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        self.inside = True
        fast = time.monotonic() - self.left_at < FAST_SECONDS
        self._page_bytes = min(self._page_bytes * 2, FAST_PAGE_BYTES) if fast else PAGE_BYTES
        try:
            return next(self._pieces)
        finally:
            self.left_at = time.monotonic()
            self.inside = False

    def close(self) -> None:
        """Ends the stream and forgets the run; called by the server when the client has gone."""
        with suppress(ValueError):  # another thread is in it and will end by itself
            self._pieces.close()
        self._leave()

    def drop(self) -> None:
        """Ends a stream whose server is stuck in a write: hangs up, so that the write fails."""
        self._leave()
        if self._hang_up is not None:
            self._hang_up()

    def _run(self) -> Generator[bytes, None, None]:
        try:
            at_hand = self._at_hand()
            yield OPENING + at_hand
            self._beat_at = time.monotonic() + self._source.heartbeat_seconds
            if not at_hand:
                self._await_confirmation()
            while not self._over():
                data = self._next()
                if data:
                    if len(data) <= 2 * PIECE_BYTES:
                        yield data
                    else:
                        yield from _sliced(data)
                    self._beat_at = time.monotonic() + self._source.heartbeat_seconds
                elif time.monotonic() >= self._beat_at and not self._over():
                    yield sse.HEARTBEAT
                    self._beat_at = time.monotonic() + self._source.heartbeat_seconds
        finally:
            self._leave()

    def _at_hand(self) -> bytes:
        """What can be sent without waiting and without the log."""
        return self._next() if self.feed.covers(self.cursor) else b""

    def _over(self) -> bool:
        return self._ended or self._left or self._source.closing()

    def _leave(self) -> None:
        if not self._left:
            self._left = True
            self._source.leave(self)

    def _await_confirmation(self) -> None:
        feed = self.feed
        deadline = time.monotonic() + CONFIRM_SECONDS
        while not feed.confirmed and not self._over() and (left := deadline - time.monotonic()) > 0:
            feed.lie_down(self._waiter)
            if feed.confirmed or self._over():
                left = 0
            feed.sleep(self._waiter, left)

    def _next(self) -> bytes:
        """Bytes to send, or nothing after having waited."""
        if self._resuming:
            self._resuming = not self.feed.covers(self.cursor)
            if self._resuming:
                return self._resume()
        taken = self.feed.take(self.cursor, self._waiter)
        if taken is Want.LOG:
            return self._from_log()
        if taken is Want.SLEEP:
            # The hub may have closed between the last look and the listing.
            self.feed.sleep(self._waiter, 0 if self._over() else self._until_beat())
            return b""
        if taken is Want.END:
            self._ended = True
            return b""
        data, self.cursor = taken
        self._note_end()
        return data

    def _note_end(self) -> None:
        end = self.feed.end
        self._ended = end is not None and self.cursor >= end

    def _resume(self) -> bytes:
        """The first look of a client that has events: one event earlier, to see whether that was the end."""
        frames = self._read(self.cursor - 1, self._page)
        if frames is None:
            self._rest()
            return b""
        self._resuming = False
        if not frames:
            # The client has more than the log: Redis forgot events, and the hub finds out how the run ended.
            self._source.suspect(self.feed)
            return b""
        self.cursor += len(frames) - 1
        self._note_end()
        return b"".join(frames[1:])

    def _from_log(self) -> bytes:
        feed = self.feed
        if not self.cursor or self.cursor != feed.head:
            return self._rested(self._page_from_log(self._page))
        # Everybody at the live end needs the same frames: one reads, the others find them in the ring.
        if not feed.refilling.acquire(timeout=self._until_beat()):
            return b""
        try:
            if feed.covers(self.cursor):
                return b""
            data = self._page_from_log(min(self._page, max(feed.known - self.cursor, 1)), share=True)
        finally:
            feed.refilling.release()
        return self._rested(data)

    def _page_from_log(self, most: int, *, share: bool = False) -> bytes | None:
        """The next page; None when it is not to be had yet."""
        frames = self._read(self.cursor, most)
        if not frames:
            if frames is None or self.cursor >= self.feed.known:
                return None if frames is None else b""
            self._source.suspect(self.feed)
            return None
        data, first = b"".join(frames), self.cursor + 1
        self.cursor += len(frames)
        if share:
            self.feed.offer(Chunk(first, self.cursor, data))
        self._note_end()
        return data

    def _read(self, after: int, most: int) -> list[bytes] | None:
        """A page of the log, or None when it cannot be read now."""
        feed, source = self.feed, self._source
        confirmed = feed.confirmed
        if not source.turns.acquire(timeout=self._until_beat()):
            return None
        try:
            frames = source.log.read(feed.key, after, most)
        except StoreError as error:
            log.warning("hub.log_unreadable", run=feed.key, error=type(error).__name__)
            return None
        finally:
            source.turns.release()
        size = sum(map(len, frames))
        last = after + len(frames) if frames else 0
        if frames:
            self._page = max(1, min(2000, self._page_bytes * len(frames) // size))
            if sse.is_terminal(frames[-1]):
                feed.ended(last, frames[-1])
        if len(frames) < most and size < LOG_PAGE_BYTES:
            feed.looked(last, confirmed=confirmed)
        return frames

    def _until_beat(self) -> float:
        return max(self._beat_at - time.monotonic(), 0.0)

    def _rested(self, data: bytes | None) -> bytes:
        if data is None:
            self._rest()
        return data or b""

    def _rest(self) -> None:
        """Waits a little, at most until the next heartbeat; a message of the run ends the rest."""
        self.feed.lie_down(self._waiter)
        left = 0 if self._over() else min(RETRY_SECONDS, self._until_beat())
        self.feed.sleep(self._waiter, left)


def _sliced(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES]


def hang_up_of(environ: Mapping[str, Any]) -> Callable[[], None] | None:
    """How to cut a request's connection from another thread, where the server hands out its socket.

    From then on the kernel keeps back at most ``UNSENT_BYTES`` for the client, so that one which reads slowly
    is not taken for one that takes nothing.
    """
    connection = environ.get("gunicorn.socket") or environ.get("werkzeug.socket")
    if connection is None:
        return None
    with suppress(OSError, AttributeError):  # not TCP, or a system without the option
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    # Of a gevent socket the plain one inside: its writer then sees a broken pipe, which servers expect.
    plain = getattr(connection, "_sock", connection)

    def hang_up() -> None:
        with suppress(OSError):
            plain.shutdown(socket.SHUT_RDWR)

    return hang_up
