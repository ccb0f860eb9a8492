"""What no file of the project may hold, and what some must."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest

LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-test.lock")

# Written in parts, or this file would hold them itself.
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("debian", "org"),
        ("unpkg", "com"),
        ("jsdelivr", "net"),
        ("cdnjs", ""),
    )
]
LATER = re.compile(
    r"\b(" + "|".join("".join(parts) for parts in (("TO", "DO"), ("FIX", "ME"), ("XX", "X"))) + r")\b"
)
MACHINE_PATHS = re.compile(r"(?<![\w./$}])/(work|root|Users)/[\w.]|(?<![\w./$}])/home/[a-z]")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def lines_with(texts, pattern):
    return [
        f"{path}:{number}"
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_everything_and_holds_no_address(name, texts):
    requirements = [line for line in texts[name].splitlines() if line and not line.startswith("#")]
    assert all(re.match(r"[a-z0-9._-]+==\S+", line) for line in requirements)
    assert "://" not in texts[name]
    assert "--" not in texts[name]


def test_npm_locks_hold_no_address_of_a_package(texts):
    for path, text in texts.items():
        if path.endswith("package-lock.json"):
            assert '"resolved"' not in text, path


def test_no_registry_is_named_anywhere(texts):
    assert lines_with(texts, re.compile("|".join(map(re.escape, REGISTRIES)))) == []


def test_nothing_is_left_for_later(texts):
    assert lines_with(texts, LATER) == []


def test_no_path_of_one_persons_machine_is_written_down(texts):
    assert lines_with(texts, MACHINE_PATHS) == []


def test_flask_finds_the_app_and_serves_the_developer_without_keys(root):
    assert (root / ".flaskenv").read_text() == "FLASK_APP=web\nOUTLAST_AUTH=none\n"


def test_authentication_is_off_in_no_file_that_deploys(texts):
    deploying = ("compose.yaml", "Dockerfile", "gunicorn.conf.py", ".dockerignore")
    assert [path for path in deploying if "OUTLAST_AUTH" in texts[path]] == []


def test_every_link_in_a_page_to_a_file_resolves(root, texts):
    broken = []
    for path, text in texts.items():
        if not path.endswith(".md"):
            continue
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for match in LINK.finditer(prose):
            target = (match[1] or match[2]).split("#")[0]
            if not target or "://" in target or target.startswith("mailto:"):
                continue
            if not (root / PurePosixPath(path).parent / target).exists():
                broken.append(f"{path} -> {target}")
    assert broken == []


def test_what_runs_is_executable(root):
    assert (root / ".ci/run").stat().st_mode & 0o111
