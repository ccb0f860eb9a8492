"""A FastAPI application in front of Outlast: who is signed in here is the actor there."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import jwt
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from starlette.background import BackgroundTask

OUTLAST = os.environ.get("OUTLAST_URL", "http://127.0.0.1:8000")
SECRET = os.environ["OUTLAST_JWT_SECRET"]
PASSED_ON = ("content-type", "cache-control", "x-accel-buffering", "vary", "retry-after", "outlast-run-key")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # A read may take as long as the pause between two heartbeats, and a bit.
    async with httpx.AsyncClient(base_url=OUTLAST, timeout=httpx.Timeout(10, read=60)) as app.state.outlast:
        yield


app = FastAPI(lifespan=lifespan)


def user_of(request: Request) -> str:
    """Whoever is signed in here; put your session in its place."""
    user = request.headers.get("x-user")
    if not user:
        raise HTTPException(401)
    return user


@app.post("/agents/{agent}")
async def run(agent: str, request: Request) -> StreamingResponse:
    return await passed_on(request, f"/agents/{agent}")


@app.post("/threads/{thread}/connect")
async def connect(thread: str, request: Request) -> StreamingResponse:
    return await passed_on(request, f"/threads/{thread}/connect")


@app.post("/threads/{thread}/runs/{run_id}/cancel")
async def cancel(thread: str, run_id: str, request: Request) -> StreamingResponse:
    return await passed_on(request, f"/threads/{thread}/runs/{run_id}/cancel")


async def passed_on(request: Request, path: str) -> StreamingResponse:
    """The same request for the signed-in user; the answer's body is handed on as it comes."""
    claims = {"sub": user_of(request), "exp": int(time.time()) + 600}
    headers = {
        "authorization": f"Bearer {jwt.encode(claims, SECRET, algorithm='HS256')}",
        "content-type": "application/json",
        "accept": request.headers.get("accept", "*/*"),
    }
    client: httpx.AsyncClient = request.app.state.outlast
    asked = client.build_request(
        "POST",
        httpx.URL(path=path, query=request.url.query.encode()),
        content=await request.body(),
        headers=headers,
    )
    answer = await client.send(asked, stream=True)
    kept = {name: answer.headers[name] for name in PASSED_ON if name in answer.headers}
    return StreamingResponse(
        answer.aiter_raw(), answer.status_code, kept, background=BackgroundTask(answer.aclose)
    )
