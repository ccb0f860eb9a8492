"""A run that leaves a question of its thread unanswered is ended when a worker takes it at its turn."""

from __future__ import annotations

from shared.runs.lifecycle import Status
from shared.settings import Settings
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
