"""Forced stop in a process: the record is ended from outside, and the agent is stopped as far as can be."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from shared.runs.lifecycle import Status
from shared.settings import Settings
from shared.store import keys
from shared.store.ending import end_fenced
from shared.store.store import Store
from tests.worker.stage import accept, in_thread, process_with, record_of, types_of
from worker.children import Children
from worker.context import RunContext
from worker.process import Process, worker_name


def terminate(store: Store, key: str) -> None:
    identity = record_of(store, key).identity
    answer = store.runs.terminate(key, by="olga", reason="stuck")
    assert answer.fence is not None
    assert end_fenced(store.runs, store.log, answer.fence, identity).recorded


def listening(store: Store, process: Process) -> bool:
    return bool(store.client.pubsub_numsub(keys.worker_channel(process.name))[0][1])


def speaking(store: Store, key: str) -> bool:
    """The whole first message is out: what comes next is the agent's waiting."""
    return record_of(store, key).last_seq >= 4


async def sleeps(ctx: RunContext) -> None:
    ctx.say("asleep")
    await asyncio.sleep(60)


async def swallows(ctx: RunContext) -> None:
    ctx.say("deaf")
    while True:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue


def talks(ctx: RunContext) -> None:
    while True:
        ctx.say("on and on")
        time.sleep(0.01)


@pytest.mark.parametrize("agent", [sleeps, swallows, talks], ids=lambda agent: agent.__name__)
def test_an_agent_that_can_be_stopped_gives_its_slot_back_within_a_moment(
    settings: Settings, store: Store, eventually: Callable[..., Any], agent: Callable[..., Any]
):
    patient = settings.model_copy(update={"cancel_grace_seconds": 60.0, "lease_seconds": 60.0})
    key = accept(store, "agent")
    with process_with(patient, agent=agent) as process:
        eventually(lambda: listening(store, process))
        thread = in_thread(process, key)
        eventually(lambda: speaking(store, key))
        terminate(store, key)
        assert record_of(store, key).status is Status.CANCELLED
        thread.join(3)
        assert not thread.is_alive()
        assert process.pulse.abandoned == 0
    assert types_of(store, key)[-1] == "RUN_FINISHED"


def test_a_thread_that_cannot_be_stopped_keeps_its_slot_until_it_returns(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    release, wrote = threading.Event(), []

    def deaf(ctx: RunContext) -> None:
        ctx.say("deaf")
        release.wait(30)
        try:
            ctx.say("late")
        except BaseException as error:
            wrote.append(type(error).__name__)
            raise

    key, after = accept(store, "deaf"), accept(store, "deaf")
    patient = settings.model_copy(update={"lease_seconds": 60.0})
    with process_with(patient, deaf=deaf) as process:
        eventually(lambda: listening(store, process))
        thread = in_thread(process, key)
        eventually(lambda: speaking(store, key))
        terminate(store, key)
        ended = types_of(store, key)
        eventually(lambda: process.pulse.abandoned == 1, 5)
        assert thread.is_alive()
        release.set()
        thread.join(5)
        assert not thread.is_alive()
        assert process.pulse.abandoned == 0
        in_thread(process, after).join(5)
    assert wrote == ["Disconnected"]
    assert types_of(store, key) == ended
    assert record_of(store, key).status is Status.CANCELLED
    assert record_of(store, after).status is Status.SUCCEEDED


def test_a_message_for_another_execution_stops_nothing(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    key = accept(store, "agent")
    with process_with(settings, agent=sleeps) as process:
        eventually(lambda: listening(store, process))
        thread = in_thread(process, key)
        eventually(lambda: speaking(store, key))
        store.client.publish(keys.worker_channel(process.name), f"terminate {key} another")
        store.client.publish(keys.worker_channel(process.name), f"cancel {key} client")
        thread.join(5)
    assert record_of(store, key).texts.get("terminated_by") is None
    assert types_of(store, key)[-1] == "RUN_FINISHED"


def test_a_forced_stop_that_was_not_heard_is_noticed_with_the_lease(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    release = threading.Event()

    def deaf(ctx: RunContext) -> None:
        ctx.say("deaf")
        release.wait(30)

    key = accept(store, "deaf")
    with process_with(settings, deaf=deaf) as process:
        eventually(lambda: listening(store, process))
        thread = in_thread(process, key)
        eventually(lambda: speaking(store, key))
        process.pulse._told = lambda data: None
        terminate(store, key)
        eventually(lambda: process.pulse.abandoned == 1, settings.lease_seconds + 3)
        release.set()
        thread.join(5)
        assert process.pulse.abandoned == 0


def test_the_thread_of_the_run_goes_on_after_a_forced_stop(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    first = accept(store, "sleeps", thread="shared")
    second = accept(store, "pid", thread="shared")
    with process_with(settings, sleeps=sleeps, pid=lambda ctx: ctx.say("here")) as process:
        eventually(lambda: listening(store, process))
        in_thread(process, first)
        eventually(lambda: speaking(store, first))
        terminate(store, first)
        in_thread(process, second).join(5)
    assert record_of(store, second).status is Status.SUCCEEDED


class Parent:
    """The pool's parent with its listener, and the pids it would kill."""

    def __init__(self, settings: Settings) -> None:
        self.killed: list[tuple[str, int]] = []
        self.children = Children(settings, worker_name(1), lambda key, pid: self.killed.append((key, pid)))
        self.children.start()


def test_a_parent_kills_only_after_the_child_had_its_second(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    parent, channel = Parent(settings), keys.family_channel(worker_name(41))
    eventually(lambda: store.client.pubsub_numsub(channel)[0][1])
    began = time.monotonic()
    store.controls.kill_child("key", "execution", worker=worker_name(41), pid=41)
    eventually(lambda: parent.killed == [("key", 41)], 5)
    assert time.monotonic() - began >= 1
    parent.children.close()


@pytest.mark.parametrize(
    "message",
    [
        f"child key execution {worker_name(42)} 41",
        "child key execution elsewhere:41:00000000 41",
        "child key execution 41",
        "child key execution " + worker_name(41) + " x",
        "kill key execution " + worker_name(41) + " 41",
    ],
    ids=["other pid", "elsewhere", "no name", "no pid", "other word"],
)
def test_a_name_that_does_not_match_its_pid_condemns_nobody(settings: Settings, message: str):
    parent = Parent(settings)
    parent.children.hear(message.encode())
    assert parent.children._condemned == []
    parent.children.close()
