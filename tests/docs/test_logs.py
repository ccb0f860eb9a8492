"""Every line that the code can write is in the docs with its level and fields, and nothing else is."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("shared", "worker", "web")
LEVELS = {"debug", "info", "warning", "error", "exception"}

PAGE = (ROOT / "docs" / "logs.md").read_text()
ROW = re.compile(r"^\| `([a-z_]+\.[a-z_]+)` \| (\w+) \| (.*?) ?\| (.+) \|$", re.MULTILINE)
CONTEXT = {"run", "agent", "attempt", "request_id"}
"""What a block that is around a line may add."""

ADDED = {
    "run.ended": {"code", "incident", "detail"},
    "operator.acted": {"run", "bulk", "worker", "filter"},
    "audit.not_written": {"run", "bulk", "worker", "filter"},
}
"""Fields that are given as a mapping, which its line does not spell out."""

STATES = {"unavailable", "unreadable", "unusable", "unknown", "unfit", "ready", "draining"}
IRREGULAR = {"lost", "left", "let", "told", "heard", "written"}


def calls() -> Iterator[tuple[str, str, set[str], str]]:
    """Event name, level, fields, and where, of each logging call."""
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            holder, level = node.func.value, node.func.attr
            if not (isinstance(holder, ast.Name) and holder.id == "log" and level in LEVELS):
                continue
            where = f"{path.relative_to(ROOT)}:{node.lineno}"
            for name in names_in(node.args[0], where):
                fields = {keyword.arg for keyword in node.keywords if keyword.arg} - {"exc_info"}
                if any(keyword.arg is None for keyword in node.keywords):
                    assert name in ADDED, where
                yield name, "error" if level == "exception" else level, fields, where


def names_in(argument: ast.expr, where: str) -> list[str]:
    if isinstance(argument, ast.IfExp):
        return [*names_in(argument.body, where), *names_in(argument.orelse, where)]
    assert isinstance(argument, ast.Constant), f"{where}: an event name is written out"
    assert isinstance(argument.value, str)
    return [argument.value]


def logged() -> dict[str, tuple[set[str], set[str]]]:
    """Event name -> levels and fields over all its calls."""
    found: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for name, level, fields, _ in calls():
        found[name][0].add(level)
        found[name][1].update(fields | ADDED.get(name, set()))
    # Written by the handler of libraries' lines, at the library's own level.
    found["library.logged"] = ({"any"}, {"text"})
    return found


CODE = logged()
DOCUMENTED = {
    name: (level, set(re.findall(r"`(\w+)`", fields))) for name, level, fields, _ in ROW.findall(PAGE)
}


def test_the_page_lists_every_event_and_no_other():
    assert sorted(DOCUMENTED) == sorted(CODE)


def test_an_event_is_listed_once_and_in_order():
    names = [name for name, *_ in ROW.findall(PAGE)]
    assert names == sorted(set(names))


@pytest.mark.parametrize("name", sorted(CODE))
def test_the_page_tells_an_events_level_and_fields(name: str):
    level, fields = DOCUMENTED[name]
    assert CODE[name][0] == {level}
    assert fields - CONTEXT == CODE[name][1] - CONTEXT


@pytest.mark.parametrize("name", sorted(CODE))
def test_a_name_says_what_happened_or_which_state_began(name: str):
    words = name.partition(".")[2].split("_")
    assert any(word.endswith("ed") or word in STATES | IRREGULAR for word in words), name


def test_an_event_is_never_built_from_parts():
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        assert not re.search(r"\blog\.\w+\(f?\"[^\"]*\{", path.read_text()), path


def test_no_line_carries_what_was_said():
    for name, _, fields, where in calls():
        assert not fields & {"message", "text", "body", "prompt", "arguments", "token", "password"}, (
            name,
            where,
        )
