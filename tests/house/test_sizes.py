"""Modules and functions stay small enough to be read in one go."""

from __future__ import annotations

import ast
import statistics

MODULE_LINES = 400
MEDIAN_LINES = 120
FUNCTION_LINES = 50
LONGEST_FUNCTION = 80


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement after the docstring to the last."""
    statements = (
        function.body[1:] if ast.get_docstring(function) and len(function.body) > 1 else function.body
    )
    return (function.end_lineno or 0) - statements[0].lineno + 1


def test_no_module_of_the_product_is_longer_than_400_lines(modules, texts):
    lines = {path: len(texts[path].splitlines()) for path in modules}
    assert {path: count for path, count in lines.items() if count > MODULE_LINES} == {}


def test_the_median_module_of_the_product_has_at_most_120_lines(modules, texts):
    assert statistics.median(len(texts[path].splitlines()) for path in modules) <= MEDIAN_LINES


def test_99_of_100_functions_have_at_most_50_lines_and_none_has_more_than_80(modules):
    lengths = {
        f"{path}:{node.lineno} {node.name}": body_lines(node)
        for path, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    long = {name: count for name, count in lengths.items() if count > FUNCTION_LINES}
    assert len(long) <= len(lengths) / 100, long
    assert {name: count for name, count in long.items() if count > LONGEST_FUNCTION} == {}
