"""JSON Patch as the official client applies it."""

from __future__ import annotations

import copy

import pytest

from shared.protocol.patch import PatchError, apply_patch

DOCUMENT = {"a": {"b": [1, 2, 3], "c~d/e": None}, "n": 1, "": "empty"}


def add(path, value):
    return {"op": "add", "path": path, "value": value}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (add("/x", None), {**DOCUMENT, "x": None}),
        (add("", [1]), [1]),
        (add("/a/b/-", 4), {**DOCUMENT, "a": {"b": [1, 2, 3, 4], "c~d/e": None}}),
        (add("/a/b/3", 4), {**DOCUMENT, "a": {"b": [1, 2, 3, 4], "c~d/e": None}}),
        (add("/a/b/0", 0), {**DOCUMENT, "a": {"b": [0, 1, 2, 3], "c~d/e": None}}),
        (
            {"op": "replace", "path": "/a/c~0d~1e", "value": 5},
            {**DOCUMENT, "a": {"b": [1, 2, 3], "c~d/e": 5}},
        ),
        ({"op": "replace", "path": "", "value": 5}, 5),
        ({"op": "remove", "path": "/a"}, {"n": 1, "": "empty"}),
        ({"op": "remove", "path": ""}, None),
        ({"op": "remove", "path": "/"}, {"a": DOCUMENT["a"], "n": 1}),
        (
            {"op": "copy", "from": "/n", "path": "/a/b/0"},
            {**DOCUMENT, "a": {"b": [1, 1, 2, 3], "c~d/e": None}},
        ),
        (
            {"op": "copy", "from": "/n", "path": "/a/b/9"},
            {**DOCUMENT, "a": {"b": [1, 2, 3, 1], "c~d/e": None}},
        ),
        ({"op": "move", "from": "/n", "path": "/a"}, {"a": 1, "": "empty"}),
        ({"op": "move", "from": "/a", "path": ""}, DOCUMENT["a"]),
        ({"op": "test", "path": "/a/b", "value": [1, 2.0, 3]}, DOCUMENT),
    ],
)
def test_an_operation_applies_and_leaves_the_original_alone(operation, expected):
    document = copy.deepcopy(DOCUMENT)
    assert apply_patch(document, [operation]) == expected
    assert document == DOCUMENT


@pytest.mark.parametrize(
    "operation",
    [
        add("/x/y", 1),
        add("/n/y", 1),
        add("/a/b/4", 1),
        add("/a/b/x", 1),
        add("/a/b/-/x", 1),
        add("/__proto__/x", 1),
        {"op": "replace", "path": "/x", "value": 1},
        {"op": "replace", "path": "/a/b/-", "value": 1},
        {"op": "replace", "path": "/a/b/00", "value": 1},
        {"op": "remove", "path": "/a/b/3"},
        {"op": "remove", "path": "/n/x"},
        {"op": "copy", "from": "/x", "path": "/y"},
        {"op": "move", "from": "/a", "path": "/a/b/0"},
        {"op": "move", "from": "", "path": "/x"},
        {"op": "test", "path": "/n", "value": True},
        {"op": "test", "path": "/n", "value": "1"},
        {"op": "test", "path": "/x", "value": None},
        {"op": "wish", "path": "/x"},
    ],
)
def test_an_operation_that_does_not_apply_is_refused(operation):
    document = copy.deepcopy(DOCUMENT)
    with pytest.raises(PatchError):
        apply_patch(document, [add("/first", 1), operation])
    assert document == DOCUMENT
