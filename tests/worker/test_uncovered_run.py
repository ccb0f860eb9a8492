"""A run that leaves a question of its thread unanswered is ended when a worker takes it at its turn."""

from __future__ import annotations

import pytest

from shared.runs.interrupts import Answer
from shared.runs.lifecycle import Status
from shared.settings import Settings
from shared.store.errors import StoreUnavailable
from shared.store.store import Store
from tests.worker.stage import accept, log_of, process_with, record_of
from worker.agents import Interrupt, RunContext
from worker.driver import Driver


def test_it_fails_as_interrupt_open_and_the_agent_is_not_called(settings: Settings, store: Store):
    called = []

    def asks(ctx: RunContext) -> Interrupt:
        return Interrupt(reason="r")

    first = accept(store, "asks", thread="t")
    second = accept(store, "called", thread="t")
    with process_with(settings, asks=asks, called=called.append) as process:
        Driver(process).execute(first)
        Driver(process).execute(second)
    assert record_of(store, first).status is Status.INTERRUPTED
    assert record_of(store, second).status is Status.FAILED
    assert log_of(store, second)[-1]["code"] == "INTERRUPT_OPEN"
    assert called == []


def test_an_answered_call_gets_its_result_though_the_request_does_not_repeat_it(
    settings: Settings, store: Store
):
    def asks(ctx: RunContext) -> Interrupt | None:
        if not ctx.resume:
            with ctx.tool_call("pay", call_id="call-1"):
                pass
            return Interrupt(id="q", reason="r", tool_call_id="call-1")
        ctx.tool_result("call-1", "paid")
        return None

    asked = accept(store, "asks", thread="t")
    with process_with(settings, asks=asks) as process:
        Driver(process).execute(asked)
        entry = {"interruptId": "q", "status": "resolved"}
        answering = accept(store, "asks", (Answer("q", "resolved", asked),), thread="t", resume=[entry])
        Driver(process).execute(answering)
    assert record_of(store, answering).status is Status.SUCCEEDED
    (result,) = [event for event in log_of(store, answering) if event["type"] == "TOOL_CALL_RESULT"]
    assert (result["toolCallId"], result["content"]) == ("call-1", "paid")


def test_a_claim_that_redis_did_not_answer_ends_nothing(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
):
    key = accept(store, "asks")
    asked: list[str] = []

    def unanswered(*_: object) -> None:
        raise StoreUnavailable

    def ends(_runs: object, _log: object, key: str) -> None:
        asked.append(key)

    monkeypatch.setattr("worker.driver.end_uncovered", ends)
    with process_with(settings.model_copy(update={"lease_seconds": 0.1}), asks=print) as process:
        monkeypatch.setattr(process, "say_claim", unanswered)
        Driver(process).execute(key)
    assert asked == []
    assert record_of(store, key).status is Status.QUEUED
