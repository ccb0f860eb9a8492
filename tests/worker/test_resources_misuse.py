"""Factories of resources that ask for each other: a sentence at once, not a process that stands still."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from worker.resources import Resources

SECONDS = 5


def test_a_factory_that_asks_for_its_own_key_is_told_so():
    resources = Resources()
    with pytest.raises(RuntimeError, match="'own' and 'own' ask for each other"):
        resources.get("own", lambda: resources.get("own", object))
    assert resources.get("own", lambda: 1) == 1


def test_factories_of_two_threads_that_ask_for_each_other_do_not_wait_for_ever():
    resources, both, seen = Resources(), threading.Barrier(2), []

    def make(other: str) -> Any:
        both.wait(SECONDS)
        return resources.get(other, lambda: f"made for {other}")

    def ask(key: str, other: str) -> None:
        try:
            seen.append(resources.get(key, lambda: make(other)))
        except RuntimeError as error:
            seen.append(str(error))

    threads = [threading.Thread(target=ask, args=pair, daemon=True) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    # One is refused, which lets the other come to its end.
    assert sorted("ask for each other" in one for one in seen) == [False, True]


def test_a_slow_factory_does_not_hold_up_another_key():
    resources, go = Resources(), threading.Event()
    slow = threading.Thread(target=resources.get, args=("slow", lambda: go.wait(SECONDS)), daemon=True)
    slow.start()
    assert resources.get("quick", lambda: 1) == 1
    go.set()
    slow.join(SECONDS)
    assert resources.get("slow", lambda: None) is True


@pytest.mark.parametrize("keys", [("a",), ("a", "b"), ("a", "b", None)])
def test_async_factories_that_ask_in_a_ring_are_told_so(keys: tuple[Any, ...]):
    async def main() -> list[Any]:
        resources = Resources()

        def factory(at: int) -> Any:
            async def make() -> Any:
                await asyncio.sleep(0)
                return await ask((at + 1) % len(keys))

            return make

        async def ask(at: int) -> Any:
            return await resources.on_loop(keys[at], factory(at))

        async with asyncio.timeout(SECONDS):
            return await asyncio.gather(*map(ask, range(len(keys))), return_exceptions=True)

    ended = asyncio.run(main())
    assert [(type(one), "ask for each other" in str(one)) for one in ended] == [(RuntimeError, True)] * len(
        keys
    )


def test_an_async_factory_may_ask_for_several_others_at_once():
    async def main() -> list[int]:
        resources = Resources()

        async def part() -> int:
            await asyncio.sleep(0)
            return 1

        async def whole() -> list[int]:
            return await asyncio.gather(*(resources.on_loop(key, part) for key in ("x", "y", "x")))

        return await resources.on_loop("whole", whole)

    assert asyncio.run(main()) == [1, 1, 1]
