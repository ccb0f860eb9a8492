"""The hub: one Redis subscription per web process, one feed per followed run, one cursor per open stream."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from shared.logs import get_logger
from shared.protocol import events, sse
from shared.settings import Settings
from shared.store import keys
from shared.store.channel import Confirmed, Gap, Message, Subscription
from shared.store.errors import StoreError
from shared.store.store import Store
from web.feed import RING_BYTES, SCANT_RING_BYTES, Feed, Waiter
from web.reader import CONFIRM_SECONDS, Reader, Source

TICK_SECONDS = 0.5
LINGER_SECONDS = 2.0
"""How long a run without readers stays subscribed, for a client that comes back at once."""

LOST_SECONDS = 5.0
"""A log that is missing is looked for again after this time before its readers are told that it is lost."""

RINGS_BYTES = 64 * 2**20
"""Above this sum over all runs every ring is kept short."""

LOG_READS = 16
"""Readers of one process that may read the log at once; other requests need connections too."""

LOST_CODE = "DISCONNECTED"
LOST_MESSAGE = "The record of this run was lost; its outcome is unknown."

log = get_logger(__name__)


class TooManyStreams(Exception):
    """This process holds as many streams as its settings allow."""


class Hub:
    """Opens streams; nothing runs before the first one, and a forked process starts its own."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._lines: dict[int, _Line] = {}
        self._closed = False

    def open(self, key: str, after: int = 0, *, hang_up: Callable[[], None] | None = None) -> Reader:
        """A stream of the frames after seq ``after``; SUBSCRIBE is sent at once, not waited for.

        Open it before the run is accepted, iterate it afterwards: acceptance itself publishes nothing.
        ``hang_up`` cuts the connection of a stream that is stuck in a write (``web.reader.hang_up_of``).
        Raises ``TooManyStreams``. Without Redis the stream sends heartbeats until there is one again.
        """
        return self._line().open(key, after, hang_up)

    def wait_ended(self, key: str, timeout: float) -> bool:
        """Whether the run's ending is recorded, waiting up to ``timeout`` seconds. Raises ``StoreError``."""
        return self._line().wait_ended(key, timeout)

    def stats(self) -> dict[str, int]:
        """Counters of this process since its start, and what is open now."""
        return self._line().stats()

    @property
    def closed(self) -> bool:
        """Whether this process ends its streams."""
        return self._closed

    def close(self) -> None:
        """Ends every stream at once; under gevent call it from a greenlet."""
        self._closed = True
        line = self._lines.get(os.getpid())
        if line is not None:
            line.closing = True
            # Not here: the interrupted thread may hold the very locks that waking takes.
            with suppress(RuntimeError):  # the interpreter itself is ending
                threading.Thread(target=line.end_all, name="outlast-hub-end", daemon=True).start()

    def _line(self) -> _Line:
        pid = os.getpid()
        line = self._lines.get(pid)
        if line is None:
            line = self._lines.setdefault(pid, _Line(self._store, self._settings))
            line.closing = self._closed
        return line


