"""What the adapters' tests share: AG-UI frames of an endpoint, and how soon a cancel gets to a model."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from shared.settings import Settings
from shared.store.store import Store
from tests.conftest import wait_for
from tests.openai_endpoint import Endpoint
from tests.worker.stage import accept, in_thread, process_with, record_of, types_of
from worker.context import RunContext, current_run

GOAL_SECONDS = 0.2
CI_FACTOR = 5
TRIES = 3


def frame(kind: str, **members: Any) -> bytes:
    """One event as a server sends it."""
    return b"data: " + json.dumps({"type": kind, **members}).encode() + b"\n\n"


STARTED = frame("RUN_STARTED", threadId="theirs", runId="theirs", protocolVersion="1.0")
OPENED = frame("TEXT_MESSAGE_START", messageId="m1", role="assistant")
HELLO = frame("TEXT_MESSAGE_CONTENT", messageId="m1", delta="hello")
CLOSED = frame("TEXT_MESSAGE_END", messageId="m1")
FINISHED = frame("RUN_FINISHED", threadId="theirs", runId="theirs")
WHOLE = (STARTED, OPENED, HELLO, CLOSED, FINISHED)


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Waits on the loop until ``condition`` is true; TimeoutError after ``seconds``."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - lists and endpoints have no event to wait for
            await asyncio.sleep(0.005)


async def close_resources(ctx: RunContext) -> None:
    """Closes what an agent keeps between runs, before the loop ends that it is bound to."""
    await asyncio.to_thread(ctx.resources.close, 5)


def closing(agent: Any) -> Callable[[Any], AsyncIterator[Any]]:
    """The agent for a loop that ends with the run."""

    async def produce(given: Any) -> AsyncIterator[Any]:
        events = agent(given)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()
            await close_resources(current_run())

    return produce


def seconds_to_the_upstream(
    settings: Settings,
    store: Store,
    agent: Any,
    endpoint: Endpoint,
    said: str | None = "TEXT_MESSAGE_CONTENT",
) -> float:
    """From the cancel request to the end of the upstream's connection, seen there; the best of some runs.

    Every run must be recorded as cancelled by a worker process's own services. ``said`` is the event type
    that the upstream has brought about by then, None for one that has said nothing yet.
    """
    taken = []
    with process_with(settings, helper=agent) as process:
        for number in range(1, TRIES + 1):
            message = {"id": f"u{number}", "role": "user", "content": "hello"}
            key = accept(store, "helper", messages=[message])
            thread = in_thread(process, key)
            wait_for(lambda number=number: len(endpoint.requests) >= number)
            if said is not None:
                wait_for(lambda key=key: said in types_of(store, key))
            seen = endpoint.requests[-1]
            asked = time.monotonic()
            assert store.runs.request_cancel(key, by="alice").state == "requested"
            assert seen.client_gone.wait(5), "the upstream's connection stayed open"
            assert seen.gone_at is not None
            taken.append(seen.gone_at - asked)
            thread.join(5)
            assert str(record_of(store, key).status) == "cancelled"
            assert types_of(store, key)[-1] == "RUN_FINISHED"
    print(f"upstream closed after {[round(one * 1000) for one in taken]} ms")  # noqa: T201 - measured each time
    return min(taken)
