"""An operator at night: signs in, sees the stuck run, stops it, and reads what came of it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Desk, sign_in
from tests.conftest import wait_for

pytestmark = pytest.mark.usefixtures("calm")


def _row(page: Any, run: Any) -> Any:
    return page.locator("table.attention tr", has_text=run.run_id)


def _live(page: Any) -> None:
    page.wait_for_selector("#live[data-state=live]")


def _confirm(page: Any, button: str, reason: str | None = None) -> None:
    dialog = page.locator("#dialog")
    expect(dialog).to_be_visible()
    if reason:
        dialog.get_by_label("Why").fill(reason)
    dialog.get_by_role("button", name=button).click()


def test_a_wrong_token_is_refused_and_a_page_leads_to_the_sign_in_and_back(open_page, desk: Desk):
    page = open_page(None)
    page.goto(desk.at("/runs?status=running"))
    page.get_by_label("Token").fill("ol_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not known")
    page.get_by_label("Token").fill(desk.keys["viewer"])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(desk.at("/runs?status=running"))
    cookie = next(each for each in page.context.cookies() if each["name"] == "outlast_ops")
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/ops")


def test_signing_out_ends_the_session_in_every_tab(open_page, desk: Desk):
    page = open_page(None)
    sign_in(page, desk, "viewer")
    other = page.context.new_page()
    other.goto(desk.at("/"))
    _live(other)
    page.locator("details.menu summary").click()
    page.get_by_role("button", name="Sign out").click()
    for tab in (page, other):
        tab.wait_for_url(re.compile("/ops/sign-in"))
    # Whichever comes first says it.
    assert any("You are signed out." in tab.content() for tab in (page, other))


def test_a_stuck_run_appears_without_reloading_and_is_cancelled_to_its_recorded_outcome(
    open_page, desk: Desk
):
    page = open_page("operator")
    _live(page)
    expect(page.get_by_text("Nothing runs and nothing waits.")).to_be_visible()
    run = desk.start("says_nothing")
    row = _row(page, run)
    expect(row).to_contain_text("stalled")
    row.get_by_role("button", name="Cancel").click()
    _confirm(page, "Cancel the run", "woken by the pager")
    expect(page.locator(".notice")).to_contain_text("asked to stop; its outcome is not recorded yet")
    page.goto(desk.at(f"/runs/{run.key}"))
    expect(page.locator("#p-head")).to_contain_text("cancel requested")
    expect(page.locator("#p-head .state").first).to_have_text("cancelled")
    assert run.recorded()["status"] == "cancelled"
    page.get_by_role("link", name=re.compile("^Audit")).last.click()
    expect(page.locator("#p-audit")).to_contain_text("woken by the pager")


def test_a_deaf_run_is_stopped_by_force_after_its_grace(open_page, desk: Desk):
    page = open_page("admin")
    run = desk.start("deaf", seconds=20).running()
    page.goto(desk.at(f"/runs/{run.key}"))
    _live(page)
    expect(page.get_by_role("button", name="Force stop")).to_be_disabled()
    page.get_by_role("button", name="Cancel").click()
    _confirm(page, "Cancel the run")
    expect(page.locator("#p-head")).to_contain_text("the grace is over and it has not stopped")
    page.get_by_role("button", name="Force stop").click()
    expect(page.locator("#dialog")).to_contain_text("keeps its slot until it returns")
    _confirm(page, "Force stop", "deaf")
    expect(page.locator("#p-head")).to_contain_text("forced by admin")
    assert run.recorded()["status"] == "cancelled"


def test_fifty_runs_that_match_are_cancelled_in_one_act(open_page, desk: Desk):
    started = [desk.start("waits", seconds=100) for _ in range(50)]
    for run in started:
        run.running(30)
    page = open_page("operator", "/runs?agent=waits&status=running")
    page.get_by_role("button", name=re.compile("Cancel all 50 live")).click()
    expect(page.locator("#dialog")).to_contain_text("and 45 more")
    _confirm(page, "Cancel 50 runs", "provider is down")
    page.wait_for_url(re.compile("/ops/bulk/"))
    expect(page.locator("#p-bulk")).to_contain_text("50 of 50")
    expect(page.locator("#p-bulk td .state", has_text=re.compile("^cancelled$"))).to_have_count(50)
    assert {run.recorded()["status"] for run in started} == {"cancelled"}


def test_ticked_runs_are_cancelled_and_the_filter_stays(open_page, desk: Desk):
    runs = [desk.start("waits", seconds=100).running() for _ in range(3)]
    page = open_page("operator", "/runs?agent=waits&status=running")
    for run in runs[:2]:
        page.get_by_label(f"Tick {run.run_id}", exact=True).check()
    page.get_by_role("button", name="Cancel ticked (2)").click()
    _confirm(page, "Cancel 2 runs", "wrong model")
    page.wait_for_url(desk.at("/runs?agent=waits&status=running"))
    expect(page.locator(".notice")).to_contain_text("2 asked to stop")
    assert [run.recorded()["status"] for run in runs[:2]] == ["cancelled"] * 2
    assert "finished_at" not in runs[2].record()


def test_an_orphan_is_marked_lost_by_typing_the_beginning_of_its_key(open_page, desk: Desk):
    key = desk.orphan("left-behind")
    page = open_page("admin")
    row = page.locator("table.attention tr", has_text="left-behind")
    expect(row).to_contain_text("orphaned")
    row.get_by_role("button", name="Mark lost").click()
    dialog = page.locator("#dialog")
    dialog.get_by_label("Type").fill("b0wrong0")
    dialog.get_by_role("button", name="Mark lost").click()
    expect(dialog).to_be_visible()
    dialog.get_by_label("Type").fill(key[:8])
    dialog.get_by_role("button", name="Mark lost").click()
    expect(dialog).to_be_visible()
    _confirm(page, "Mark lost", "host burnt")
    page.goto(desk.at(f"/runs/{key}"))
    expect(page.locator("#p-head")).to_contain_text("worker_lost")
    expect(page.locator("#p-failure")).to_contain_text("the effect of unfinished tool calls is unknown")


def test_the_command_that_starts_a_run_again_is_copied(open_page, desk: Desk):
    run = desk.start("answers")
    run.recorded()
    page = open_page(
        "operator", f"/runs/{run.key}?tab=input", permissions=["clipboard-read", "clipboard-write"]
    )
    page.get_by_text("Start it again with curl").click()
    page.get_by_role("button", name="copy as curl").click()
    expect(page.get_by_role("button", name="copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("curl -N ")
    assert f"{run.run_id}-again" in copied


def test_a_viewer_sees_why_nothing_can_be_done_and_is_refused(open_page, desk: Desk):
    run = desk.start("says_nothing").running()
    page = open_page("viewer", f"/runs/{run.key}")
    expect(page.get_by_role("button", name="Cancel")).to_be_disabled()
    expect(page.locator("#p-head")).to_contain_text("needs the role operator")
    expect(page.locator("#p-events")).to_contain_text("hidden, ")
    assert "going to be quiet" not in page.content()
    answer = page.goto(desk.at(f"/runs/{run.key}/cancel"))
    assert answer.status == 403
    token = page.locator("input[name=csrf]").first.get_attribute("value")
    posted = page.request.post(
        desk.at(f"/runs/{run.key}/cancel"), form={"csrf": token}, headers={"Origin": desk.at("")[:-4]}
    )
    assert posted.status == 403
    assert "cancel_requested_at" not in run.record()
    entries = desk.stack.store.audit.of_run(run.key)
    assert [(entry["by"], entry["result"]) for entry in entries] == [("viewer", "refused")]


def test_everything_works_without_a_script(open_page, desk: Desk):
    run = desk.start("says_nothing").running()
    page = open_page("operator", "/runs?agent=says_nothing&status=running", java_script_enabled=False)
    page.get_by_role("link", name=run.run_id).click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_label("Why").fill("no script")
    page.get_by_role("button", name="Cancel the run").click()
    page.wait_for_url(desk.at(f"/runs/{run.key}"))
    expect(page.locator(".notice")).to_contain_text("asked to stop")
    assert run.recorded()["status"] == "cancelled"


def test_new_runs_wait_behind_a_link_and_rows_change_where_they_are(open_page, desk: Desk):
    run = desk.start("waits", seconds=100).running()
    page = open_page("operator", "/runs?agent=waits")
    _live(page)
    first = page.locator("#p-rows tr").first
    expect(first).to_contain_text(run.run_id)
    newer = desk.start("waits", seconds=100).running()
    expect(page.get_by_role("link", name="1 new run, show")).to_be_visible()
    assert run.cancel().is_success
    expect(first).to_contain_text("cancelled")
    expect(first).to_contain_text(run.run_id)
    page.get_by_role("link", name="1 new run, show").click()
    expect(page.locator("#p-rows tr").first).to_contain_text(newer.run_id)


def test_events_of_a_live_run_are_followed_and_an_opened_row_stays_open(open_page, desk: Desk):
    run = desk.start("counts", deltas=600, pause=0.1).running()
    page = open_page("operator", f"/runs/{run.key}")
    _live(page)
    row = page.locator("table.events tr.of-message")
    row.locator("summary").click()
    before = int(row.locator("td.num").nth(1).inner_text())
    wait_for(lambda: int(row.locator("td.num").nth(1).inner_text()) > before + 5, 10)
    expect(row.locator("details")).to_have_attribute("open", "")
    assert run.cancel().is_success
    expect(page.locator("table.events tr.of-run", has_text="Run finished")).to_be_visible()


def test_the_keyboard_is_enough(open_page, desk: Desk):
    run = desk.start("says_nothing").running()
    page = open_page("operator")
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url(desk.at("/runs"))
    page.keyboard.press("/")
    page.keyboard.type(run.run_id)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"q={run.run_id}"))
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_role("button", name="Cancel ticked (1)")).to_be_visible()
    page.locator(f"#r-{run.key} a.run").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(desk.at(f"/runs/{run.key}"))
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("c")
    expect(page.locator("#dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Space")
    expect(page.get_by_label("Why")).to_be_focused()
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    expect(page.locator("#p-head")).to_contain_text("cancel requested")


def test_a_paused_intake_is_said_on_every_page(open_page, desk: Desk):
    page = open_page("admin")
    other = open_page("viewer")
    _live(other)
    page.goto(desk.at("/queues"))
    page.get_by_role("button", name="Pause intake").click()
    _confirm(page, "Pause", "deploy")
    expect(other.locator("#p-banner")).to_contain_text("The intake is paused by admin")
    page.get_by_role("button", name="Resume").click()
    _confirm(page, "Resume")
    expect(other.locator("#p-banner")).to_have_text("")


def test_a_page_says_when_it_is_not_live_and_comes_back(open_page, desk: Desk):
    page = open_page("viewer")
    _live(page)
    web = desk.stack.web
    port = desk.stack.port
    web.kill()
    page.wait_for_selector("#live[data-state=reconnecting]")
    desk.stack.start_web("gunicorn", port=port)
    _live(page)


def test_where_streams_do_not_get_through_the_page_polls(open_page, desk: Desk):
    page = open_page(None)
    page.route("**/ops/stream*", lambda route: route.fulfill(status=502, body="no streams here"))
    page.goto(desk.at("/sign-in"))
    page.get_by_label("Token").fill(desk.keys["viewer"])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_selector("#live[data-state=polling]")
    run = desk.start("says_nothing")
    expect(_row(page, run)).to_contain_text("stalled", timeout=15_000)
