"""What agents keep between runs, such as provider clients: made once per process, closed with it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, overload

from shared.logs import get_logger

T = TypeVar("T")

CLOSE_SECONDS = 0.5
"""What closing everything may take at a shutdown; what takes longer is left to the process's end."""

# The key whose factory runs in this task, in a tuple because None is a key too.
_MAKING: contextvars.ContextVar[tuple[Hashable] | None] = contextvars.ContextVar(
    "outlast_resource", default=None
)

log = get_logger(__name__)


class Resources:
    """One instance per key and process; nothing made before a fork is handed out, or closed, after it.

    ``get`` and ``on_loop`` have keys of their own. A factory that raised is asked again by the next caller.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self._pid = os.getpid()
        # A parent's shelf stays here in its child, unused: even collecting its clients could touch a
        # socket or a selector that the parent still needs.
        self._shelves: dict[int, _Shelf] = {}

    def get(self, key: Hashable, factory: Callable[[], T]) -> T:
        """The instance of this process, made by the first caller; any thread may ask, others wait for it.

        On the event loop the factory must not block. Raises what the factory raises, and RuntimeError
        for factories that ask for each other and once the process closes.
        """
        shelf = self._shelf()
        found = shelf.made.get(key, shelf)
        if found is not shelf:
            return found  # type: ignore[no-any-return]  # one key, one factory
        with shelf.making(key):
            if key not in shelf.made:
                made = contextvars.Context().run(factory)
                shelf.made[key] = made
                shelf.keep(key, made)
            return shelf.made[key]  # type: ignore[no-any-return]

    @overload
    async def on_loop(self, key: Hashable, factory: Callable[[], Awaitable[T]]) -> T: ...

    @overload
    async def on_loop(self, key: Hashable, factory: Callable[[], T]) -> T: ...

    async def on_loop(self, key: Hashable, factory: Callable[[], Any]) -> Any:
        """The instance bound to the loop of all async agents, made there by a plain or async factory.

        The factory outlives the run that asked first: a cancel ends the waiting, not the making. Raises
        what the factory raises, and RuntimeError for factories that ask for each other, on another loop and
        once the process closes.
        """
        shelf = self._shelf()
        loop = asyncio.get_running_loop()
        if shelf.home(loop) is not loop:
            raise RuntimeError("resources.on_loop is for async agents: this is not the worker's event loop")
        making = shelf.on_loop.get(key)
        if making is None or (making.done() and (making.cancelled() or making.exception() is not None)):
            # In a context of its own: a client must not belong to the run that happened to ask first.
            making = loop.create_task(_make(shelf, key, factory), context=contextvars.Context())
            shelf.on_loop[key] = making
        return making.result() if making.done() else await shelf.waiting(key, making)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Closes what this process made, the newest first: ``aclose`` on the loop, else ``close``.

        Not to be called on the loop itself. Waits ``timeout`` seconds at most, for all together.
        """
        shelf = self._shelves.get(os.getpid())
        if shelf is None or shelf.closed:
            return
        shelf.closed = True
        if not shelf.order:
            return
        closing = threading.Thread(
            target=_close_all, args=(shelf, time.monotonic() + timeout), name="outlast-resources", daemon=True
        )
        closing.start()
        closing.join(timeout)
        if closing.is_alive():
            log.warning("resources.close_timed_out", open=len(shelf.order))

    def _shelf(self) -> _Shelf:
        pid = os.getpid()
        shelf = self._shelves.get(pid)
        if shelf is None:
            shelf = self._shelves.setdefault(pid, _Shelf(self._loop if pid == self._pid else None))
        if shelf.closed:
            raise RuntimeError("this process is closing: no resource is made or handed out any more")
        return shelf


