"""The yardstick for idle streams: FastAPI, one redis.asyncio subscription per process, a queue per viewer.

Run: python -m benchmarks.asyncio_hub REDIS_URL PORT
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from redis.asyncio import Redis

HEARTBEAT_SECONDS = 15


def make_app(url: str) -> FastAPI:
    app = FastAPI()
    viewers: defaultdict[str, set[asyncio.Queue[bytes]]] = defaultdict(set)
    hub: Any = Redis.from_url(url).pubsub()
    tasks: set[asyncio.Task[None]] = set()

    async def listen() -> None:
        async for message in hub.listen():
            if message["type"] == "message":
                for queue in viewers[message["channel"].decode()]:
                    queue.put_nowait(message["data"])

    async def stream(channel: str) -> AsyncIterator[bytes]:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        viewers[channel].add(queue)
        try:
            await hub.subscribe(channel)
            if not tasks:
                tasks.add(asyncio.create_task(listen()))
            yield b": hello\n\n"
            while True:
                try:
                    yield await asyncio.wait_for(queue.get(), HEARTBEAT_SECONDS)
                except TimeoutError:
                    yield b": \n\n"
        finally:
            viewers[channel].discard(queue)

    @app.get("/events/{key}")
    async def events(key: str) -> StreamingResponse:
        return StreamingResponse(stream(key), media_type="text/event-stream")

    return app


if __name__ == "__main__":
    uvicorn.run(make_app(sys.argv[1]), port=int(sys.argv[2]), log_level="warning", access_log=False)
