"""Chromium over a real installation: gunicorn, a worker, Redis, and keys of three roles."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.local.server import EmbeddedServer
from shared.protocol import sse
from shared.protocol.events import dump, run_started
from shared.runs.access import Role
from shared.runs.identity import RunIdentity
from shared.store import keys
from shared.store.ending import end_fenced
from shared.store.runs import new_execution
from tests.conftest import wait_for
from tests.journeys.stack import HERE as JOURNEYS
from tests.journeys.stack import Run, Stack

playwright_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed (extra dev)", exc_type=ImportError
)

HERE = Path(__file__).resolve().parent
CHROMIUM = Path("/usr/bin/chromium")
AXE = HERE / "node_modules" / "axe-core" / "axe.min.js"
PATIENCE_MS = 15_000
playwright_api.expect.set_options(timeout=PATIENCE_MS)

ROLES = {
    "owner": frozenset[Role](),
    "viewer": frozenset({Role.VIEWER}),
    "operator": frozenset({Role.OPERATOR, Role.PAYLOADS}),
    "admin": frozenset({Role.ADMIN, Role.PAYLOADS}),
}


class Desk:
    """The installation as its operators know it: its address, their keys, and runs to look after."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.keys = {name: stack.store.api_keys.create(name, roles)[0] for name, roles in ROLES.items()}
        self.sessions: dict[str, Any] = {}

    def at(self, path: str) -> str:
        return f"http://127.0.0.1:{self.stack.port}/ops{path}"

    def orphan(self, run_id: str) -> str:
        """The key of a running run whose worker is not there; without a lease, the sweep leaves it alone."""
        store, identity = self.stack.store, RunIdentity("owner", f"thread-{run_id}", run_id)
        started = sse.frame(1, dump(run_started(identity.thread_id, identity.run_id, None)))
        given = json.dumps({"threadId": identity.thread_id, "runId": run_id, "messages": []}).encode()
        store.runs.accept(identity, agent="waits", run_input=given, started_frame=started)
        assert store.runs.claim(identity.key, new_execution(), worker="gone@burnt", host="burnt", pid=7)
        store.client.zrem(keys.leases(identity.bucket), identity.key)
        return identity.key

    def start(self, agent: str, **options: Any) -> Run:
        """A run of the owner's, on its way in the background."""
        run = self.stack.prepare(agent, actor="owner", token=self.keys["owner"], **options)
        answer = self.stack.request(
            "POST", f"/agents/{agent}", token=run.token, body=run.body, headers={"Prefer": "respond-async"}
        )
        assert answer.status_code == 202, answer.text
        return run

    def ended(self, run: Run) -> dict[str, Any]:
        return run.recorded()

    def clear(self) -> None:
        """Ends every live run, whatever its agent thinks of it."""
        store = self.stack.store
        for live in store.live.view().runs:
            found = store.runs.get(live.key)
            answer = store.runs.terminate(live.key, by="test", reason=None, grace_seconds=None)
            if found is not None and answer.fence is not None:
                end_fenced(store.runs, store.log, answer.fence, found.identity)
        wait_for(lambda: not store.live.view().runs, 15)


@pytest.fixture(scope="session")
def desk() -> Iterator[Desk]:
    """One installation for all browser tests."""
    with tempfile.TemporaryDirectory(prefix="outlast-browser-") as folder:
        server = EmbeddedServer(Path(folder) / "redis")
        server.start()
        stack = Stack(
            Path(folder),
            server,
            OUTLAST_AUTH="keys",
            OUTLAST_AGENTS="agents_under_test:AGENTS,deaf_agents:AGENTS",
            OUTLAST_STALLED_SECONDS="1.5",
            OUTLAST_QUEUED_LONG_SECONDS="5",
            OUTLAST_CANCEL_GRACE_SECONDS="1.5",
            OUTLAST_ABANDONED_SHARE="1",
            PYTHONPATH=f"{JOURNEYS}{os.pathsep}{HERE}",
        )
        try:
            stack.start("gunicorn", concurrency=80)
            yield Desk(stack)
        finally:
            stack.close()
            server.stop()


# For a module only: while it is open, this thread counts as one with a running event loop.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, without a download."""
    if not CHROMIUM.exists():
        pytest.skip("chromium is not installed (apt-get install chromium)")
    with playwright_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Any, desk: Desk) -> Iterator[Callable[..., Any]]:
    """``open_page(role, **context)``: a signed-in tab; whatever its console complains of fails the test.

    It opens ``path``, or nothing when that is None. A role signs in once for all tests.
    """
    contexts, complaints = [], []

    def complain(message: Any) -> None:
        # A refusal's status and a lost connection are logged and are no fault of the page.
        expected = ("Failed to load resource", "htmx:sse:error")
        if message.type in {"error", "warning"} and not any(word in message.text for word in expected):
            complaints.append(message.text)

    def make(role: str | None = "operator", path: str | None = "/", **options: Any) -> Any:
        held = {"storage_state": desk.sessions[role]} if role in desk.sessions else {}
        context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}} | held | options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        if role is not None and not held:
            sign_in(page, desk, role)
            desk.sessions[role] = context.storage_state()
        if role is not None and path is not None and (held or path != "/"):
            page.goto(desk.at(path))
        return page

    yield make
    for context in contexts:
        context.close()
    assert complaints == []


def sign_in(page: Any, desk: Desk, role: str) -> None:
    page.goto(desk.at("/sign-in"))
    page.get_by_label("Token").fill(desk.keys[role])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(desk.at("/"))


@pytest.fixture
def calm(desk: Desk) -> Iterator[None]:
    """Nothing is live before and after."""
    desk.clear()
    yield
    desk.clear()


def picture(page: Any, name: str) -> None:
    """Leaves a picture for people in the folder SCREENSHOTS, if that is set."""
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        file = Path(folder) / f"{re.sub('[^a-z0-9]+', '-', name.lower())}.png"
        page.screenshot(path=str(file), full_page=True)