class _Shelf:
    """What one process has made."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        self._given = loop is not None
        self.made: dict[Hashable, Any] = {}
        self.on_loop: dict[Hashable, asyncio.Task[Any]] = {}
        self.order: list[tuple[Hashable, Any, asyncio.AbstractEventLoop | None]] = []
        self.closed = False
        self._lock = threading.Lock()
        self._locks: dict[Hashable, threading.Lock] = {}
        self._makers: dict[Hashable, int] = {}
        self._wanted: dict[int, Hashable] = {}
        self._awaited: list[tuple[tuple[Hashable], tuple[Hashable]]] = []

    def home(self, running: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
        """The one loop; without a given one, outside of a worker, the running one, until that is closed."""
        if self.loop is None or (not self._given and self.loop.is_closed()):
            self.loop = running
            self.on_loop.clear()
        return self.loop

    @contextmanager
    def making(self, key: Hashable) -> Iterator[None]:
        """Keeps other threads from making ``key``; raises RuntimeError where that could never end."""
        thread = threading.get_ident()
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
            wanted = key
            while (maker := self._makers.get(wanted)) is not None:
                if maker == thread:
                    raise RuntimeError(f"the factories of {key!r} and {wanted!r} ask for each other")
                if maker not in self._wanted:
                    break
                wanted = self._wanted[maker]
            self._wanted[thread] = key
        with lock:
            with self._lock:
                del self._wanted[thread]
                self._makers[key] = thread
            try:
                yield
            finally:
                with self._lock:
                    del self._makers[key]

    async def waiting(self, key: Hashable, making: asyncio.Task[Any]) -> Any:
        """What the task makes; raises RuntimeError where a factory would wait for itself."""
        asker = _MAKING.get()
        if asker is None:
            return await asyncio.shield(making)
        if self._leads((key,), asker):
            raise RuntimeError(f"the factories of {key!r} and {asker[0]!r} ask for each other")
        waits = (asker, (key,))
        self._awaited.append(waits)
        try:
            return await asyncio.shield(making)
        finally:
            self._awaited.remove(waits)

    def _leads(self, start: tuple[Hashable], goal: tuple[Hashable]) -> bool:
        """Whether making ``start`` waits, however indirectly, for ``goal``."""
        seen, rest = set(), [start]
        while rest:
            at = rest.pop()
            if at == goal:
                return True
            if at not in seen:
                seen.add(at)
                rest += [wanted for asker, wanted in self._awaited if asker == at]
        return False

    def keep(self, key: Hashable, made: Any, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Notes what is to be closed; made while the process closed, it is closed with the process itself."""
        self.order.append((key, made, loop))


async def _make(shelf: _Shelf, key: Hashable, factory: Callable[[], Any]) -> Any:
    _MAKING.set((key,))
    made = factory()
    if inspect.isawaitable(made):
        made = await made
    shelf.keep(key, made, asyncio.get_running_loop())
    return made


def _close_all(shelf: _Shelf, deadline: float) -> None:
    while shelf.order:
        key, made, home = shelf.order.pop()
        try:
            _close(made, home, home or shelf.loop, deadline)
        except Exception as error:  # noqa: BLE001 - the next one is to be closed all the same
            log.warning("resources.close_failed", key=str(key), error=type(error).__name__)


def _close(
    made: Any, home: asyncio.AbstractEventLoop | None, loop: asyncio.AbstractEventLoop | None, deadline: float
) -> None:
    close = getattr(made, "aclose", None)
    on_loop = home is not None or callable(close) or inspect.iscoroutinefunction(getattr(made, "close", None))
    close = close if callable(close) else getattr(made, "close", None)
    if not callable(close):
        return
    if not on_loop:
        close()
    elif loop is None:
        asyncio.run(_call(close))
    elif loop.is_running():
        left = max(0.0, deadline - time.monotonic())
        asyncio.run_coroutine_threadsafe(_call(close), loop).result(left)


async def _call(close: Callable[[], Any]) -> None:
    result = close()
    if inspect.isawaitable(result):
        await result
