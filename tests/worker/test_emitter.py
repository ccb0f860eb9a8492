from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shared.local.server import EmbeddedServer
from shared.protocol import events as ag
from shared.protocol.verifier import VerificationError
from shared.runs.lifecycle import Status
from shared.runs.outcome import StopCause
from shared.settings import Settings
from shared.store.errors import StoreUnavailable
from shared.store.runs import new_execution
from shared.store.store import Store, open_store
from tests.worker.cut_proxy import CutProxy
from tests.worker.stage import accept, in_thread, log_of, process_with, record_of, types_of
from worker import emitter as emitting
from worker.cancellation import CancellationToken, Cancelled, Disconnected
from worker.context import RunContext
from worker.driver import Driver
from worker.emitter import RunEmitter
from worker.process import Process
from worker.sink import EventBufferFull


@pytest.fixture
def proxy(redis_server: EmbeddedServer) -> Iterator[CutProxy]:
    proxy = CutProxy(redis_server.url)
    yield proxy
    proxy.close()


def claimed(
    process: Process, key: str, *, execution: str | None = None
) -> tuple[RunEmitter, list[StopCause]]:
    """An emitter over a run that this process claimed, and the causes it stopped for."""
    from shared.protocol.verifier import Verifier

    execution = execution or new_execution()
    claim = process.say_claim(key, execution)
    assert claim is not None
    stops: list[StopCause] = []
    verifier = Verifier()
    verifier.observe(ag.run_started(claim.identity.thread_id, claim.identity.run_id))
    emitter = RunEmitter(
        key,
        execution,
        verifier=verifier,
        token=CancellationToken(),
        settings=process.settings,
        writer=process.writer,
        last_seq=claim.last_seq,
        stop=stops.append,
        reclaim=lambda: process.say_claim(key, execution) is not None,
    )
    return emitter, stops


def start(message: str = "m") -> ag.Event:
    return ag.TextMessageStartEvent(message_id=message, role="assistant")


def delta(text: str = "x", message: str = "m") -> ag.Event:
    return ag.TextMessageContentEvent(message_id=message, delta=text)


@pytest.fixture
def process(settings: Settings) -> Iterator[Process]:
    with process_with(settings) as started:
        yield started


def test_a_slow_emitters_event_is_in_the_log_when_put_returns(process: Process, store: Store):
    key = accept(store, "agent")
    emitter, _ = claimed(process, key)
    emitter.put(start())
    assert types_of(store, key)[-1] == "TEXT_MESSAGE_START"


def test_a_fast_emitters_events_are_gathered_and_none_is_lost(
    process: Process, store: Store, eventually: Callable[..., Any]
):
    key = accept(store, "agent")
    emitter, _ = claimed(process, key)
    emitter.put(start())
    before = store.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    for _ in range(1000):
        emitter.put(delta())
    eventually(lambda: emitter.pending == 0)
    assert types_of(store, key).count("TEXT_MESSAGE_CONTENT") == 1000
    assert store.client.info("commandstats")["cmdstat_evalsha"]["calls"] - before < 200


def test_an_emit_on_the_loops_thread_does_no_io(
    process: Process, store: Store, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
):
    key = accept(store, "agent")
    emitter, _ = claimed(process, key)
    threads: list[str] = []
    write = process.store.log.append_many

    def note(batches: Any) -> Any:
        threads.append(threading.current_thread().name)
        return write(batches)

    monkeypatch.setattr(process.store.log.__class__, "append", None)
    monkeypatch.setattr(process.store.log, "append_many", note)

    async def speak() -> None:
        emitter.put(start())

    asyncio.run(speak())
    eventually(lambda: emitter.pending == 0)
    assert threads == ["outlast-writer"]


