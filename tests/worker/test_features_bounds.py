"""A run's log is bounded by its bytes, too; the ending always has room."""

from __future__ import annotations

from shared.settings import Settings
from shared.store.store import Store
from tests.worker.stage import accept, log_of, process_with, record_of
from worker.context import RunContext
from worker.driver import Driver

LIMIT = 20_000


def test_a_log_of_too_many_bytes_ends_the_run_and_keeps_what_was_accepted(settings: Settings, store: Store):
    said: list[str] = []

    def agent(ctx: RunContext) -> None:
        with ctx.message() as message:
            for number in range(100):
                piece = f"{number}:" + "x" * 1000
                message.delta(piece)
                said.append(piece)

    key = accept(store, "agent")
    with process_with(settings.model_copy(update={"max_bytes_per_run": LIMIT}), agent=agent) as process:
        Driver(process).execute(key)
    assert record_of(store, key).texts["code"] == "EVENT_BUFFER_FULL"
    log = log_of(store, key)
    assert [event["delta"] for event in log if event["type"] == "TEXT_MESSAGE_CONTENT"] == said
    assert LIMIT / 2 < sum(map(len, said)) < LIMIT
    assert [event["type"] for event in log[-2:]] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
