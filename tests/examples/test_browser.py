"""The page with the stock client, in Chromium, over real processes."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import wait_for
from tests.journeys.processes import ROOT, Process, free_port
from tests.journeys.stack import Stack

EXAMPLE = ROOT / "examples" / "browser"
CHROMIUM = Path("/usr/bin/chromium")
PATIENCE_MS = 40_000

playwright_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed (extra test)", exc_type=ImportError
)
expect = playwright_api.expect
expect.set_options(timeout=PATIENCE_MS)

pytestmark = [
    pytest.mark.skipif(not CHROMIUM.exists(), reason="chromium is not installed (apt-get install chromium)"),
    pytest.mark.skipif(
        shutil.which("node") is None or not (EXAMPLE / "node_modules" / "@ag-ui").is_dir(),
        reason="needs node, and `npm ci` in examples/browser",
    ),
]


@pytest.fixture(scope="module")
def stack(start_stack: Any) -> Stack:
    return start_stack()


@pytest.fixture(scope="module")
def site(page_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What ``npm start`` runs."""
    folder = tmp_path_factory.mktemp("site")
    command = ["node", str(EXAMPLE / "serve.mjs"), str(page_port)]
    served = Process("site", command, folder=folder, environment=dict(os.environ))
    address = f"http://127.0.0.1:{page_port}"

    def answers() -> bool:
        try:
            return httpx.get(address).status_code == 200
        except httpx.TransportError:
            return False

    wait_for(answers)
    yield address
    served.kill()


# For a module only: while it is open, this thread counts as one with a running event loop.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Any, site: str, stack: Stack) -> Iterator[Any]:
    """``open_page(agent)``: a tab; what its console complains of fails the test."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []

    def complain(message: Any) -> None:
        # A refusal's status and a lost connection are logged and are no fault of the page.
        expected = ("Failed to load resource", "Agent execution failed", "network error")
        if message.type in {"error", "warning"} and not any(word in message.text for word in expected):
            complaints.append(message.text)

    def throw(error: Any) -> None:
        # The stock client cancels the body of a lost connection and throws what that says into the air.
        if str(error) != "network error":
            complaints.append(str(error))

    def make(agent: str = "demo") -> Any:
        page = context.new_page()
        page.on("console", complain)
        page.on("pageerror", throw)
        page.goto(f"{site}/?outlast=http://127.0.0.1:{stack.port}&agent={agent}")
        expect(status(page)).to_have_text("Ready")
        return page

    yield make
    context.close()
    assert complaints == []


def status(page: Any) -> Any:
    return page.locator("#status")


def send(page: Any, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send").click()


def lines(page: Any, kind: str) -> Any:
    return page.locator(f"#conversation li.{kind}")


def words(page: Any) -> int:
    return len(lines(page, "assistant").last.inner_text().split()) if lines(page, "assistant").count() else 0


def thread_of(page: Any) -> str:
    return str(page.evaluate("sessionStorage.thread"))


def wait_until(page: Any, condition: Any) -> None:
    wait_for(lambda: page.wait_for_timeout(30) or condition(), 40)


def test_text_and_a_tool_call_come_in_while_the_run_is_running(open_page: Any):
    page = open_page()
    send(page, "words=100 delay=0.05")
    expect(lines(page, "call").first).to_contain_text("count_words(")
    wait_until(page, lambda: 3 < words(page) < 100)
    expect(status(page)).to_have_text("Running")
    expect(status(page)).to_have_text("Ended: succeeded")
    assert words(page) == 100


def test_a_stop_shows_the_recorded_outcome(open_page: Any):
    page = open_page()
    send(page, "words=400 delay=0.1 plain=true")
    wait_until(page, lambda: words(page) > 2)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#record")).to_have_text("Recorded: cancelled")
    expect(status(page)).to_have_text("Ended: cancelled")


def test_a_tab_reloaded_in_the_middle_of_a_run_goes_on_and_doubles_nothing(open_page: Any, stack: Stack):
    page = open_page()
    send(page, "words=2000 delay=0.1 plain=true")
    wait_until(page, lambda: words(page) > 5)
    page.reload()
    expect(status(page)).to_have_text("Running")
    assert lines(page, "user").all_inner_texts() == ["words=2000 delay=0.1 plain=true"]
    before = words(page)
    wait_until(page, lambda: words(page) > before + 3)
    page.get_by_role("button", name="Stop").click()
    expect(status(page)).to_have_text("Ended: cancelled")
    (run,) = stack.request("GET", f"/threads/{thread_of(page)}/runs").json()["runs"]
    log = stack.open("GET", f"/runs/{run['key']}/events")
    log.finish()
    assert lines(page, "assistant").all_inner_texts() == [log.text]


def test_a_reloaded_tab_stops_the_run_it_joined(open_page: Any):
    page = open_page()
    send(page, "words=400 delay=0.1 plain=true")
    wait_until(page, lambda: words(page) > 2)
    page.reload()
    expect(status(page)).to_have_text("Running")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#record")).to_have_text("Recorded: cancelled")


@pytest.mark.parametrize("reloaded", [False, True], ids=["at once", "after a reload"])
def test_a_question_is_asked_and_its_answer_goes_on(open_page: Any, reloaded: bool):
    page = open_page()
    send(page, "interrupt=true words=5 delay=0 plain=true")
    expect(status(page)).to_have_text("Waiting for you")
    if reloaded:
        page.reload()
    expect(page.get_by_role("group", name="The agent asks")).to_contain_text("Shall the demo go on?")
    page.get_by_role("button", name="Approve").click()
    expect(status(page)).to_have_text("Ended: succeeded")
    assert words(page) == 5
    expect(page.get_by_role("group", name="The agent asks")).to_be_hidden()


def test_a_failed_run_says_its_code(open_page: Any):
    page = open_page()
    send(page, "fail=timeout plain=true")
    expect(status(page)).to_contain_text("Ended: failed (transport_timeout)")


def test_a_web_server_that_restarts_in_the_middle_of_a_run_costs_the_page_nothing(
    open_page: Any, stack: Stack
):
    page = open_page()
    send(page, "words=120 delay=0.1 plain=true")
    wait_until(page, lambda: words(page) > 5)
    stack.web.kill()
    expect(status(page)).to_have_text("The connection was lost. Going on")
    stack.start_web("gunicorn", port=stack.port)
    expect(status(page)).to_have_text("Ended: succeeded")
    assert words(page) == 120
    assert lines(page, "user").count() == 1


def test_a_server_that_cannot_be_reached_is_named_with_what_it_needs(browser: Any, site: str):
    page = browser.new_page()
    nowhere = f"http://127.0.0.1:{free_port()}"
    page.goto(f"{site}/?outlast={nowhere}")
    expect(status(page)).to_have_text(f"Cannot reach {nowhere}. Is it up, with OUTLAST_CORS_ORIGINS={site}?")
    page.close()


def test_the_server_of_the_page_serves_nothing_outside_of_its_folder(site: str):
    for path in ("/../README.md", "/..%2f..%2fREADME.md", "/.npmrc", "/%2e%2e/README.md", "/package.json"):
        assert httpx.get(httpx.URL(site).copy_with(raw_path=path.encode())).status_code == 404


def test_every_file_of_the_import_map_is_installed():
    named = set(re.findall(r"\./(node_modules/[^\"]+)", (EXAMPLE / "index.html").read_text()))
    assert named
    assert [path for path in named if not (EXAMPLE / path).is_file()] == []