def test_a_refused_event_takes_no_number(process: Process, store: Store):
    key = accept(store, "agent")
    emitter, _ = claimed(process, key)
    with pytest.raises(VerificationError):
        emitter.put(delta())
    with pytest.raises(ag.SerializationError):
        emitter.put(ag.CustomEvent(name="n", value=float("nan")))
    emitter.put(start())
    assert types_of(store, key) == ["RUN_STARTED", "TEXT_MESSAGE_START"]


def test_a_terminal_event_is_kept_aside_and_nothing_may_follow(process: Process, store: Store):
    key = accept(store, "agent")
    emitter, _ = claimed(process, key)
    emitter.put(ag.RunErrorEvent(message="m"))
    assert isinstance(emitter.pending_terminal, ag.RunErrorEvent)
    with pytest.raises(VerificationError):
        emitter.put(start())
    assert types_of(store, key) == ["RUN_STARTED"]


def test_a_batch_whose_answer_was_lost_is_written_once(
    settings: Settings, store: Store, proxy: CutProxy, eventually: Callable[..., Any]
):
    key = accept(store, "agent")
    with process_with(settings.model_copy(update={"redis_url": proxy.url})) as process:
        emitter, stops = claimed(process, key)
        emitter.put(start())
        for number in range(5):
            proxy.cuts = 1
            emitter.put(delta(str(number)))
            eventually(lambda: emitter.pending == 0)
    assert proxy.cut == 5
    assert [event.get("delta") for event in log_of(store, key)][2:] == list("01234")
    assert stops == []


def test_a_finish_whose_answer_was_lost_is_recorded_once(settings: Settings, store: Store, proxy: CutProxy):
    key = accept(store, "agent")

    def agent(ctx: RunContext) -> None:
        ctx.say("hello")
        proxy.cuts = 3

    with process_with(settings.model_copy(update={"redis_url": proxy.url}), agent=agent) as process:
        Driver(process).execute(key)
    assert proxy.cut >= 1
    assert types_of(store, key)[-1] == "RUN_FINISHED"
    assert record_of(store, key).status is Status.SUCCEEDED


def test_a_claim_whose_answer_was_lost_is_asked_again_with_the_same_execution(
    settings: Settings, store: Store, proxy: CutProxy
):
    key = accept(store, "agent")
    proxy.marker = b"3600000"
    with process_with(
        settings.model_copy(update={"redis_url": proxy.url}), agent=lambda ctx: None
    ) as process:
        proxy.cuts = 3
        Driver(process).execute(key)
    assert proxy.cut == 3
    record = record_of(store, key)
    assert (record.status, record.attempt) == (Status.SUCCEEDED, 1)


def test_frames_that_redis_forgot_are_written_again(
    process: Process, store: Store, eventually: Callable[..., Any]
):
    from shared.store import keys

    key = accept(store, "agent")
    emitter, stops = claimed(process, key)
    emitter.put(start())
    for text in "abcdef":
        emitter.put(delta(text))
    eventually(lambda: emitter.pending == 0)
    store.client.ltrim(keys.log(key), 0, 3)
    emitter.put(delta("g"))
    eventually(lambda: emitter.pending == 0)
    assert [event.get("delta") for event in log_of(store, key)][2:] == list("abcdefg")
    assert stops == []


def test_a_silent_run_notices_a_shorter_log_when_it_is_told_to_look(
    process: Process, store: Store, eventually: Callable[..., Any]
):
    from shared.store import keys

    key = accept(store, "agent")
    emitter, _ = claimed(process, key)
    emitter.put(start())
    store.client.ltrim(keys.log(key), 0, 0)
    emitter.suspect()
    eventually(lambda: types_of(store, key) == ["RUN_STARTED", "TEXT_MESSAGE_START"])


