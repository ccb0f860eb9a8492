"""What the note for front ends shows: the client in Node, the route over stand-ins, the proxy."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from tests.journeys.processes import ROOT
from tests.journeys.stack import Stack

EXAMPLE = ROOT / "examples" / "front-end"
PACKAGES = ROOT / "examples" / "browser" / "node_modules"
SECRET = "a-secret-that-only-the-two-servers-share"

needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not (PACKAGES / "@ag-ui").is_dir(),
    reason="needs node, and `npm ci` in examples/browser",
)


@pytest.fixture(scope="module")
def stack(start_stack: Any) -> Stack:
    return start_stack(OUTLAST_AUTH="keys", OUTLAST_JWT_SECRET=SECRET)


def address(stack: Stack) -> str:
    return f"http://127.0.0.1:{stack.port}"


def body(run_id: str, text: str) -> dict[str, Any]:
    message = {"id": "1", "role": "user", "content": text}
    return {"threadId": f"thread-of-{run_id}", "runId": run_id, "messages": [message]}


# --- the client -------------------------------------------------------------------------------------------


def node(folder: Path, script: str, **environment: str) -> Any:
    """Runs a module beside the example's files; what it prints as JSON."""
    for file in EXAMPLE.glob("*.mjs"):
        shutil.copy(file, folder)
    packages = folder / "node_modules"
    packages.mkdir(exist_ok=True)
    for package in PACKAGES.iterdir():
        if not (packages / package.name).exists():
            (packages / package.name).symlink_to(package)
    (folder / "main.mjs").write_text(script)
    done = subprocess.run(
        ["node", "main.mjs"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def note_lines(stack: Stack, key: str) -> str:
    (lines,) = re.findall(r"```js\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)
    for shown, meant in (
        ("http://127.0.0.1:8000", address(stack)),
        ("KEY", key),
        ('"hello"', '"words=400 delay=0.1"'),
    ):
        assert shown in lines
        lines = lines.replace(shown, meant)
    return lines


@needs_node
def test_the_notes_lines_run_and_stop_an_agent(stack: Stack, tmp_path: Path):
    key, _ = stack.store.api_keys.create("ann", frozenset())
    told = "\nprocess.stdout.write(JSON.stringify({ record, messages: agent.messages }));\n"
    # The stop follows at once; the run must have been accepted by then.
    record = "`${agent.thread}/runs/f1`, { headers: agent.headers }"
    lines = note_lines(stack, key).replace(
        "const record", f"while (!(await fetch({record})).ok);\nconst record"
    )
    seen = node(tmp_path, lines + told)
    assert (seen["record"]["status"], seen["record"]["actor"]) == ("cancelled", "ann")
    assert seen["messages"][0]["role"] == "user"


@needs_node
def test_a_second_client_follows_the_thread(stack: Stack, tmp_path: Path):
    key, _ = stack.store.api_keys.create("bob", frozenset())
    script = """
    import { agentFor, stop } from "./agent.mjs";
    const options = { base: process.env.BASE, name: "echo", threadId: "t-bob", token: process.env.KEY };
    const first = agentFor(options);
    first.addMessage({ id: "1", role: "user", content: "one two" });
    await first.runAgent({ runId: "r" });
    const second = agentFor(options);
    await second.connectAgent();
    const record = await stop(second, "r");
    const unknown = await stop(second, "nobody").catch((error) => error.status);
    process.stdout.write(JSON.stringify({ messages: second.messages, status: record.status, unknown }));
    """
    seen = node(tmp_path, script, BASE=address(stack), KEY=key)
    assert [message["content"] for message in seen["messages"]] == ["one two", "one two"]
    assert (seen["status"], seen["unknown"]) == ("succeeded", 404)


# --- Next.js ------------------------------------------------------------------------------------------------

STAND_INS = {
    # Runs the agent that the route made, as the package does for a request.
    "@copilotkit/runtime": """
        export class CopilotRuntime { constructor({ agents }) { this.agents = agents; } }
        export class ExperimentalEmptyAdapter {}
        export function copilotRuntimeNextJSAppRouterEndpoint({ runtime }) {
          return { async handleRequest() {
            const { demo } = runtime.agents;
            demo.addMessage({ id: "1", role: "user", content: "words=2 delay=0 plain=true" });
            const errors = [];
            await demo.runAgent({}, { onRunErrorEvent: ({ event }) => errors.push(event) });
            return Response.json({ messages: demo.messages, errors, threadId: demo.threadId });
          } };
        }
    """,
    "jose": """
        import { createHmac } from "node:crypto";
        const coded = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
        export class SignJWT {
          constructor(claims) { this.claims = claims; }
          setProtectedHeader(header) { this.header = header; return this; }
          setExpirationTime() { this.claims.exp = Math.floor(Date.now() / 1000) + 600; return this; }
          async sign(secret) {
            const text = `${coded(this.header)}.${coded(this.claims)}`;
            return `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`;
          }
        }
    """,
}


@needs_node
def test_the_route_speaks_for_the_user_who_is_signed_in(stack: Stack, tmp_path: Path):
    for name, source in STAND_INS.items():
        package = tmp_path / "node_modules" / name
        package.mkdir(parents=True)
        (package / "package.json").write_text('{"type": "module", "main": "index.js"}')
        (package / "index.js").write_text(source)
    script = """
    import { POST } from "./route.mjs";
    const ask = (headers) => POST(new Request("http://app/api/copilotkit", { method: "POST", headers }));
    const refused = (await ask({})).status;
    process.stdout.write(JSON.stringify({ refused, ...(await (await ask({ "x-user": "eve" })).json()) }));
    """
    seen = node(tmp_path, script, OUTLAST_URL=address(stack), OUTLAST_JWT_SECRET=SECRET)
    assert (seen["refused"], seen["errors"]) == (401, [])
    assert seen["messages"][-1]["role"] == "assistant"
    (run,) = stack.store.listing.of_thread("eve", seen["threadId"]).records
    assert str(run.status) == "succeeded"


# --- FastAPI ------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("fastapi", reason="fastapi is not installed (extra test)")
    monkeypatch.setenv("OUTLAST_URL", address(stack))
    monkeypatch.setenv("OUTLAST_JWT_SECRET", SECRET)
    spec = importlib.util.spec_from_file_location("front_end_proxy", EXAMPLE / "proxy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


def ask(app: Any, path: str, document: Any, user: str | None = "kim") -> httpx.Response:
    async def asked() -> httpx.Response:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client,
        ):
            headers = {"accept": "text/event-stream", **({"x-user": user} if user else {})}
            return await client.post(path, json=document, headers=headers)

    return asyncio.run(asked())


def test_the_proxy_passes_a_run_on_for_the_user_who_is_signed_in(proxy: Any, stack: Stack):
    answer = ask(proxy, "/agents/echo", body("p1", "one two"))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "no-transform" in answer.headers["cache-control"]
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.text.count('"RUN_FINISHED"') == 1
    token = jwt.encode({"sub": "kim", "exp": 9_999_999_999}, SECRET, algorithm="HS256")
    seen = stack.request("GET", "/threads/thread-of-p1/runs/p1", token=token).json()
    assert (seen["actor"], seen["status"]) == ("kim", "succeeded")


def test_the_proxy_joins_a_thread_and_passes_refusals_on(proxy: Any):
    ask(proxy, "/agents/echo", body("p2", "one two"))
    joined = ask(proxy, "/threads/thread-of-p2/connect", {})
    assert joined.text.count('"MESSAGES_SNAPSHOT"') == 1
    refused = ask(proxy, "/threads/thread-of-p2/runs/p2/cancel?wait=1", {})
    assert (refused.status_code, refused.json()["code"]) == (409, "RUN_ENDED")
    assert ask(proxy, "/threads/thread-of-p2/connect", {}, user="somebody").status_code == 404


def test_the_proxy_serves_nobody_who_is_not_signed_in(proxy: Any):
    assert ask(proxy, "/agents/echo", body("p3", "x"), user=None).status_code == 401
