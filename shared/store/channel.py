"""A subscription to channels: one connection of its own that heals itself and reports every gap."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.store.connection import connect

IDLE_SECONDS = 5.0
"""Silence after which the server is asked whether it is there; after twice that the connection is lost."""

# Another thread that drops the connection in mid-read leaves the client library with None for a socket.
_BROKEN = (RedisError, OSError, ValueError, TypeError, AttributeError)

_RETRY_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8)


@dataclass(frozen=True, slots=True)
class Message:
    """What was published on a channel."""

    channel: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The server took the subscription: nothing on ``channel`` is missed from here on without a Gap."""

    channel: str


@dataclass(frozen=True, slots=True)
class Gap:
    """The connection was lost and made again: messages are missing until a channel is confirmed anew."""


Happening = Message | Confirmed | Gap


class Subscription:
    """Channels of one Redis. One thread calls ``get``; any thread may subscribe, unsubscribe and close."""

    def __init__(self, url: str) -> None:
        self._client = connect(url, max_connections=1)
        # Reentrant, since a lost connection found while sending is dropped under the same lock.
        self._lock = threading.RLock()
        self._channels: dict[str, None] = {}
        self._connection: Any = None
        self._was_connected = False
        self._closed = False
        self._failures = 0
        self._heard = 0.0
        self._asked = False

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._connection is not None

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def subscribe(self, *channels: str) -> None:
        """Sends SUBSCRIBE at once without waiting; while there is no connection, the next one carries it."""
        with self._lock:
            self._channels |= dict.fromkeys(channels)
            self._send("SUBSCRIBE", *channels)

    def unsubscribe(self, *channels: str) -> None:
        """Sends UNSUBSCRIBE at once without waiting; messages under way may still come."""
        with self._lock:
            for channel in channels:
                self._channels.pop(channel, None)
            self._send("UNSUBSCRIBE", *channels)

    def get(self, timeout: float) -> Happening | None:
        """The next happening, or None after ``timeout`` seconds, after a lost connection and when closed."""
        deadline = time.monotonic() + timeout
        while not self._closed:
            if self._connection is None:
                gap = self._connect(max(deadline - time.monotonic(), 0.0))
                if gap or self._connection is None:
                    return gap
            try:
                answer = self._read(max(deadline - time.monotonic(), 0.0))
            except _BROKEN:
                self._drop()
                return None
            happening = _understood(answer)
            if happening is not None:
                return happening
            if time.monotonic() >= deadline:
                return None
        return None

    def close(self) -> None:
        """Ends the connection and wakes the thread in ``get``."""
        self._closed = True
        with self._lock:
            self._drop()

    def _read(self, timeout: float) -> Any:
        connection, now = self._connection, time.monotonic()
        if now - self._heard > IDLE_SECONDS and not self._asked:
            self._asked = True
            with self._lock:
                self._send("PING")
        if now - self._heard > 2 * IDLE_SECONDS:
            raise ConnectionError("the server is silent")
        if connection is None:
            return None
        try:
            # Never zero: another thread may write meanwhile, and must not find the socket non-blocking.
            wait = min(max(timeout, 0.001), IDLE_SECONDS)
            answer = connection.read_response(timeout=wait, disconnect_on_error=False)
        except RedisTimeoutError:
            return None
        self._heard, self._asked = time.monotonic(), False
        return answer

    def _connect(self, timeout: float) -> Gap | None:
        if self._failures:
            time.sleep(min(timeout, _RETRY_SECONDS[min(self._failures, len(_RETRY_SECONDS)) - 1]))
        connection = self._client.connection_pool.connection_class(
            **self._client.connection_pool.connection_kwargs
        )
        try:
            connection.connect()
        except (RedisError, OSError):
            self._failures += 1
            return None
        with self._lock:
            if self._closed:
                connection.disconnect()
                return None
            self._connection, self._failures = connection, 0
            self._heard, self._asked = time.monotonic(), False
            self._send("SUBSCRIBE", *self._channels)
        gap = Gap() if self._was_connected else None
        self._was_connected = True
        return gap

    def _send(self, command: str, *channels: str) -> None:
        """Under the lock."""
        if self._connection is None or (command != "PING" and not channels):
            return
        try:
            self._connection.send_packed_command(
                self._connection.pack_command(command, *channels), check_health=False
            )
        except _BROKEN:
            self._drop()

    def _drop(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.disconnect()


def _understood(answer: Any) -> Happening | None:
    if not isinstance(answer, list) or len(answer) != 3:
        return None
    if answer[0] == b"message":
        return Message(answer[1].decode(), answer[2])
    return Confirmed(answer[1].decode()) if answer[0] == b"subscribe" else None
