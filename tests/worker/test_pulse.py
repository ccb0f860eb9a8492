from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from shared.local.server import EmbeddedServer
from shared.runs.lifecycle import Status
from shared.runs.outcome import StopCause
from shared.settings import Settings
from shared.store import keys
from shared.store.store import Store, open_store
from tests.worker.stage import accept, in_thread, log_of, process_with, record_of, types_of
from worker.context import RunContext
from worker.drain import Drain
from worker.process import Process


def running(store: Store, key: str) -> bool:
    return record_of(store, key).last_seq > 1


def lease_left(store: Store, key: str) -> float:
    """Seconds until the lease runs out, below zero when it has; nothing when there is none."""
    score = store.client.zscore(keys.leases(key[:2]), key)
    return (float(score) - store.runs.now_ms()) / 1000 if score is not None else float("-inf")


async def waits(ctx: RunContext) -> None:
    ctx.say("waiting")
    await ctx.until_cancelled(asyncio.Event().wait())


def sync_waits(ctx: RunContext) -> None:
    ctx.say("waiting")
    ctx.wait_cancelled(20)


def never_asks(ctx: RunContext) -> None:
    while True:
        ctx.say("on and on")
        time.sleep(0.01)


async def generates(given: Any) -> Any:
    from shared.protocol import events as ag

    yield ag.StepStartedEvent(step_name="wait")
    await asyncio.sleep(30)


async def sleeps(ctx: RunContext) -> None:
    ctx.say("waiting")
    await asyncio.sleep(30)


def blocks(ctx: RunContext) -> None:
    ctx.say("waiting")
    gone = threading.Event()
    ctx.on_cancel(gone.set)
    gone.wait(20)


@pytest.mark.parametrize(
    "agent", [waits, sync_waits, never_asks, generates, sleeps, blocks], ids=lambda agent: agent.__name__
)
def test_a_cancel_reaches_an_agent_of_every_form(
    settings: Settings, store: Store, eventually: Callable[..., Any], agent: Callable[..., Any]
):
    key = accept(store, "agent")
    with process_with(settings, agent=agent) as process:
        thread = in_thread(process, key)
        eventually(lambda: running(store, key))
        store.runs.request_cancel(key, by="alice")
        thread.join(5)
        assert not thread.is_alive()
    assert record_of(store, key).status is Status.CANCELLED
    assert log_of(store, key)[-1]["outcome"] == {"type": "cancelled"}


