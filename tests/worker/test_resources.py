"""What agents keep between runs is made once per process, and closed with it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shared.settings import Settings
from tests.worker.stage import process_with
from worker.forms import LoopThread
from worker.resources import Resources


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    thread = LoopThread()
    thread.start()
    yield thread.loop
    thread.close()


def on(loop: asyncio.AbstractEventLoop, work: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(work, loop).result(5)


class Client:
    """Notes its closing."""

    def __init__(self, closed: list[str] | None = None, name: str = "client") -> None:
        self.closed = [] if closed is None else closed
        self.name = name

    def close(self) -> None:
        self.closed.append(self.name)


class AsyncClient(Client):
    """Closes on a loop, and notes which."""

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.closed.append(f"{self.name} on {id(asyncio.get_running_loop())}")


def test_every_caller_gets_the_one_instance():
    resources = Resources()
    first = resources.get("client", Client)
    assert resources.get("client", Client) is first
    assert resources.get("other", Client) is not first


def test_threads_that_race_get_one_instance_of_one_factory_call():
    resources, calls, begin = Resources(), [], threading.Barrier(16)
    asked = threading.Semaphore(0)

    def factory() -> Client:
        calls.append(1)
        # Every thread is about to ask by then; one that had no lock to wait for would make another.
        for _ in range(16):
            assert asked.acquire(timeout=5)
        return Client()

    got: list[Client] = []

    def ask() -> None:
        begin.wait(5)
        asked.release()
        got.append(resources.get("client", factory))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert len(got) == 16
    assert len(set(map(id, got))) == 1
    assert calls == [1]


def test_a_factory_that_raised_is_asked_again():
    resources, answers = Resources(), iter([ValueError("not yet"), None])

    def factory() -> Client:
        error = next(answers)
        if error:
            raise error
        return Client()

    with pytest.raises(ValueError, match="not yet"):
        resources.get("client", factory)
    assert isinstance(resources.get("client", factory), Client)


def test_a_factory_may_ask_for_another_resource():
    resources = Resources()
    made = resources.get("outer", lambda: [resources.get("inner", Client)])
    assert made == [resources.get("inner", Client)]


def test_none_is_an_instance_too():
    resources, calls = Resources(), []
    for _ in range(2):
        assert resources.get("nothing", lambda: calls.append(1)) is None
    assert calls == [1]


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_an_instance_of_the_loop_is_made_once_there(loop: asyncio.AbstractEventLoop, kind: str):
    resources, loops = Resources(loop), []

    def plain() -> Client:
        loops.append(asyncio.get_running_loop())
        return Client()

    async def slow() -> Client:
        await asyncio.sleep(0)
        return plain()

    async def ask() -> list[Client]:
        factory: Callable[[], Any] = plain if kind == "plain" else slow
        return await asyncio.gather(*(resources.on_loop("client", factory) for _ in range(16)))

    assert len(set(map(id, on(loop, ask())))) == 1
    assert loops == [loop]


def test_a_cancelled_first_caller_leaves_the_making_to_the_others(loop: asyncio.AbstractEventLoop):
    resources, calls = Resources(loop), []
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> Client:
        calls.append(1)
        begun.set()
        await go_on.wait()
        return Client()

    async def ask() -> Client:
        first = asyncio.create_task(resources.on_loop("client", slow))
        await begun.wait()
        first.cancel()
        await asyncio.wait({first})
        assert first.cancelled()
        go_on.set()
        return await resources.on_loop("client", slow)

    assert isinstance(on(loop, ask()), Client)
    assert calls == [1]


def test_an_async_factory_that_raised_is_asked_again(loop: asyncio.AbstractEventLoop):
    resources, answers = Resources(loop), iter([OSError("refused"), None])

    async def factory() -> Client:
        error = next(answers)
        if error:
            raise error
        return Client()

    with pytest.raises(OSError, match="refused"):
        on(loop, resources.on_loop("client", factory))
    assert isinstance(on(loop, resources.on_loop("client", factory)), Client)


def test_another_loop_is_refused(loop: asyncio.AbstractEventLoop):
    resources = Resources(loop)
    with pytest.raises(RuntimeError, match="not the worker's event loop"):
        asyncio.run(resources.on_loop("client", Client))


def test_outside_of_a_worker_the_running_loop_serves_until_it_is_closed():
    resources = Resources()

    async def twice() -> list[Client]:
        return [await resources.on_loop("client", Client), await resources.on_loop("client", Client)]

    first, second = asyncio.run(twice()), asyncio.run(twice())
    assert first[0] is first[1]
    assert second[0] is second[1]
    assert first[0] is not second[0]


def test_closing_is_in_reverse_order_and_async_clients_close_on_the_loop(loop: asyncio.AbstractEventLoop):
    resources, closed = Resources(loop), []
    resources.get("a", lambda: Client(closed, "a"))
    on(loop, resources.on_loop("b", lambda: AsyncClient(closed, "b")))
    resources.get("c", lambda: AsyncClient(closed, "c"))
    resources.get("d", lambda: "nothing to close")
    resources.get("e", lambda: Client(closed, "e"))
    resources.close(5)
    resources.close(5)
    assert closed == ["e", f"c on {id(loop)}", f"b on {id(loop)}", "a"]


def test_one_that_does_not_close_costs_the_others_nothing(loop: asyncio.AbstractEventLoop):
    class Broken(Client):
        def close(self) -> None:
            raise OSError("no")

    resources, closed = Resources(loop), []
    resources.get("a", lambda: Client(closed, "a"))
    resources.get("b", Broken)
    resources.close(5)
    assert closed == ["a"]


def test_closing_never_takes_longer_than_it_may(loop: asyncio.AbstractEventLoop):
    class Endless(Client):
        def close(self) -> None:
            threading.Event().wait(20)

    class EndlessAsync(Client):
        async def aclose(self) -> None:
            await asyncio.sleep(20)

    for client in (Endless, EndlessAsync):
        resources = Resources(loop)
        resources.get("a", client)
        began = time.monotonic()
        resources.close(0.1)
        assert time.monotonic() - began < 2


def test_a_process_closes_its_resources_while_its_loop_still_runs(settings: Settings):
    closed: list[str] = []
    with process_with(settings) as process:
        loop = process.loop
        on(loop, process.resources.on_loop("client", lambda: AsyncClient(closed, "client")))
    assert closed == [f"client on {id(loop)}"]


def test_nothing_is_made_once_the_process_closes():
    resources = Resources()
    resources.get("client", Client)
    resources.close()
    with pytest.raises(RuntimeError, match="closing"):
        resources.get("client", Client)


def test_a_fork_gets_its_own_instances_and_closes_none_of_its_parents():
    resources, closed, calls = Resources(), [], []

    def factory() -> Client:
        calls.append(os.getpid())
        return Client(closed, str(os.getpid()))

    resources.get("client", factory)
    hear, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            mine = resources.get("client", factory).name == str(os.getpid())
            resources.close(5)
            os.write(tell, f"{mine} {closed == [str(os.getpid())]}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(hear, 100) == b"True True"
    assert resources.get("client", factory).name == str(os.getpid())
    assert (calls, closed) == ([os.getpid()], [])
    os.close(hear)
    os.close(tell)


def test_a_lock_held_at_a_fork_does_not_hold_up_the_child():
    resources, making, go_on = Resources(), threading.Event(), threading.Event()

    def slow() -> Client:
        making.set()
        go_on.wait(10)
        return Client()

    thread = threading.Thread(target=resources.get, args=("client", slow))
    thread.start()
    assert making.wait(5)
    hear, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resources.get("client", Client)
            os.write(tell, b"made")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(hear, 100) == b"made"
    go_on.set()
    thread.join(5)
    os.close(hear)
    os.close(tell)
