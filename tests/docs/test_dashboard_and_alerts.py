"""The Grafana board and the alert rules ask for what ``/metrics`` really serves."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.runs.lifecycle import Status, is_terminal
from shared.runs.outcome import FailureCode
from shared.store.sweep import Swept
from web.ops.metric import METRICS

DOCS = Path(__file__).parents[2] / "docs"
BOARD = json.loads((DOCS / "grafana" / "outlast.json").read_text())
RULES = [
    rule for group in yaml.safe_load((DOCS / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
EXPRESSIONS = QUERIES + [(rule["alert"], rule["expr"]) for rule in RULES]

SELECTOR = re.compile(r"\b(outlast_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!=|!~|=)"([^"]*)"')
GROUPING = re.compile(r"\b(?:by|without) \(([^)]*)\)")

VALUES = {
    "outcome": {str(status) for status in Status if is_terminal(status)},
    "code": set(map(str, FailureCode)),
    "state": {"ready", "waiting", "running", "cancelling"},
    "kind": {"orphaned", "cancelling", "stalled", "queued_long"},
    "act": {act.name for act in fields(Swept)},
}


def metric_of(name: str) -> Any:
    """The metric that a series belongs to; a histogram is asked for by its parts only."""
    if name in METRICS:
        assert METRICS[name].kind != "histogram", name
        return METRICS[name]
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    assert base in METRICS, f"{name} is not served"
    assert METRICS[base].kind == "histogram", name
    return METRICS[base]


def labels_of(name: str) -> set[str]:
    return {*metric_of(name).labels, *({"le"} if name.endswith("_bucket") else ())}


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_every_name_and_label_is_served(where: str, expression: str):
    series = SELECTOR.findall(expression)
    assert series, where
    known: set[str] = set()
    for name, matchers in series:
        labels = labels_of(name)
        known |= labels
        parsed = MATCHER.findall(matchers)
        assert ",".join("".join((a, b, f'"{c}"')) for a, b, c in parsed) == matchers
        for label, _, value in parsed:
            assert label in labels, (name, label)
            if label in VALUES and "$" not in value:
                assert set(value.split("|")) <= VALUES[label], value
    for names in GROUPING.findall(expression):
        assert {name.strip() for name in names.split(",")} <= known, names
    for opening, closing in ("()", "{}", "[]"):
        assert expression.count(opening) == expression.count(closing)


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_numbers_that_every_process_tells_are_never_added_up_over_processes(where: str, expression: str):
    """``sum`` only stands around ``max by`` over all labels; else two scraped processes would count twice."""
    if where == "OutlastNotScraped":
        return
    for before, _, name in re.findall(
        r"((?:\w+ by \([^)]*\) |\w+)\((?:\w+\()?)(())?(?=outlast_)", expression
    ):
        assert before.startswith(("max", "absent")), (before, name)


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_rates_are_taken_of_counters_and_of_nothing_else(where: str, expression: str):
    for function, name in re.findall(r"\b(rate|increase)\((outlast_\w+)", expression):
        assert metric_of(name).kind != "gauge", (function, name)
    for name, matchers in SELECTOR.findall(expression):
        if metric_of(name).kind == "counter":
            assert re.search(rf"(?:rate|increase)\({name}", expression), (name, matchers)


def test_a_misspelled_metric_or_label_would_be_seen():
    with pytest.raises(AssertionError):
        test_every_name_and_label_is_served("x", "max(outlast_queue_deep)")
    with pytest.raises(AssertionError):
        test_every_name_and_label_is_served("x", 'max(outlast_live_runs{status="ready"})')
    with pytest.raises(AssertionError):
        test_every_name_and_label_is_served("x", 'max(outlast_live_runs{state="red"})')
    with pytest.raises(AssertionError):
        test_numbers_that_every_process_tells_are_never_added_up_over_processes(
            "x", "sum(outlast_queue_depth)"
        )


def test_the_board_shows_every_metric():
    asked = {metric_of(name).name for _, expression in QUERIES for name, _ in SELECTOR.findall(expression)}
    # How many streams were opened says nothing that the open ones do not.
    assert asked == set(METRICS) - {"outlast_hub_opened_total"}


def test_legends_name_labels_that_their_query_keeps():
    for panel in PANELS:
        for target in panel["targets"]:
            kept = {
                name.strip() for names in GROUPING.findall(target["expr"])[:1] for name in names.split(",")
            }
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept, panel["title"]


def test_panels_have_a_place_of_their_own():
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for one, other in combinations([panel["gridPos"] for panel in BOARD["panels"]], 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in BOARD["panels"])


def test_provider_timeouts_are_a_series_of_their_own():
    (panel,) = [panel for panel in PANELS if panel["title"] == "Runs per minute by outcome"]
    assert [target["legendFormat"] for target in panel["targets"]] == ["{{outcome}}", "transport_timeout"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_and_where_to_read_what_to_do(rule: dict[str, Any]):
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"page", "warn"}
    assert {"summary", "description", "runbook"} == rule["annotations"].keys()
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^### (\w+)$", (DOCS.parent / page).read_text(), re.MULTILINE)
    assert anchor == rule["alert"].lower()
    assert rule["alert"] in headings


def test_no_heading_is_left_of_an_alert_that_is_gone():
    headings = re.findall(r"^### (Outlast\w+)$", (DOCS / "operations.md").read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in RULES]


def test_every_settings_name_in_alerts_and_runbook_exists():
    from shared.settings import Settings

    known = {f"OUTLAST_{name.upper()}" for name in Settings.model_fields}
    for page in ("alerts.yaml", "operations.md", "observability.md"):
        assert set(re.findall(r"\bOUTLAST_[A-Z_]+\b", (DOCS / page).read_text())) <= known, page