def test_a_cancel_is_pushed_and_needs_no_renewal(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    key = accept(store, "agent")
    with process_with(settings.model_copy(update={"lease_seconds": 60.0}), agent=waits) as process:
        eventually(lambda: store.client.pubsub_numsub(keys.worker_channel(process.name))[0][1] == 1)
        thread = in_thread(process, key)
        eventually(lambda: running(store, key))
        began = time.monotonic()
        store.runs.request_cancel(key, by="alice")
        thread.join(5)
        assert time.monotonic() - began < 1
    assert record_of(store, key).status is Status.CANCELLED


def test_a_cancel_that_was_not_heard_comes_with_the_renewal(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    key = accept(store, "agent")
    with process_with(settings, agent=waits) as process:
        thread = in_thread(process, key)
        eventually(lambda: running(store, key))
        store.client.hset(keys.record(key), mapping={"cancel_requested_at": 1, "cancel_cause": "client"})
        thread.join(settings.lease_seconds)
        assert not thread.is_alive()
    assert record_of(store, key).status is Status.CANCELLED


def test_a_cancel_while_the_connections_are_cut_is_heard_within_a_moment(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    key = accept(store, "agent")
    with process_with(settings.model_copy(update={"lease_seconds": 60.0}), agent=waits) as process:
        eventually(lambda: store.client.pubsub_numsub(keys.worker_channel(process.name))[0][1] == 1)
        thread = in_thread(process, key)
        eventually(lambda: running(store, key))
        store.client.client_kill_filter(_type="pubsub")
        store.runs.request_cancel(key, by="alice")
        thread.join(5)
        assert not thread.is_alive()
    assert record_of(store, key).status is Status.CANCELLED


def test_leases_are_renewed_in_time_by_a_silent_agent(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    key = accept(store, "agent")
    with process_with(settings, agent=waits) as process:
        thread = in_thread(process, key)
        eventually(lambda: running(store, key))
        until = time.monotonic() + 2 * settings.lease_seconds
        least = settings.lease_seconds

        def over() -> bool:
            nonlocal least
            least = min(least, lease_left(store, key))
            return time.monotonic() > until

        eventually(over)
        assert least > 0
        store.runs.request_cancel(key, by="alice")
        thread.join(5)


def test_a_run_that_was_taken_away_is_stopped_and_nothing_is_recorded(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    key = accept(store, "agent")
    with process_with(settings, agent=waits) as process:
        thread = in_thread(process, key)
        eventually(lambda: running(store, key))
        store.runs.fence(key, ending="worker_lost", guard="any")
        thread.join(5)
        assert not thread.is_alive()
    assert record_of(store, key).status is Status.RUNNING
    assert types_of(store, key)[-1] == "TEXT_MESSAGE_END"


@pytest.mark.parametrize("agent", [waits, sync_waits, never_asks, sleeps], ids=lambda agent: agent.__name__)
def test_a_run_past_its_deadline_fails_with_a_code_of_its_own(
    settings: Settings, store: Store, agent: Callable[..., Any]
):
    key = accept(store, "agent")
    with process_with(settings.model_copy(update={"run_deadline_seconds": 0.3}), agent=agent) as process:
        thread = in_thread(process, key)
        thread.join(5)
        assert not thread.is_alive()
    assert record_of(store, key).texts["code"] == "deadline_exceeded"
    assert types_of(store, key)[-1] == "RUN_ERROR"


def deaf_agents(release: threading.Event) -> dict[str, Callable[..., Any]]:
    def deaf(ctx: RunContext) -> None:
        ctx.say("deaf")
        release.wait(20)

    async def swallows(ctx: RunContext) -> None:
        ctx.say("deaf")
        while not release.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue

    return {"deaf": deaf, "swallows": swallows}


@pytest.mark.parametrize("name", ["deaf", "swallows"])
def test_a_deaf_agent_past_its_deadline_is_ended_from_outside_and_counted(
    settings: Settings, store: Store, eventually: Callable[..., Any], name: str
):
    release = threading.Event()
    key = accept(store, name)
    short = settings.model_copy(update={"run_deadline_seconds": 0.3, "cancel_grace_seconds": 0.3})
    with process_with(short, **deaf_agents(release)) as process:
        thread = in_thread(process, key)
        eventually(lambda: record_of(store, key).status is Status.FAILED, 6)
        assert record_of(store, key).texts["code"] == "deadline_exceeded"
        eventually(lambda: process.pulse.abandoned == (1 if thread.is_alive() else 0))
        release.set()
        thread.join(5)
        assert not thread.is_alive()
        assert process.pulse.abandoned == 0
    assert types_of(store, key)[-1] == "RUN_ERROR"


def test_a_deaf_agent_that_somebody_cancelled_ends_cancelled_at_its_deadline(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    release = threading.Event()
    key = accept(store, "deaf")
    short = settings.model_copy(update={"run_deadline_seconds": 1.0, "cancel_grace_seconds": 0.2})
    with process_with(short, **deaf_agents(release)) as process:
        thread = in_thread(process, key)
        eventually(lambda: running(store, key))
        store.runs.request_cancel(key, by="alice")
        eventually(lambda: record_of(store, key).ended, 6)
        release.set()
        thread.join(5)
    assert record_of(store, key).status is Status.CANCELLED


def test_an_agent_that_blocks_in_its_stop_callback_does_not_stop_the_pulse(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    release = threading.Event()

    def stuck(ctx: RunContext) -> None:
        ctx.say("waiting")
        ctx.on_cancel(lambda: release.wait(20))
        release.wait(20)

    first, second = accept(store, "stuck"), accept(store, "waits")
    with process_with(settings, stuck=stuck, waits=waits) as process:
        threads = [in_thread(process, key) for key in (first, second)]
        eventually(lambda: running(store, first) and running(store, second))
        store.runs.request_cancel(first, by="alice")
        store.runs.request_cancel(second, by="alice")
        threads[1].join(2)
        assert record_of(store, second).status is Status.CANCELLED
        release.set()
        threads[0].join(5)


# --- drain -----------------------------------------------------------------------------------------------


def test_a_drain_lets_a_short_run_finish(settings: Settings, store: Store, eventually: Callable[..., Any]):
    def short(ctx: RunContext) -> None:
        ctx.say("hello")
        ctx.wait_cancelled(0.3)

    key = accept(store, "agent")
    with process_with(settings, agent=short) as process:
        thread = in_thread(process, key)
        eventually(lambda: running(store, key))
        assert Drain(process, 5).run()
        thread.join(5)
    assert record_of(store, key).status is Status.SUCCEEDED


@pytest.mark.parametrize("agent", [waits, sync_waits, sleeps], ids=lambda agent: agent.__name__)
def test_a_drain_that_is_over_ends_a_long_run_as_worker_shutdown(
    settings: Settings, store: Store, eventually: Callable[..., Any], agent: Callable[..., Any]
):
    key = accept(store, "agent")
    with process_with(settings.model_copy(update={"cancel_grace_seconds": 9.0}), agent=agent) as process:
        thread = in_thread(process, key)
        eventually(lambda: running(store, key))
        began = time.monotonic()
        assert Drain(process, 0.2).run()
        assert time.monotonic() - began < 2.2
        thread.join(5)
    assert record_of(store, key).texts["code"] == "worker_shutdown"


def test_a_drain_ends_a_deaf_run_from_outside(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    release = threading.Event()
    key = accept(store, "deaf")
    with process_with(settings, **deaf_agents(release)) as process:
        thread = in_thread(process, key)
        eventually(lambda: running(store, key))
        began = time.monotonic()
        assert not Drain(process, 0).run()
        eventually(lambda: record_of(store, key).ended, 1)
        assert time.monotonic() - began < 2
        release.set()
        thread.join(5)
    assert record_of(store, key).texts["code"] == "worker_shutdown"


def test_a_cancel_during_the_drain_is_still_a_cancel(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    key = accept(store, "agent")
    with process_with(settings, agent=waits) as process:
        in_thread(process, key)
        eventually(lambda: running(store, key))
        drain = threading.Thread(target=Drain(process, 10).run, daemon=True)
        drain.start()
        store.runs.request_cancel(key, by="alice")
        drain.join(5)
        assert not drain.is_alive()
    assert record_of(store, key).status is Status.CANCELLED


# --- an outage -------------------------------------------------------------------------------------------


def test_a_lease_outlives_a_restart_of_redis(
    own_server: EmbeddedServer, settings: Settings, eventually: Callable[..., Any]
):
    local = settings.model_copy(update={"redis_url": own_server.url, "lease_seconds": 4.0})
    store = open_store(local)
    key = accept(store, "agent")
    with process_with(local, agent=waits) as process:
        thread = in_thread(process, key)
        eventually(lambda: running(store, key))
        own_server.kill()
        own_server.restart()
        eventually(lambda: record_of(store, key).status is Status.RUNNING and lease_left(store, key) > 1)
        store.runs.request_cancel(key, by="alice")
        thread.join(5)
    assert record_of(store, key).status is Status.CANCELLED
    store.close()


def test_the_first_cause_stands(settings: Settings, store: Store, eventually: Callable[..., Any]):
    key = accept(store, "agent")
    held: list[Process] = []
    with process_with(settings, agent=waits) as process:
        held.append(process)
        thread = in_thread(process, key)
        eventually(lambda: running(store, key))
        execution = process.pulse.executions[key]
        execution.stop(StopCause.OPERATOR)
        execution.stop(StopCause.DEADLINE)
        thread.join(5)
    assert execution.token.cause is StopCause.OPERATOR
