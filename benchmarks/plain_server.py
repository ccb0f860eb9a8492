"""The yardstick: AG-UI in one process as its own guide shows it, with FastAPI and the official encoder.

It keeps nothing: no record, no log, no resume, no cancel. Run: uvicorn benchmarks.plain_server:app
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from ag_ui.core import (
    RunAgentInput,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)
from ag_ui.encoder import EventEncoder
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

app = FastAPI()


@app.post("/agents/{name}")
async def run(name: str, run_input: RunAgentInput, request: Request) -> StreamingResponse:
    encoder = EventEncoder(accept=request.headers.get("accept"))
    frames = events(name, run_input, run_input.forwarded_props or {}, encoder)
    return StreamingResponse(frames, media_type=encoder.get_content_type())


async def events(
    name: str, run_input: RunAgentInput, props: dict[str, Any], encoder: EventEncoder
) -> AsyncIterator[str]:
    ids = {"thread_id": run_input.thread_id, "run_id": run_input.run_id}
    yield encoder.encode(RunStartedEvent(**ids))
    message = f"{run_input.run_id}-msg-1"
    yield encoder.encode(TextMessageStartEvent(message_id=message))
    for _ in range(props.get("deltas", 1)):
        delta = "word " if name == "burst" else str(time.monotonic_ns())
        yield encoder.encode(TextMessageContentEvent(message_id=message, delta=delta))
        if name != "burst":
            await asyncio.sleep(props.get("pause", 0.02))
    yield encoder.encode(TextMessageEndEvent(message_id=message))
    yield encoder.encode(RunFinishedEvent(**ids))