class _Line:
    """The hub's life in one process: its subscription, its thread, its feeds and readers."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.closing = False
        self._store = store
        self._settings = settings
        self._subscription = Subscription(settings.redis_url)
        self._feeds: dict[str, Feed] = {}
        self._readers: set[Reader] = set()
        self._suspects: set[Feed] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._tick_at = 0.0
        self._compare_at = 0.0
        self._compare_all_at = 0.0
        self._counts = dict.fromkeys(("opened", "messages", "gaps", "refills", "dropped", "lost"), 0)
        self._source = Source(
            log=store.log,
            turns=threading.BoundedSemaphore(LOG_READS),
            heartbeat_seconds=settings.heartbeat_seconds,
            suspect=self._suspects.add,
            leave=self._leave,
            closing=lambda: self.closing,
        )

    # --- called by requests -------------------------------------------------------------------------

    def open(self, key: str, after: int, hang_up: Callable[[], None] | None) -> Reader:
        with self._lock:
            if len(self._readers) >= self._settings.max_streams:
                raise TooManyStreams
            feed = self._follow(key)
            feed.reached = max(feed.reached, after)
            reader = Reader(feed, after, self._source, hang_up)
            self._readers.add(reader)
            self._counts["opened"] += 1
        return reader

    def wait_ended(self, key: str, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        waiter = Waiter()
        with self._lock:
            feed = self._follow(key)
        try:
            if not feed.confirmed:
                feed.lie_down(waiter)
                feed.sleep(waiter, 0 if feed.confirmed else min(CONFIRM_SECONDS, timeout))
            while not self.closing:
                if not feed.lie_down_until_end(waiter):
                    return True
                record = self._store.runs.get(key)
                ended = record is not None and record.ended
                left = 0.0 if ended or self.closing else deadline - time.monotonic()
                woken = feed.sleep(waiter, left)
                if ended or (not woken and left <= 0):
                    return ended
            return False
        finally:
            with self._lock:
                self._unfollow(feed)

    def stats(self) -> dict[str, int]:
        with self._lock:
            feeds = list(self._feeds.values())
            now = {"open_streams": len(self._readers), "followed_runs": len(feeds)}
        return now | {"ring_bytes": sum(feed.ring_bytes for feed in feeds)} | self._counts

    def end_all(self) -> None:
        with self._lock:
            feeds, readers = list(self._feeds.values()), list(self._readers)
        for feed in feeds:
            feed.wake_all()
        self._subscription.close()
        now = time.monotonic()
        for reader in readers:
            if not reader.inside and now - reader.left_at > 1:
                reader.drop()

    def _leave(self, reader: Reader) -> None:
        with self._lock:
            if reader in self._readers:
                self._readers.discard(reader)
                self._unfollow(reader.feed)

    def _follow(self, key: str) -> Feed:
        """Under the lock."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="outlast-hub", daemon=True)
            self._thread.start()
        channel = keys.run_channel(key)
        feed = self._feeds.get(channel)
        if feed is None:
            feed = self._feeds[channel] = Feed(key)
            self._subscription.subscribe(channel)
        feed.users += 1
        return feed

    def _unfollow(self, feed: Feed) -> None:
        """Under the lock."""
        feed.users -= 1
        feed.idle_since = time.monotonic()
        if not feed.users and feed.end is not None:
            self._forget(feed)

    def _forget(self, feed: Feed) -> None:
        """Under the lock."""
        channel = keys.run_channel(feed.key)
        if self._feeds.get(channel) is feed:
            del self._feeds[channel]
            self._suspects.discard(feed)
            self._subscription.unsubscribe(channel)

    # --- the hub's own thread -----------------------------------------------------------------------

    def _run(self) -> None:
        while not self.closing:
            try:
                self._step()
            except Exception:
                log.exception("hub.failed")
                with suppress(Exception):
                    self._suspect_all()
                time.sleep(TICK_SECONDS)

    def _step(self) -> None:
        now = time.monotonic()
        due = min(self._tick_at, self._compare_at or self._tick_at)
        happening = self._subscription.get(max(due - now, 0.0))
        if isinstance(happening, Message):
            feed = self._feeds.get(happening.channel)
            if feed is not None:
                self._counts["messages"] += 1
                feed.publish(happening.data)
        elif isinstance(happening, Confirmed):
            feed = self._feeds.get(happening.channel)
            if feed is not None and feed.confirm():
                self._suspects.add(feed)
                self._compare_soon()
        elif isinstance(happening, Gap):
            # Nothing to compare yet: every channel is confirmed anew and compared then.
            self._counts["gaps"] += 1
            log.warning("hub.resubscribed", followed=len(self._feeds))
        now = time.monotonic()
        if now >= self._tick_at:
            self._tick(now)
        if self._compare_at and now >= self._compare_at:
            self._compare_at = 0.0
            self._compare(now)

    def _tick(self, now: float) -> None:
        self._tick_at = now + TICK_SECONDS
        with self._lock:
            feeds, readers = list(self._feeds.values()), list(self._readers)
            for feed in feeds:
                if not feed.users and now - feed.idle_since > LINGER_SECONDS:
                    self._forget(feed)
        for reader in readers:
            if not reader.inside and now - reader.left_at > self._settings.reader_timeout_seconds:
                self._counts["dropped"] += 1
                log.info("hub.reader_dropped", run=reader.feed.key, seq=reader.cursor)
                reader.drop()
        limit = RING_BYTES if sum(feed.ring_bytes for feed in feeds) < RINGS_BYTES else SCANT_RING_BYTES
        for feed in feeds:
            if feed.limit != limit:
                feed.trim(limit)
        if now >= self._compare_all_at:
            self._suspect_all()
        if self._suspects:
            self._compare_soon()

    def _suspect_all(self) -> None:
        self._compare_all_at = time.monotonic() + self._settings.heartbeat_seconds
        with self._lock:
            self._suspects.update(self._feeds.values())
        if self._suspects:
            self._compare_soon()

    def _compare_soon(self) -> None:
        # A little later, so that the confirmations of a whole reconnect are compared in one round trip.
        self._compare_at = self._compare_at or time.monotonic() + 0.02

    def _compare(self, now: float) -> None:
        """Compares the last seq of every suspected run in one pipeline; without Redis, at the next tick."""
        suspects = list(self._suspects)
        try:
            lasts = self._store.log.last_seqs([feed.key for feed in suspects])
        except StoreError as error:
            log.warning("hub.compare_failed", error=type(error).__name__)
            return
        for feed, last in zip(suspects, lasts, strict=True):
            self._suspects.discard(feed)
            if last > feed.known:
                self._counts["refills"] += feed.announce(last)
            elif last < max(feed.known, feed.reached):
                self._shorter(feed, last, now)
            if last:
                feed.missing_since = None

    def _shorter(self, feed: Feed, last: int, now: float) -> None:
        """Redis forgot events: workers may say them again, somebody may have ended the run, or it is lost."""
        if last:
            with suppress(StoreError):
                frames = self._store.log.read(feed.key, last - 1, 1)
                if frames and sse.is_terminal(frames[-1]):
                    feed.end_with(last, frames[-1])
        elif feed.missing_since is None:
            feed.missing_since = now
            self._suspects.add(feed)
        elif now - feed.missing_since < LOST_SECONDS:
            self._suspects.add(feed)
        else:
            self._counts["lost"] += 1
            log.error("hub.run_lost", run=feed.key, seq=feed.known)
            feed.end_with(0, _LOST)


_LOST = sse.prelude_frame(events.dump(events.run_error(LOST_MESSAGE, LOST_CODE)))
"""Carries no number: it is in no log, and a client that resumes must not count it."""
