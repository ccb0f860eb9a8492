"""Log lines of a run name it, those of its agent's own code included."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import structlog

from shared.logs import get_logger
from shared.settings import Settings
from shared.store.store import Store
from tests.worker.stage import accept, in_thread, process_with
from worker.context import RunContext

log = get_logger("an.agent")


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    """What is written during one test, with the fields that are bound."""
    written: list[dict[str, Any]] = []

    def keep(logger: Any, name: str, event: Any) -> Any:
        written.append(dict(event))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, keep],
        wrapper_class=structlog.make_filtering_bound_logger(10),
    )
    yield written
    structlog.configure(**before)


def speaking(together: int) -> Callable[[RunContext], Awaitable[None]]:
    """An agent that speaks when so many runs have come to this point."""
    here = asyncio.Barrier(together)

    async def speaks(ctx: RunContext) -> None:
        await here.wait()
        log.info("agent.asked", of=ctx.run_id)
        await asyncio.to_thread(log.info, "agent.asked", of=ctx.run_id)

    return speaks


def speaks_in_a_thread(ctx: RunContext) -> None:
    ctx.until_cancelled(lambda: log.info("agent.asked", of=ctx.run_id))


@pytest.mark.parametrize("agent", [speaking(5), speaks_in_a_thread], ids=lambda agent: agent.__name__)
def test_lines_of_runs_side_by_side_are_told_apart(
    settings: Settings, store: Store, lines: list[dict[str, Any]], agent: Any
):
    keys = [accept(store, "agent") for _ in range(5)]
    runs = {key: store.runs.get(key).identity.run_id for key in keys}
    with process_with(settings, agent=agent) as process:
        for thread in [in_thread(process, key) for key in keys]:
            thread.join(5)
    said = [line for line in lines if line["event"] == "agent.asked"]
    assert {line["run"] for line in said} == set(keys)
    assert all(line["of"] == runs[line["run"]] for line in said)
    assert {(line["agent"], line["attempt"]) for line in said} == {("agent", 1)}


def test_claim_and_ending_name_the_run(settings: Settings, store: Store, lines: list[dict[str, Any]]):
    key = accept(store, "agent")
    with process_with(settings, agent=speaking(1)) as process:
        in_thread(process, key).join(5)
    told = {line["event"]: line for line in lines if line.get("run") == key}
    assert {"run.claimed", "run.ended"} <= told.keys()
    assert (told["run.ended"]["status"], told["run.ended"]["agent"]) == ("succeeded", "agent")