def test_a_claim_that_redis_forgot_is_said_again(
    process: Process, store: Store, eventually: Callable[..., Any]
):
    from shared.store import keys

    key = accept(store, "agent")
    emitter, stops = claimed(process, key)
    emitter.put(start())
    store.client.hset(keys.record(key), "status", "queued")
    store.client.hdel(keys.record(key), "execution", "worker", "attempt")
    store.client.zadd(keys.ready(key[:2]), {key: 1})
    emitter.put(delta())
    eventually(lambda: emitter.pending == 0)
    assert record_of(store, key).execution == emitter.execution
    assert types_of(store, key)[-1] == "TEXT_MESSAGE_CONTENT"
    assert stops == []


def test_an_execution_that_lost_its_run_is_told_and_writes_nothing_more(
    process: Process, store: Store, eventually: Callable[..., Any]
):
    key = accept(store, "agent")
    emitter, stops = claimed(process, key)
    emitter.put(start())
    store.runs.fence(key, ending="worker_lost", guard="any")
    emitter.put(delta())
    eventually(lambda: stops == [StopCause.LOST])
    with pytest.raises(Disconnected):
        emitter.put(delta())
    assert types_of(store, key) == ["RUN_STARTED", "TEXT_MESSAGE_START"]


def test_the_answer_to_an_append_tells_of_a_cancel(
    process: Process, store: Store, eventually: Callable[..., Any]
):
    key = accept(store, "agent")
    emitter, stops = claimed(process, key)
    store.runs.request_cancel(key, by="alice")
    emitter.put(start())
    eventually(lambda: StopCause.CLIENT in stops)


def test_an_emitter_waits_at_the_soft_bound_and_goes_on_when_redis_is_back(
    process: Process, store: Store, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
):
    monkeypatch.setattr(emitting, "SOFT_EVENTS", 10)
    key = accept(store, "agent")
    emitter, _ = claimed(process, key)
    emitter.put(start())

    def unavailable(_: Any) -> Any:
        raise StoreUnavailable

    with monkeypatch.context() as away:
        away.setattr(process.store.log.__class__, "append", lambda _, batch: unavailable(batch))
        away.setattr(process.store.log.__class__, "append_many", lambda _, batches: unavailable(batches))
        speaker = threading.Thread(target=lambda: [emitter.put(delta()) for _ in range(40)], daemon=True)
        speaker.start()
        eventually(lambda: len(emitter._fresh) >= 10)
        assert speaker.is_alive()
    speaker.join(10)
    assert not speaker.is_alive()
    eventually(lambda: emitter.pending == 0)
    assert types_of(store, key).count("TEXT_MESSAGE_CONTENT") == 40


def test_a_waiting_emitter_is_released_by_the_stop(
    process: Process, store: Store, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
):
    monkeypatch.setattr(emitting, "SOFT_EVENTS", 2)

    def unavailable(*_: Any) -> Any:
        raise StoreUnavailable

    key = accept(store, "agent")
    emitter, _ = claimed(process, key)
    emitter.put(start())
    monkeypatch.setattr(process.store.log.__class__, "append", unavailable)
    monkeypatch.setattr(process.store.log.__class__, "append_many", unavailable)
    escaped: list[str] = []

    def speak() -> None:
        try:
            for _ in range(20):
                emitter.put(delta())
        except Cancelled:
            escaped.append("Cancelled")

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    eventually(lambda: len(emitter._fresh) >= 2)
    emitter.token.trip(StopCause.CLIENT)
    speaker.join(5)
    assert escaped == ["Cancelled"]
    assert emitter.token.delivered


