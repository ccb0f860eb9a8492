from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from shared.protocol import events as ag
from shared.runs.lifecycle import Status
from shared.runs.outcome import StopCause
from shared.settings import Settings
from shared.store.store import Store
from tests.worker.stage import accept, in_thread, log_of, process_with, record_of, types_of
from worker.agents.base import AgentError, Interrupt
from worker.cancellation import Cancelled, Disconnected
from worker.context import RunContext
from worker.driver import Driver
from worker.sink import EventBufferFull


def execute(settings: Settings, store: Store, agent: Callable[..., Any], **members: Any) -> str:
    key = accept(store, "agent", **members)
    with process_with(settings, agent=agent) as process:
        Driver(process).execute(key)
    return key


def test_an_agent_that_says_something_succeeds(settings: Settings, store: Store):
    async def agent(ctx: RunContext) -> None:
        ctx.say("hello")

    key = execute(settings, store, agent)
    assert types_of(store, key) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    record = record_of(store, key)
    assert (record.status, record.outcome, record.attempt) == (Status.SUCCEEDED, {"type": "success"}, 1)
    assert log_of(store, key)[-1]["outcome"] == {"type": "success"}


class Odd(BaseException):
    pass


ESCAPES: list[BaseException] = [
    MemoryError(),
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    RecursionError(),
    asyncio.CancelledError(),
    ValueError("secret"),
    Odd(),
    BaseExceptionGroup("many", [SystemExit(1), ValueError()]),
]


@pytest.mark.parametrize("error", ESCAPES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("form", ["async", "sync", "generator", "async generator"])
def test_whatever_escapes_an_agent_becomes_one_run_error(
    settings: Settings, store: Store, error: BaseException, form: str
):
    async def coroutine(ctx: RunContext) -> None:
        ctx.emit(ag.TextMessageStartEvent(message_id="m", role="assistant"))
        raise error

    def function(ctx: RunContext) -> None:
        ctx.emit(ag.TextMessageStartEvent(message_id="m", role="assistant"))
        raise error

    def generator(given: ag.RunAgentInput) -> Any:
        yield ag.TextMessageStartEvent(message_id="m", role="assistant")
        raise error

    async def async_generator(given: ag.RunAgentInput) -> Any:
        yield ag.TextMessageStartEvent(message_id="m", role="assistant")
        raise error

    forms: dict[str, Callable[..., Any]] = {
        "async": coroutine,
        "sync": function,
        "generator": generator,
        "async generator": async_generator,
    }
    key = execute(settings, store, forms[form])
    assert types_of(store, key) == ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "RUN_ERROR"]
    terminal = log_of(store, key)[-1]
    assert terminal["code"] == "AGENT_ERROR"
    assert "secret" not in terminal["message"]
    record = record_of(store, key)
    assert (record.status, record.texts["code"]) == (Status.FAILED, "AGENT_ERROR")
    assert record.texts["incident"] in terminal["message"]
    assert type(error).__name__ in record.texts["detail"]


def test_the_loop_serves_the_next_run_after_a_task_raised_system_exit(settings: Settings, store: Store):
    async def leaves(ctx: RunContext) -> None:
        async def exits() -> None:
            raise SystemExit(1)

        child = asyncio.create_task(exits())
        await asyncio.wait({child})

    async def greets(ctx: RunContext) -> None:
        await asyncio.sleep(0)
        ctx.say("hello")

    first, second = accept(store, "leaves"), accept(store, "greets")
    with process_with(settings, leaves=leaves, greets=greets) as process:
        Driver(process).execute(first)
        Driver(process).execute(second)
    assert record_of(store, second).status is Status.SUCCEEDED


def test_an_agent_error_reaches_the_client_in_its_own_words(settings: Settings, store: Store):
    async def agent(ctx: RunContext) -> None:
        raise AgentError("no such city")

    key = execute(settings, store, agent)
    assert log_of(store, key)[-1]["message"] == "agent error: no such city"


