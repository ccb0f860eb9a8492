"""The README's section for the night, step by step: its command, then nothing but clicks."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Desk

pytestmark = pytest.mark.usefixtures("calm")

README = Path(__file__).resolve().parents[2] / "README.md"


def _command(desk: Desk) -> str:
    """The section's command, for this server, which asks for a key."""
    section = README.read_text().partition("## When something hangs at night")[2]
    (command,) = re.findall(r"```sh\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    there = command.replace("127.0.0.1:8000", f"127.0.0.1:{desk.stack.port}")
    return there.replace("curl ", f"curl -sf -H 'Authorization: Bearer {desk.keys['admin']}' ", 1)


def _go(page: Any, name: str) -> None:
    page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True).click()


def _say_why(page: Any, why: str, button: str) -> None:
    page.get_by_label("Why").fill(why)
    page.locator("#dialog").get_by_role("button", name=button).click()


def test_the_night_goes_as_the_readme_says(open_page, desk: Desk):
    answer = subprocess.run(_command(desk), shell=True, capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout)["run_id"] == "stuck"
    page = open_page("admin")
    _go(page, "Runs")
    page.get_by_role("link", name="stuck", exact=True).click()
    page.get_by_role("button", name="Cancel", exact=True).click()
    _say_why(page, "rehearsed at night", "Cancel the run")
    expect(page.locator("#p-head")).to_contain_text("cancel requested")
    expect(page.locator("#p-head .state").first).to_have_text("cancelling")
    _go(page, "Overview")
    row = page.locator("table.attention tr", has_text="stuck")
    expect(row).to_contain_text("cancelling")
    expect(row).to_contain_text("past the grace")
    row.get_by_role("button", name="Force stop").click()
    expect(page.locator("#dialog")).to_contain_text("An async agent's task is cancelled at once.")
    _say_why(page, "it hears nothing", "Force stop")
    expect(page.locator(".notice")).to_contain_text("The run is ended as cancelled")
    _go(page, "Audit")
    for act, why in (("force stop", "it hears nothing"), ("cancel", "rehearsed at night")):
        entry = page.locator("#p-audit tr", has_text=why)
        expect(entry).to_contain_text(re.compile(act, re.IGNORECASE))
        expect(entry).to_contain_text("admin")
    expect(page.get_by_role("link", name=re.compile("CSV"))).to_be_visible()
    _go(page, "Workers")
    expect(page.locator("#p-workers")).to_contain_text(re.compile("deaf async agents? goe?s? on"))
