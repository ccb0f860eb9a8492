"""The page of features names each feature once, and every test on it exists."""

from __future__ import annotations

import ast
import functools
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "features.md"
CASES = ROOT / "tests" / "unit" / "cases"


def ids(letter: str, *spans: tuple[int, int]) -> list[str]:
    return [f"{letter}{number}" for first, last in spans for number in range(first, last + 1)]


CODES = [
    *("PROTOCOL", "SERIALIZATION", "PROTOCOL_VIOLATION", "CANCELLED"),
    *("DISCONNECTED", "EVENT_BUFFER_FULL", "AGENT_ERROR"),
]

ORDER = [
    "after the end",
    "RUN_STARTED",
    "RUN_FINISHED",
    "RUN_ERROR",
    "TEXT_MESSAGE_START",
    "TEXT_MESSAGE_CONTENT / END",
    "TEXT_MESSAGE_CHUNK",
    "REASONING_START / END",
    "REASONING_MESSAGE_START / CONTENT / END",
    "REASONING_MESSAGE_CHUNK",
    "REASONING_ENCRYPTED_VALUE",
    "TOOL_CALL_START",
    "TOOL_CALL_ARGS / END",
    "TOOL_CALL_CHUNK",
    "TOOL_CALL_RESULT",
    "STEP_STARTED / FINISHED",
    "SUBAGENT_STARTED",
    "SUBAGENT_FINISHED / ERROR",
    "ACTIVITY_SNAPSHOT",
    "ACTIVITY_DELTA",
    "MESSAGES_SNAPSHOT",
    "STATE / CUSTOM / RAW",
    "not checked",
    "precedence",
    "refusals",
    "questions",
    "at the client",
]

HTTP = [
    *("200", "400", "415", "413", "406", "406 first", "405"),
    *("Accept", "headers", "keep-alive", "frames", "input", "frame size"),
]

FEATURES = [
    *ids("A", (1, 16), (20, 27), (30, 32)),
    *ids("B", (30, 37), (40, 43), (50, 52)),
    *(f"error {code}" for code in CODES),
    *(f"order {event}" for event in ORDER),
    *(f"http {answer}" for answer in HTTP),
    *ids("R", (1, 25)),
    *ids("D", (1, 15)),
]

ROW = re.compile(r"^\| ((?:[ABRD]\d+|(?:error|order|http) [^|]+?)) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)(?:\[(.+?)\])?`")
EXCUSE = "Does not apply: "

ROWS = [(found[1], found[2], found[3]) for found in ROW.finditer(PAGE.read_text())]


@functools.cache
def functions_in(path: str) -> frozenset[str]:
    """Names of the test functions of a file, whatever fixtures they take."""
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


@functools.cache
def case_names() -> frozenset[str]:
    return frozenset(case["name"] for file in CASES.glob("*.json") for case in json.loads(file.read_text()))


def test_every_feature_stands_on_the_page_once_and_nothing_else_does():
    assert [found for found, _, _ in ROWS] == FEATURES


def test_every_line_of_the_tables_is_read():
    heads = ("| id |", "|---")
    lines = [
        line for line in PAGE.read_text().splitlines() if line.startswith("|") and not line.startswith(heads)
    ]
    assert len(lines) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_feature_is_proved_by_tests_that_exist_or_excused_with_a_reason(row):
    _, meaning, proof = row
    assert meaning.strip()
    for part in proof.split("<br>"):
        if part.startswith(EXCUSE):
            assert len(part) > len(EXCUSE) + 20
            continue
        found = TEST.fullmatch(part.strip())
        assert found, part
        path, name, case = found.groups()
        assert name in functions_in(path), part
        assert case is None or case in case_names(), part