def test_handles_left_open_are_closed_innermost_first_and_the_run_succeeds(settings: Settings, store: Store):
    async def agent(ctx: RunContext) -> None:
        ctx.emit(ag.StepStartedEvent(step_name="plan"))
        ctx.emit(ag.TextMessageStartEvent(message_id="m", role="assistant"))

    key = execute(settings, store, agent)
    assert types_of(store, key)[-3:] == ["TEXT_MESSAGE_END", "STEP_FINISHED", "RUN_FINISHED"]
    assert record_of(store, key).status is Status.SUCCEEDED


def test_a_success_names_the_calls_left_to_the_client(settings: Settings, store: Store):
    async def agent(ctx: RunContext) -> None:
        with ctx.tool_call("mine") as call:
            call.result({"ok": True})
        with ctx.tool_call("yours", call_id="c-1"):
            pass

    key = execute(settings, store, agent)
    expected = {"type": "success", "pendingToolCallIds": ["c-1"]}
    assert log_of(store, key)[-1]["outcome"] == expected
    assert record_of(store, key).outcome == expected


def test_an_interrupt_pauses_the_run(settings: Settings, store: Store):
    async def agent(ctx: RunContext) -> Interrupt:
        return Interrupt(reason="approval")

    key = execute(settings, store, agent)
    record = record_of(store, key)
    assert record.status is Status.INTERRUPTED
    assert record.outcome is not None
    assert log_of(store, key)[-1]["outcome"] == record.outcome


def test_an_agents_own_run_finished_stands_whatever_it_does_afterwards(settings: Settings, store: Store):
    def agent(ctx: RunContext) -> None:
        ctx.emit(ag.RunFinishedEvent(thread_id=ctx.thread_id, run_id=ctx.run_id, result={"answer": 42}))
        raise ValueError

    key = execute(settings, store, agent)
    assert log_of(store, key)[-1]["result"] == {"answer": 42}
    assert record_of(store, key).status is Status.SUCCEEDED


def test_an_agents_own_run_error_cannot_claim_the_workers_codes(settings: Settings, store: Store):
    def agent(ctx: RunContext) -> None:
        ctx.emit(ag.RunErrorEvent(message="odd", code="worker_lost"))

    key = execute(settings, store, agent)
    terminal = log_of(store, key)[-1]
    assert (terminal["message"], terminal["code"]) == ("odd", "AGENT_ERROR")
    assert record_of(store, key).texts["code"] == "AGENT_ERROR"


