"""Each page with something on it: pictures for people, no accessibility violation, nothing that overflows."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from shared.runs.identity import BUCKETS
from shared.store import keys
from tests.browser.conftest import AXE, Desk, picture, sign_in
from tests.conftest import wait_for

# The themes differ in colours only: what the light one is checked for holds for the dark one too.
RULES = {
    "light": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "dark": ["color-contrast", "link-in-text-block"],
}

TABS = {"input", "state", "attempts", "record"}
"""They have no colour that another page has not: nothing to look for in the dark."""


def _a_day(desk: Desk) -> None:
    """Counters as a day of work would have left them; a test cannot wait for one."""
    client, chance = desk.stack.store.client, random.Random(7)
    now = int(client.time()[0]) // 60
    pipeline = client.pipeline(transaction=False)
    for minute in range(now - 1439, now - 1):
        load = 1 + 0.6 * math.sin((minute - now) / 1440 * 2 * math.pi)
        busy = int(8 * load) + int(6 * chance.random()) + (9 if 30 < now - minute < 42 else 0)
        fields: dict[str, int] = {"accepted": busy + 3, "answers|succeeded|": busy}
        fields["answers|cancelled|"] = chance.choice((0, 0, 1, 2))
        fields["answers|failed|AGENT_ERROR"] = chance.choice((0, 0, 0, 1))
        fields["answers|failed|transport_timeout"] = 4 if 34 < now - minute < 40 else 0
        fields["answers|interrupted|"] = chance.choice((0, 0, 0, 0, 1))
        for name, peak in (("first_event", 6), ("duration", 9), ("cancel_latency", 3), ("queue_wait", 2)):
            for _ in range(busy):
                slot = min(17, max(0, round(chance.gauss(peak, 1.6))))
                fields[f"{name}:{slot}"] = fields.get(f"{name}:{slot}", 0) + 1
            fields[f"{name}:sum"] = 1000 * busy
        pipeline.hset(keys.stats(BUCKETS[minute % 16], minute), mapping=fields)
        deep = 14 if 34 < now - minute < 41 else chance.choice((0, 0, 1, 2))
        pipeline.hset(keys.depths(minute), mapping={"depth": deep, "oldest_ms": deep * 2100})
    pipeline.execute()


@pytest.fixture(scope="module")
def sights(desk: Desk) -> dict[str, str]:
    """What there is to see, and the address of each page."""
    desk.clear()
    _a_day(desk)
    done = [desk.start("answers", thread_id="trip") for _ in range(4)]
    failed = desk.start("raises", thread_id="trip")
    paused = desk.start("asks", thread_id="letter", run_id="letter-of-november")
    calling = desk.start("calls", thread_id="digest", run_id="morning-digest")
    for run in (*done, failed, paused):
        run.recorded()
    stuck = desk.start("deaf", thread_id="weather-report-2026-11-30", run_id="morning-report")
    quiet = [desk.start("says_nothing") for _ in range(2)]
    waiting = [desk.start("waits") for _ in range(6)]
    for run in (stuck, calling, *quiet, *waiting):
        run.running()
    headers = {"Authorization": f"Bearer {desk.keys['admin']}"}
    call = desk.stack.request
    assert call(
        "POST", f"/ops/api/runs/{stuck.key}/cancel", body={"reason": "no progress"}, headers=headers
    ).is_success
    body = {"filter": {"agent": "waits", "older_than": 0}, "confirm_count": 3, "reason": "night shift"}
    call("POST", "/ops/api/bulk-cancel", body=body, headers=headers)
    body["confirm_count"] = 500
    bulk = call("POST", "/ops/api/bulk-cancel", body=body, headers=headers).json()
    for run in waiting:
        run.recorded()
    more = [desk.start("waits", seconds=120) for _ in range(5)]
    for run in more:
        run.running()

    def troubled() -> bool:
        found = call("GET", "/ops/api/attention", headers=headers).json()
        return found["total"] >= 3 and found["counts"]["cancelling"] == 1

    wait_for(troubled, 15, pause=0.1)
    return {
        "overview": "/",
        "runs": "/runs",
        "run": f"/runs/{done[0].key}",
        "stuck": f"/runs/{stuck.key}",
        "failed": f"/runs/{failed.key}",
        "input": f"/runs/{done[0].key}?tab=input",
        "paused": f"/runs/{paused.key}",
        "calling": f"/runs/{calling.key}",
        "state": f"/runs/{done[0].key}?tab=state",
        "attempts": f"/runs/{stuck.key}?tab=attempts",
        "record": f"/runs/{failed.key}?tab=record",
        "audit": "/audit",
        "bulk": f"/bulk/{bulk['id']}",
        "bulks": "/bulk",
        "confirm": f"/runs/{stuck.key}/terminate",
        "workers": "/workers",
        "queue": "/queues",
        "metrics": "/metrics",
        "system": "/system",
        "sign-in": "/sign-in",
    }


def _settled(page: Any) -> None:
    page.wait_for_load_state("domcontentloaded")
    if page.locator("#live").count():
        page.wait_for_selector("#live[data-state=live]")


@pytest.fixture(scope="module")
def seen(browser, desk, sights) -> dict[str, Any]:
    """One visit of each page: in light, in dark, and 320 pixels wide."""
    broken: dict[str, Any] = {}
    wide: dict[str, int] = {}
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    stranger = browser.new_page(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    sign_in(page, desk, "admin")
    for name, path in sights.items():
        tab = stranger if name == "sign-in" else page
        tab.set_viewport_size({"width": 1440, "height": 900})
        tab.emulate_media(color_scheme="light")
        tab.goto(desk.at(path))
        _settled(tab)
        # Through the debugger and not as a script of the page, which its policy would refuse.
        tab.evaluate(AXE.read_text())
        for theme in ("light", "dark"):
            tab.emulate_media(color_scheme=theme)
            picture(tab, f"{name} {theme}")
            if theme == "light" or name not in TABS:
                broken |= {f"{name}, {theme}": found} if (found := _violations(tab, RULES[theme])) else {}
        tab.set_viewport_size({"width": 320, "height": 640})
        picture(tab, f"{name} narrow")
        width = tab.evaluate("document.documentElement.scrollWidth")
        wide |= {name: width} if width > 320 else {}
    stranger.close()
    context.close()
    return {"broken": broken, "wide": wide}


def _violations(page: Any, rules: list[str]) -> list[Any]:
    options = {"runOnly": rules, "resultTypes": ["violations"], "preload": False, "iframes": False}
    found = page.evaluate("options => axe.run(options)", options)["violations"]
    return [
        (each["id"], [node["html"][:160] + node["failureSummary"][:200] for node in each["nodes"][:3]])
        for each in found
    ]


def test_no_page_breaks_a_rule_of_accessibility(seen):
    assert seen["broken"] == {}


def test_nothing_overflows_at_320_pixels(seen):
    assert seen["wide"] == {}


def test_the_theme_and_the_times_that_were_chosen_stay(open_page, desk):
    page = open_page("viewer", "/audit", color_scheme="light", timezone_id="Asia/Tokyo")
    moment = page.locator("#p-audit time").nth(1)
    utc = moment.inner_text()
    page.locator("details.menu summary").click()
    page.get_by_role("button", name="local").click()
    page.get_by_role("button", name="dark").click()
    page.wait_for_selector("html[data-theme=dark]")
    local = moment.inner_text()
    assert (int(local[:2]) - int(utc[:2])) % 24 == 9
    assert moment.get_attribute("title").endswith("local time")
    page.goto(desk.at("/runs"))
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, ground.removeprefix("rgb(").rstrip(")").split(","))) < 40
