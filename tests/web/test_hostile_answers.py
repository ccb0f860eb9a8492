"""Answers and response schemas made to hold up a web process, or to slip past the check."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.web.played_worker import Caller, PlayedWorker, key_of, problem_of
from tests.web.test_resumes import answer, next_run, pause, question
from web.api.response_schema import LARGEST_SCHEMA, Judge, Misfit, TooMuch, Unusable

__all__ = ["pause"]

SECONDS = 2.0
"""Of CPU: what takes seconds or for ever without a bound, with room for a slow machine."""


def doubled(levels: int) -> dict[str, Any]:
    """A schema whose check doubles with each level, whatever the answer is."""
    names = range(1, levels + 1)
    defs: dict[str, Any] = {f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at - 1}"}] * 2} for at in names}
    return {"$defs": defs | {"d0": {"type": "object"}}, "$ref": f"#/$defs/d{levels}"}


def tree(depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {"name": 5}
    for _ in range(depth):
        made = {"children": [made]}
    return made


TREE = {"properties": {"name": {"type": "string"}, "children": {"items": {"$ref": "#"}}}}


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        ({"items": {"type": "string"}}, [1] * 300_000),
        ({"items": {"anyOf": [*[{"type": "string"}] * 10, {"type": "integer"}]}}, [1] * 15_000),
        ({"properties": {"text": {"type": "string"}}}, {"text": "x" * 7_000_000}),
        ({"additionalProperties": {"type": "string"}}, {str(number): 1 for number in range(100_000)}),
    ],
    ids=["values", "steps", "text", "names"],
)
def test_an_answer_that_costs_too_much_is_refused_soon(schema: dict[str, Any], given: Any):
    began = time.process_time()
    with pytest.raises(TooMuch):
        Judge().misfit(schema, given)
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        ({"uniqueItems": True}, [{"a": number} for number in range(3_000)]),
        ({"pattern": "^(a+)+$"}, "a" * 40 + "b"),
        ({"patternProperties": {"^(a+)+$": False}}, {"a" * 40 + "b": 1}),
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": True}, {"a" * 40 + "b": 1}),
        (
            {
                "properties": {
                    "a": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "^(a+)+$"}
                }
            },
            {"a": "a" * 40 + "b"},
        ),
        (
            {
                "const": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "^(a+)+$"},
                "properties": {"a": {"$ref": "#/const"}},
            },
            {"a": "a" * 40 + "b"},
        ),
    ],
    ids=["unique", "pattern", "names", "other-names", "inner-dialect", "dialect-in-a-value"],
)
def test_what_grew_faster_than_the_answer_does_so_no_more(schema: dict[str, Any], given: Any):
    began = time.process_time()
    Judge().misfit(schema, given)
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        doubled(40),
        {"$schema": 5},
        {"enum": ["x" * LARGEST_SCHEMA]},
        {"patternProperties": {"a": {}}, "unevaluatedProperties": False},
        [1],
        {"$ref": "https://example.org/schema"},
    ],
    ids=["loop", "doubling", "dialect", "large", "mixed", "list", "elsewhere"],
)
def test_a_schema_that_comes_to_no_end_is_unusable_and_found_out_once(schema: Any):
    began = time.process_time()
    for _ in range(20):
        with pytest.raises(Unusable):
            Judge().misfit(schema, {})
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        ({"pattern": "^(?=a)(a+)+$"}, "a" * 40 + "b"),
        ({"items": {"pattern": r"^(a|b)\1(a+)+$"}}, ["aa" + "a" * 40 + "b"]),
        ({"patternProperties": {"^(?=a)(a+)+$": {}}}, {"a" * 40 + "b": 1}),
        (
            {"patternProperties": {"^(?=a)(a+)+$": {}}, "additionalProperties": False},
            {"a" * 40 + "b": 1},
        ),
    ],
    ids=["look-around", "back-reference", "names", "other-names"],
)
def test_a_pattern_without_linear_time_is_never_matched(schema: dict[str, Any], given: Any):
    began = time.process_time()
    with pytest.raises(Unusable, match="a pattern without linear time"):
        Judge().misfit(schema, given)
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize("depth", [1, 20, 90])
def test_depth_does_not_let_an_answer_past_its_schema(depth: int):
    try:
        assert Judge().misfit(TREE, tree(depth)) is not None
    except TooMuch:
        assert depth > 20


def test_all_answers_of_a_request_share_one_bound():
    judge = Judge(most=10)
    for _ in range(5):
        assert judge.misfit({"type": "object", "required": []}, {}) is None
    with pytest.raises(TooMuch):
        judge.misfit({"type": "object"}, {})


@pytest.mark.parametrize(
    ("schema", "given", "misfit"),
    [
        ({"uniqueItems": True}, [1, 1.0], Misfit((), {"uniqueItems": True})),
        ({"uniqueItems": True}, [{"a": 1, "b": []}, {"b": [], "a": 1}], Misfit((), {"uniqueItems": True})),
        ({"uniqueItems": True}, [1, True, "1", [1], {"a": 1}, None, 0, False], None),
        ({"pattern": "b"}, "abc", None),
        (
            {"patternProperties": {"^a": {"type": "integer"}}},
            {"a1": "x"},
            Misfit(("a1",), {"type": "integer"}),
        ),
        (
            {"patternProperties": {"^a": {}}, "properties": {"b": {}}, "additionalProperties": False},
            {"a1": 1, "b": 2},
            None,
        ),
        (
            {"patternProperties": {"^a": {}}, "additionalProperties": False},
            {"a1": 1, "b": 2},
            Misfit((), {"additionalProperties": False}),
        ),
        (
            {"patternProperties": {"^a": {}}, "additionalProperties": {"type": "string"}},
            {"a1": 1, "b": 2},
            Misfit(("b",), {"type": "string"}),
        ),
        (False, 1, Misfit((), False)),
        ({"const": {"$schema": "a"}}, {"$schema": "a"}, None),
        ({"enum": [{"$schema": "a"}]}, {}, Misfit((), {"enum": [{"$schema": "a"}]})),
    ],
)
def test_the_bounded_rules_judge_as_json_schema_does(schema: Any, given: Any, misfit: Misfit | None):
    assert Judge().misfit(schema, given) == misfit


def test_the_refusal_says_that_it_was_too_much(caller: Caller, pause):
    pause(question(responseSchema={"items": {"type": "integer"}}))
    problem = problem_of(caller.start(next_run(answer(payload=[1] * 50_000))), 400, "INVALID_INPUT")
    assert problem["field"] == "resume.0.payload"
    assert "too large or too deep" in problem["detail"]
    assert caller.start_in_background(next_run(answer(status="cancelled"))).status_code == 202


def test_a_refusal_names_a_few_of_many_interrupts_in_words_and_all_of_them_in_data(caller: Caller, pause):
    pause(*(question(f"q{number:03}") for number in range(300)))
    problem = problem_of(caller.start(next_run()), 409, "INTERRUPT_OPEN")
    assert len(problem["interrupts"]) == 300
    assert problem["detail"].endswith("'q009' and 290 more.")
    assert len(problem["detail"]) < 300


def test_thousands_of_answers_are_taken_in_time(caller: Caller, worker: PlayedWorker, pause):
    shape = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    pause(*(question(f"q{number}", responseSchema=shape) for number in range(500)))
    body = next_run(*(answer(f"q{number}", {"a": 1}) for number in range(3_000)))
    began = time.process_time()
    assert caller.start_in_background(body).status_code == 202
    assert time.process_time() - began < SECONDS
    assert worker.claim(key_of("next")).input.count(b"interruptId") == 500
