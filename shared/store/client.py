"""The client: a call is one write and one read, without the library's retries and meters."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import redis
from redis.client import Pipeline as LibraryPipeline
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

TRUSTED_SECONDS = 1.0
"""A connection idle for longer is looked at before it is used: the server may have closed it."""


class Connections:
    """A pool's connections, the last used first; at most ``most`` in use, a wait for one is bounded."""

    def __init__(self, pool: redis.ConnectionPool, most: int, patience: float) -> None:
        self._pool = pool
        self._most = most
        self._patience = patience
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._idle: deque[tuple[Any, float]] = deque()
        self._room = threading.Semaphore(self._most)
        self._doubted_at = 0.0

    def take(self) -> Any:
        """A connection to be given back. Raises the library's ConnectionError when there is none."""
        if self._pid != os.getpid():
            self._begin()
        if not self._room.acquire(timeout=self._patience):
            raise RedisConnectionError("No connection available.")
        try:
            connection, left_at = self._idle.pop()
        except IndexError:
            return self._made()
        if left_at < self._doubted_at or time.monotonic() - left_at > TRUSTED_SECONDS:
            _reconnect_if_stale(connection)
        return connection

    def _made(self) -> Any:
        try:
            return self._pool.make_connection()
        except BaseException:
            self._room.release()
            raise

    def give(self, connection: Any) -> None:
        """Takes a connection back, connected or not."""
        self._idle.append((connection, time.monotonic()))
        self._room.release()

    def doubt(self, connection: Any) -> None:
        """Ends a connection that failed in mid-call; all that are idle now will be looked at."""
        connection.disconnect()
        self._doubted_at = time.monotonic()


def _reconnect_if_stale(connection: Any) -> None:
    """A connection with something to read has missed its answer or its end; it connects anew when used."""
    try:
        stale = connection.can_read(timeout=0)
    except (redis.RedisError, OSError):
        stale = True
    if stale:
        connection.disconnect()


class Client(redis.Redis):
    """The library's client with its commands, over our own way to carry them out."""

    def __init__(self, pool: redis.ConnectionPool, *, most: int, patience: float) -> None:
        super().__init__(connection_pool=pool)
        self._connections = Connections(pool, most, patience)

    def execute_command(self, *args: Any, **options: Any) -> Any:
        connections = self._connections
        connection = connections.take()
        try:
            connection.send_packed_command(connection.pack_command(*args), check_health=False)
            parse: Any = self.parse_response
            return parse(connection, args[0], **options)
        except ResponseError:
            raise
        except BaseException:
            connections.doubt(connection)
            raise
        finally:
            connections.give(connection)

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> LibraryPipeline:
        if transaction:
            return super().pipeline(transaction, shard_hint)
        return Pipeline(self._connections, self)


class Pipeline(LibraryPipeline):
    """Commands that travel together and are no transaction."""

    def __init__(self, connections: Connections, client: Client) -> None:
        super().__init__(
            client.connection_pool, client.response_callbacks, transaction=False, shard_hint=None
        )
        self._connections = connections

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        if self.watching or self.explicit_transaction or self.scripts:
            return list(super().execute(raise_on_error))
        stack, self.command_stack = self.command_stack, []
        answers = self._asked(stack) if stack else []
        error = next((answer for answer in answers if isinstance(answer, ResponseError)), None)
        if raise_on_error and error is not None:
            raise error
        return answers

    def _asked(self, stack: Sequence[tuple[Any, dict[str, Any]]]) -> list[Any]:
        connection = self._connections.take()
        try:
            packed = connection.pack_commands([arguments for arguments, _ in stack])
            connection.send_packed_command(packed, check_health=False)
            return [self._answer(connection, arguments[0], options) for arguments, options in stack]
        except BaseException:
            self._connections.doubt(connection)
            raise
        finally:
            self._connections.give(connection)

    def _answer(self, connection: Any, name: Any, options: dict[str, Any]) -> Any:
        parse: Any = self.parse_response
        try:
            return parse(connection, name, **options)
        except ResponseError as error:
            return error
