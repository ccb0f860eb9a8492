"""What was copied from elsewhere is unchanged, licensed, and listed."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

VENDOR = Path(__file__).parents[2] / "web" / "static" / "vendor"
LISTED = tomllib.loads((VENDOR / "VENDOR.toml").read_text())


@pytest.mark.parametrize("name", sorted(LISTED))
def test_vendored_files_have_the_hashes_that_are_written_down(name):
    entry = LISTED[name]
    folder = VENDOR / entry["folder"]
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert found == entry["files"]


@pytest.mark.parametrize("name", sorted(LISTED))
def test_vendored_files_come_with_their_licence_and_their_version_in_the_name(name):
    entry = LISTED[name]
    assert "LICENSE" in entry["files"]
    assert entry["license"]
    assert entry["folder"].endswith(f"-{entry['version']}")


def test_nothing_is_vendored_that_is_not_listed():
    folders = {path.name for path in VENDOR.iterdir() if path.is_dir()}
    assert folders == {entry["folder"] for entry in LISTED.values()}


def test_pages_load_nothing_from_elsewhere_and_hold_no_inline_style_or_script(texts):
    forbidden = re.compile(
        r"""(src|href)=["']?(https?:)?//|<style|\bstyle=|\son[a-z]+=|hx-on|<script(?![^>]*\bsrc=)|javascript:""",
        re.IGNORECASE,
    )
    found = [
        f"{path}:{number}"
        for path, text in texts.items()
        if path.startswith("web/templates/") or path in {"web/ops/plots.py", "web/ops/wording.py"}
        for number, line in enumerate(text.splitlines(), 1)
        if forbidden.search(line)
    ]
    assert found == []