@pytest.mark.parametrize("swallows", [True, False])
def test_a_rejected_run_finished_becomes_a_protocol_violation(
    settings: Settings, store: Store, swallows: bool
):
    def agent(ctx: RunContext) -> None:
        ctx.emit(ag.TextMessageStartEvent(message_id="m", role="assistant"))
        try:
            ctx.emit(ag.RunFinishedEvent(thread_id=ctx.thread_id, run_id=ctx.run_id))
        except Exception:
            if not swallows:
                raise

    key = execute(settings, store, agent)
    assert types_of(store, key)[-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
    assert record_of(store, key).texts["code"] == "PROTOCOL_VIOLATION"


def test_a_run_that_was_claimed_already_is_dropped(settings: Settings, store: Store):
    ran = []
    key = accept(store, "agent")
    with process_with(settings, agent=lambda ctx: ran.append(1)) as process:
        threads = [in_thread(process, key) for _ in range(20)]
        for thread in threads:
            thread.join(10)
    assert ran == [1]
    assert types_of(store, key) == ["RUN_STARTED", "RUN_FINISHED"]


def test_a_text_that_is_no_run_key_is_dropped(settings: Settings, store: Store):
    with process_with(settings) as process:
        Driver(process).execute("not a key")
    assert process.pulse.executions == {}


def test_an_unknown_agent_is_handed_back_three_times_before_it_fails(settings: Settings, store: Store):
    key = accept(store, "elsewhere")
    with process_with(settings) as process:
        for _ in range(3):
            Driver(process).execute(key)
            assert record_of(store, key).status is Status.QUEUED
        Driver(process).execute(key)
    assert record_of(store, key).texts["code"] == "unknown_agent"
    assert types_of(store, key) == ["RUN_STARTED", "RUN_ERROR"]


def test_a_run_that_was_handed_back_is_not_claimed_again_by_the_pulse(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
):
    key = accept(store, "elsewhere")
    with process_with(settings) as process:
        release = process.store.runs.release

        def beat_right_after(*args: Any, **options: Any) -> str:
            answer = release(*args, **options)
            process.pulse._renew(0.0)
            return answer

        monkeypatch.setattr(type(process.store.runs), "release", lambda _, *a, **k: beat_right_after(*a, **k))
        Driver(process).execute(key)
    assert record_of(store, key).status is Status.QUEUED


def test_the_threads_next_run_is_enqueued_by_whoever_finished(settings: Settings, store: Store):
    first = accept(store, "agent", thread="one")
    accept(store, "agent", thread="one")
    with process_with(settings, agent=lambda ctx: None) as process:
        Driver(process).execute(first)
        assert process.queue.depth() == 1


def test_a_cancelled_agent_that_returns_afterwards_is_cancelled(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    async def agent(ctx: RunContext) -> None:
        ctx.emit(ag.TextMessageStartEvent(message_id="m", role="assistant"))
        await ctx.cancelled()

    key = accept(store, "agent")
    with process_with(settings, agent=agent) as process:
        thread = in_thread(process, key)
        eventually(lambda: record_of(store, key).last_seq == 2)
        assert store.runs.request_cancel(key, by="alice").state == "requested"
        thread.join(5)
    assert types_of(store, key)[-2:] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert log_of(store, key)[-1]["outcome"] == {"type": "cancelled"}
    assert record_of(store, key).status is Status.CANCELLED


def test_a_provider_that_timed_out_during_a_cancel_stays_a_transport_timeout(
    settings: Settings, store: Store, eventually: Callable[..., Any]
):
    def agent(ctx: RunContext) -> None:
        ctx.say("waiting")
        with ctx.provider_call():
            ctx.wait_cancelled(5)
            raise TimeoutError

    key = accept(store, "agent")
    with process_with(settings, agent=agent) as process:
        thread = in_thread(process, key)
        eventually(lambda: record_of(store, key).last_seq > 1)
        store.runs.request_cancel(key, by="alice")
        thread.join(5)
    assert record_of(store, key).texts["code"] == "transport_timeout"


def test_a_body_that_ended_before_the_stop_reached_it_keeps_its_outcome(settings: Settings, store: Store):
    key = accept(store, "agent")

    def agent(ctx: RunContext) -> None:
        ctx.token.trip(StopCause.CLIENT)

    with process_with(settings, agent=agent) as process:
        Driver(process).execute(key)
    assert record_of(store, key).status is Status.SUCCEEDED


def test_a_full_log_ends_the_run_though_the_agent_swallows_the_refusal(settings: Settings, store: Store):
    def agent(ctx: RunContext) -> None:
        for _ in range(50):
            try:
                ctx.say("x")
            except (EventBufferFull, Cancelled):
                continue

    key = execute(settings.model_copy(update={"max_events_per_run": 10}), store, agent)
    assert record_of(store, key).texts["code"] == "EVENT_BUFFER_FULL"
    assert 10 <= record_of(store, key).last_seq <= 13


def test_an_event_over_the_size_limit_is_a_protocol_failure(settings: Settings, store: Store):
    key = execute(
        settings.model_copy(update={"max_bytes_per_event": 1000}), store, lambda ctx: ctx.say("x" * 2000)
    )
    assert types_of(store, key)[-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
    assert record_of(store, key).texts["code"] == "PROTOCOL"


def test_fifty_runs_at_once_keep_their_events_apart_and_in_order(settings: Settings, store: Store):
    async def chatty(ctx: RunContext) -> None:
        with ctx.message() as message:
            for number in range(50):
                message.delta(f"{number} ")
                await asyncio.sleep(0)

    def sync_chatty(ctx: RunContext) -> None:
        with ctx.message() as message:
            for number in range(50):
                message.delta(f"{number} ")

    keys = [accept(store, ["a", "b"][number % 2]) for number in range(50)]
    with process_with(settings, a=chatty, b=sync_chatty) as process:
        threads = [in_thread(process, key) for key in keys]
        for thread in threads:
            thread.join(20)
    for key in keys:
        told = log_of(store, key)
        text = "".join(event["delta"] for event in told if event["type"] == "TEXT_MESSAGE_CONTENT")
        assert text == "".join(f"{number} " for number in range(50))
        assert told[-1]["type"] == "RUN_FINISHED"


def test_twenty_threads_of_one_agent_may_emit_at_once(settings: Settings, store: Store):
    def agent(ctx: RunContext) -> None:
        def speak(number: int) -> None:
            ctx.emit(ag.TextMessageStartEvent(message_id=f"m{number}", role="assistant"))
            for _ in range(100):
                ctx.emit(ag.TextMessageContentEvent(message_id=f"m{number}", delta="x"))

        threads = [threading.Thread(target=speak, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    key = execute(settings, store, agent)
    assert types_of(store, key).count("TEXT_MESSAGE_CONTENT") == 2000
    assert types_of(store, key).count("TEXT_MESSAGE_END") == 20


def test_a_thread_that_an_agent_left_behind_cannot_write_after_the_ending(settings: Settings, store: Store):
    refused = threading.Event()
    go = threading.Event()

    def agent(ctx: RunContext) -> None:
        def late() -> None:
            go.wait(5)
            try:
                ctx.say("too late")
            except Disconnected:
                refused.set()

        threading.Thread(target=late, daemon=True).start()

    key = accept(store, "agent")
    with process_with(settings, agent=agent) as process:
        Driver(process).execute(key)
        go.set()
        assert refused.wait(5)
    assert types_of(store, key) == ["RUN_STARTED", "RUN_FINISHED"]


def test_a_draining_process_sends_the_hint_on_and_claims_nothing(settings: Settings, store: Store):
    key = accept(store, "agent")
    with process_with(settings, agent=lambda ctx: None) as process:
        process.draining = True
        Driver(process).execute(key)
        assert process.queue.depth() == 1
    assert record_of(store, key).status is Status.QUEUED


def test_an_ending_by_somebody_else_stands(settings: Settings, store: Store, eventually: Callable[..., Any]):
    from shared.store.ending import end_from_outside

    go = threading.Event()
    key = accept(store, "agent")

    def agent(ctx: RunContext) -> None:
        ctx.say("hello")
        go.wait(5)

    with process_with(settings, agent=agent) as process:
        thread = in_thread(process, key)
        eventually(lambda: record_of(store, key).last_seq > 1)
        end_from_outside(store.runs, store.log, key, ending="worker_lost", guard="any")
        go.set()
        thread.join(5)
        assert not thread.is_alive()
    assert record_of(store, key).texts["code"] == "worker_lost"
    assert types_of(store, key)[-1] == "RUN_ERROR"


def test_usage_travels_on_the_terminal_event(settings: Settings, store: Store):
    def agent(ctx: RunContext) -> None:
        ctx.usage.append(ag.TokenUsage(model="m", input_tokens=3, output_tokens=4))

    key = execute(settings, store, agent)
    assert log_of(store, key)[-1]["usage"][0]["inputTokens"] == 3


def test_a_run_takes_a_few_milliseconds_of_its_own(settings: Settings, store: Store):
    with process_with(settings, agent=lambda ctx: ctx.say("hello")) as process:
        keys = [accept(store, "agent") for _ in range(20)]
        began = time.monotonic()
        for key in keys:
            Driver(process).execute(key)
        assert time.monotonic() - began < 20 * 0.1
