"""Calls to a provider: measured, kept within bounds, and shown while they go on."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from shared.settings import Settings
from shared.store.store import Store
from tests.worker.stage import accept, in_thread, process_with, record_of
from worker import waiting
from worker.cancellation import Cancelled, Disconnected
from worker.context import RunContext
from worker.execution import Execution
from worker.provider_calls import MOST_KEPT, ProviderCalls


def call(calls: ProviderCalls, error: BaseException | None = None, name: str | None = "model") -> None:
    with calls.calling(name):
        if error is not None:
            raise error


def test_a_call_is_measured_with_its_name_and_begin():
    calls = ProviderCalls()
    call(calls)
    (ended,) = calls.ended
    assert (ended.name, ended.failed) == ("model", False)
    assert ended.seconds >= 0
    assert ended.started_ms > 1_600_000_000_000
    (stored,) = json.loads(calls.stored())
    assert stored == {"name": "model", "at": ended.started_ms, "ms": round(ended.seconds * 1000)}


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (TimeoutError("secret"), True),
        (ValueError("secret"), True),
        (Cancelled(), False),
        (Disconnected(), False),
        (asyncio.CancelledError(), False),
        (GeneratorExit(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_call_failed_when_it_raised_something_other_than_the_runs_stop(error: BaseException, failed: bool):
    calls = ProviderCalls()
    with pytest.raises(type(error)):
        call(calls, error)
    assert [ended.failed for ended in calls.ended] == [failed]
    assert "secret" not in calls.stored()
    assert calls.current is None


def test_without_calls_nothing_is_stored():
    assert ProviderCalls().stored() is None


def test_a_call_without_a_name_has_none_in_the_record():
    calls = ProviderCalls()
    call(calls, name=None)
    assert [sorted(told) for told in json.loads(calls.stored())] == [["at", "ms"]]


def test_the_latest_calls_are_kept():
    calls = ProviderCalls()
    for number in range(MOST_KEPT + 5):
        call(calls, name=str(number))
    assert [ended.name for ended in calls.ended] == [str(number) for number in range(5, MOST_KEPT + 5)]


def test_of_calls_that_overlap_the_oldest_is_the_current_one():
    calls = ProviderCalls()
    with calls.calling("outer"), calls.calling("inner"):
        assert calls.current.name == "outer"
    assert [ended.name for ended in calls.ended] == ["inner", "outer"]


def test_calls_of_many_threads_are_all_counted():
    calls = ProviderCalls()
    threads = [threading.Thread(target=call, args=(calls,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls.ended) == 20
    assert calls.current is None


async def asks_for_long(ctx: RunContext) -> None:
    with ctx.provider_call("model"):
        await ctx.until_cancelled(asyncio.Event().wait())
    await ctx.until_cancelled(asyncio.Event().wait())


def asking_twice(answered: threading.Semaphore) -> Callable[[RunContext], Awaitable[None]]:
    """An agent with two calls, each of which lasts until it is answered."""

    async def agent(ctx: RunContext) -> None:
        for name in ("first", "second"):
            with ctx.provider_call(name):
                assert await asyncio.to_thread(answered.acquire, timeout=10)
        ctx.say("and then it waits")
        await ctx.until_cancelled(asyncio.Event().wait())

    return agent


def calling_of(store: Store, key: str) -> dict[str, Any] | None:
    return record_of(store, key).calling


def test_the_record_shows_a_call_while_it_goes_on_and_the_ended_ones_afterwards(
    settings: Settings, store: Store, eventually: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(waiting, "SHOWN_AFTER_MS", 100)
    key = accept(store, "agent")
    with process_with(settings, agent=asks_for_long) as process:
        thread = in_thread(process, key)
        shown = eventually(lambda: calling_of(store, key))
        assert shown["name"] == "model"
        assert abs(shown["since"] - store.runs.now_ms()) < 10_000
        store.runs.request_cancel(key, by="alice")
        thread.join(5)
    assert calling_of(store, key) is None
    (ended,) = record_of(store, key).provider_calls
    assert (ended["name"], ended["at"]) == ("model", shown["since"])
    assert ended["ms"] >= 100


def test_a_call_that_is_over_is_taken_out_of_the_record_and_the_next_one_shown(
    settings: Settings, store: Store, eventually: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(waiting, "SHOWN_AFTER_MS", 20)
    key, answered = accept(store, "agent"), threading.Semaphore(0)
    with process_with(settings, agent=asking_twice(answered)) as process:
        thread = in_thread(process, key)
        for name in ("first", "second"):
            eventually(lambda name=name: (calling_of(store, key) or {}).get("name") == name)
            answered.release()
        eventually(lambda: record_of(store, key).last_seq > 1 and calling_of(store, key) is None)
        store.runs.request_cancel(key, by="alice")
        thread.join(5)


def test_short_calls_cost_no_command(
    settings: Settings, store: Store, eventually: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    # However long this machine takes for one.
    monkeypatch.setattr(waiting, "SHOWN_AFTER_MS", 60_000)
    told: list[Any] = []
    seen: set[str] = set()
    key, answered = accept(store, "agent"), threading.Semaphore(0)
    with process_with(settings, agent=asking_twice(answered)) as process:
        monkeypatch.setattr(process.pulse._waiting._calling, "tell", told.append)
        look = process.pulse._waiting.look

        def looks(executions: Iterable[Execution], now: float) -> None:
            held = list(executions)
            calls = [one.context.provider_calls.current for one in held if one.context]
            look(held, now)
            seen.update(call.name for call in calls if call)

        monkeypatch.setattr(process.pulse._waiting, "look", looks)
        thread = in_thread(process, key)
        for name in ("first", "second"):
            eventually(lambda name=name: name in seen)
            answered.release()
        eventually(lambda: record_of(store, key).last_seq > 1)
        store.runs.request_cancel(key, by="alice")
        thread.join(5)
    assert told == []