def test_the_loops_thread_is_refused_at_the_hard_bound(
    process: Process, store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(emitting, "SOFT_EVENTS", 2)
    monkeypatch.setattr(emitting, "HARD_EVENTS", 20)

    def unavailable(*_: Any) -> Any:
        raise StoreUnavailable

    key = accept(store, "agent")
    emitter, _ = claimed(process, key)
    emitter.put(start())
    monkeypatch.setattr(process.store.log.__class__, "append_many", unavailable)

    async def speak() -> int:
        for count in range(1000):
            try:
                emitter.put(delta())
            except EventBufferFull:
                return count
        return 1000

    assert 20 <= asyncio.run(speak()) < 1000
    assert emitter.token.cause is StopCause.BUFFER_FULL
    assert emitter.overflowed


def test_drained_waits_until_the_buffer_is_below_the_soft_bound(
    process: Process, store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(emitting, "SOFT_EVENTS", 100)
    key = accept(store, "agent")
    emitter, _ = claimed(process, key)

    async def speak() -> int:
        emitter.put(start())
        most = 0
        for _ in range(2000):
            emitter.put(delta())
            most = max(most, len(emitter._fresh))
            await emitter.drained()
        return most

    assert asyncio.run(speak()) <= 101


def test_a_redis_that_restarts_in_mid_run_costs_no_event_and_no_outcome(
    own_server: EmbeddedServer, settings: Settings, eventually: Callable[..., Any]
):
    local = settings.model_copy(update={"redis_url": own_server.url, "lease_seconds": 5.0})
    store = open_store(local)
    go, count = threading.Event(), 60

    async def agent(ctx: RunContext) -> None:
        with ctx.message() as message:
            for number in range(count):
                message.delta(f"{number} ")
                await asyncio.sleep(0.02)

    def sync_agent(ctx: RunContext) -> None:
        with ctx.message() as message:
            for number in range(count):
                message.delta(f"{number} ")
                go.wait(0.02)

    runs = [accept(store, "a"), accept(store, "b")]
    with process_with(local, a=agent, b=sync_agent) as process:
        threads = [in_thread(process, key) for key in runs]
        for key in runs:
            eventually(lambda key=key: record_of(store, key).last_seq > 10)
        own_server.kill()
        own_server.restart()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        for key in runs:
            told = log_of(store, key)
            text = "".join(event["delta"] for event in told if event["type"] == "TEXT_MESSAGE_CONTENT")
            assert text == "".join(f"{number} " for number in range(count))
            assert told[-1]["type"] == "RUN_FINISHED"
            assert record_of(store, key).status is Status.SUCCEEDED
    store.close()


def test_an_outcome_survives_a_redis_that_is_away_when_the_agent_ends(
    own_server: EmbeddedServer, settings: Settings, eventually: Callable[..., Any]
):
    local = settings.model_copy(update={"redis_url": own_server.url})
    store = open_store(local)
    key = accept(store, "agent")
    go = threading.Event()

    def agent(ctx: RunContext) -> None:
        ctx.say("hello")
        go.wait(10)
        ctx.say("bye")

    with process_with(local, agent=agent) as process:
        thread = in_thread(process, key)
        eventually(lambda: record_of(store, key).last_seq == 4)
        # The answer above may be a second younger than the file.
        began = time.monotonic()
        eventually(lambda: time.monotonic() - began > 1.2)
        own_server.kill()
        go.set()
        eventually(lambda: process.writer.holding)
        own_server.restart()
        thread.join(30)
        assert not thread.is_alive()
        assert record_of(store, key).status is Status.SUCCEEDED
        assert types_of(store, key)[-1] == "RUN_FINISHED"
        assert types_of(store, key).count("TEXT_MESSAGE_CONTENT") == 2
    store.close()


def test_an_ending_that_redis_forgot_is_recorded_again(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    from shared.store import keys

    key = accept(store, "agent")
    with process_with(settings, agent=lambda ctx: ctx.say("hello")) as process:
        eventually(lambda: process.pulse._subscription.connected)
        Driver(process).execute(key)
        # What a crash may take: the ending and the claim's lease, as if finish had never been asked.
        store.client.hset(keys.record(key), "status", "running")
        store.client.hdel(keys.record(key), "finished_at", "outcome")
        store.client.ltrim(keys.log(key), 0, 1)
        process._reconnected()
        eventually(lambda: record_of(store, key).status is Status.SUCCEEDED)
    assert types_of(store, key) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
