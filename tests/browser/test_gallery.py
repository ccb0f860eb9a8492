"""Each page with something on it: pictures for people, no accessibility violation, nothing that overflows."""

from __future__ import annotations

import random
from typing import Any

import pytest

from shared.runs.identity import BUCKETS
from shared.store import keys
from tests.browser.conftest import AXE, Desk
from tests.conftest import wait_for

# The themes differ in colours only: what the light one is checked for holds for the dark one too.
RULES = {
    "light": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "dark": ["color-contrast", "link-in-text-block"],
}


def _an_hour(desk: Desk) -> None:
    """Counters as an hour of work would have left them; a test cannot wait for one."""
    client, chance = desk.stack.store.client, random.Random(7)
    now = int(client.time()[0]) // 60
    pipeline = client.pipeline(transaction=False)
    for minute in range(now - 59, now - 1):
        busy = 8 + int(6 * chance.random()) + (9 if 30 < now - minute < 42 else 0)
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
    _an_hour(desk)
    done = [desk.start("answers", thread_id="trip") for _ in range(4)]
    failed = desk.start("raises", thread_id="trip")
    for run in (*done, failed):
        run.recorded()
    stuck = desk.start("deaf", thread_id="weather-report-2026-11-30", run_id="morning-report")
    quiet = [desk.start("says_nothing") for _ in range(2)]
    waiting = [desk.start("waits") for _ in range(6)]
    for run in (stuck, *quiet, *waiting):
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
        "record": f"/runs/{failed.key}?tab=record",
        "audit": "/audit",
        "bulk": f"/bulk/{bulk['id']}",
        "workers": "/workers",
        "queue": "/queues",
        "system": "/system",
        "sign-in": "/sign-in",
    }


def _settled(page: Any) -> None:
    page.wait_for_load_state("domcontentloaded")
    if page.locator("#live").count():
        page.wait_for_selector("#live[data-state=live]")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_breaks_a_rule_of_accessibility(open_page, desk, sights, shoot, theme):
    page = open_page("admin", color_scheme=theme)
    anonymous = open_page(None, color_scheme=theme)
    broken = {}
    for name, path in sights.items():
        tab = anonymous if name == "sign-in" else page
        tab.goto(desk.at(path))
        _settled(tab)
        shoot(tab, f"{name} {theme}")
        # Through the debugger and not as a script of the page, which its policy would refuse.
        tab.evaluate(AXE.read_text())
        found = tab.evaluate("only => axe.run({runOnly: only})", RULES[theme])
        if found["violations"]:
            broken[name] = [
                (
                    each["id"],
                    [node["html"][:160] + node["failureSummary"][:200] for node in each["nodes"][:3]],
                )
                for each in found["violations"]
            ]
    assert broken == {}


def test_nothing_overflows_at_320_pixels(open_page, desk, sights, shoot):
    page = open_page("admin", viewport={"width": 320, "height": 640})
    wide = {}
    for name, path in sights.items():
        page.goto(desk.at(path))
        _settled(page)
        shoot(page, f"{name} narrow")
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > 320:
            wide[name] = width
    assert wide == {}


def test_the_theme_that_was_chosen_stays(open_page, desk):
    page = open_page("viewer", color_scheme="light")
    page.locator("details.menu summary").click()
    page.get_by_role("button", name="dark").click()
    page.wait_for_selector("html[data-theme=dark]")
    page.goto(desk.at("/runs"))
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, ground.removeprefix("rgb(").rstrip(")").split(","))) < 40
