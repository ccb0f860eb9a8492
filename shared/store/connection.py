"""The clients: short timeouts, keepalive and no blind retries, because a repeated command may act twice."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from shared.store.client import Client
from shared.store.errors import StoreError, StoreFull, StoreUnavailable, StoreUncertain

__all__ = ["FAILURES", "SOCKET_TIMEOUT_SECONDS", "Client", "ask", "connect", "translate"]

SOCKET_TIMEOUT_SECONDS = 2.0

_KEEPALIVE = {
    getattr(socket, name): value
    for name, value in {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}.items()
    if hasattr(socket, name)
}


def connect(
    url: str, *, timeout: float | None = SOCKET_TIMEOUT_SECONDS, max_connections: int = 128
) -> Client:
    """A client for ``url``; answers are bytes, a wait for a free connection is bounded by ``timeout``."""
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": timeout,
        "socket_connect_timeout": SOCKET_TIMEOUT_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "max_connections": max_connections,
        "timeout": SOCKET_TIMEOUT_SECONDS,
    }
    if not url.startswith("unix://"):
        options |= {"socket_keepalive": True, "socket_keepalive_options": _KEEPALIVE}
    pool = redis.BlockingConnectionPool.from_url(url, **options)
    return Client(pool, most=max_connections, patience=SOCKET_TIMEOUT_SECONDS)


FAILURES: Counter[str] = Counter()
"""Failed calls of this process so far, by the name of the error that they became."""


def translate(error: RedisError) -> StoreError:
    """The store's own word for a failure of the client library."""
    found = _translated(error)
    FAILURES[type(found).__name__] += 1
    return found


def _translated(error: RedisError) -> StoreError:
    if isinstance(error, OutOfMemoryError):
        return StoreFull("Redis is at its memory limit")
    if isinstance(error, RedisTimeoutError):
        return StoreUncertain("Redis did not answer in time")
    if isinstance(error, RedisConnectionError):
        text = str(error)
        lost = "while reading" in text.lower() or "closed by server" in text.lower()
        if lost:
            return StoreUncertain("the answer of Redis was lost")
        return StoreUnavailable("Redis cannot be reached")
    return StoreUnavailable(f"Redis refused a command ({type(error).__name__})")


def ask(call: Callable[[], Any], *, tries: int = 2) -> Any:
    """Carries out a call that is safe to repeat; raises ``StoreError`` after the last try.

    Two tries with a socket timeout of 2 s keep every answer within 5 s.
    """
    for left in range(tries - 1, -1, -1):
        try:
            return call()
        except (RedisConnectionError, RedisTimeoutError) as error:
            if not left:
                raise translate(error) from error
        except RedisError as error:
            raise translate(error) from error
    raise AssertionError("tries must be positive")
