"""Patches of a shared state: right for every pair of values, and found in time linear in their size."""

from __future__ import annotations

import random
import time
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.protocol.patch import apply_patch
from worker.difference import canonical, difference
from worker.publication import Publication

LEAVES = st.sampled_from([None, True, False, 0, 1, 1.0, "", "a", "~/"])
NAMES = st.sampled_from(["a", "b", "~", "/", "", "~1", "0"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=50, deadline=None)
@given(VALUES, VALUES)
def test_a_difference_leads_from_one_value_to_the_other(before: Any, now: Any):
    found = difference(before, now)
    assert canonical(apply_patch(before, found)) == canonical(now)
    assert (found == []) == (canonical(before) == canonical(now))


@settings(max_examples=50, deadline=None)
@given(VALUES, VALUES)
def test_another_library_gets_there_too(before: Any, now: Any):
    document = {"value": before}
    assert jsonpatch.apply_patch(document, difference(document, {"value": now})) == {"value": now}


@pytest.mark.parametrize(
    ("change", "operations"),
    [
        (lambda items: items.insert(0, "new"), 1),
        (lambda items: items.append("new"), 1),
        (lambda items: items.pop(100), 1),
        (lambda items: items.remove(7) or items.remove(150), 2),
        (lambda items: items.__setitem__(5, "new"), 1),
        (lambda items: items.insert(0, items.pop()), 2),
    ],
)
def test_a_small_change_of_a_list_is_a_small_patch(change: Any, operations: int):
    before, now = list(range(200)), list(range(200))
    change(now)
    assert len(difference(before, now)) == operations


SIZE = 8_000
NUMBERS = list(range(SIZE))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (NUMBERS, NUMBERS[::2]),
        (NUMBERS, random.Random(1).sample(NUMBERS, SIZE)),
        (NUMBERS, [-1, *NUMBERS]),
        ({str(one): one for one in NUMBERS}, {f"k{one}": one for one in NUMBERS}),
        ([{"id": one} for one in NUMBERS], [{"id": one, "new": 1} for one in NUMBERS]),
    ],
    ids=["halved", "shuffled", "longer", "renamed", "widened"],
)
def test_a_large_state_does_not_hold_up_the_loop(before: Any, now: Any):
    publication = Publication()
    first = publication.change_to({"items": before})
    assert first is not None
    publication.text = first.text
    began = time.process_time()
    assert publication.change_to({"items": now}) is not None
    # Searched for the shortest patch, halving takes six seconds.
    assert time.process_time() - began < 2


def test_a_place_that_the_clients_library_refuses_is_sent_whole():
    publication = Publication()
    before = {"much": "text " * 50, "inner": {"a": 1}}
    publication.text = publication.change_to(before).text  # type: ignore[union-attr]  # the first is one
    change = publication.change_to(before | {"__proto__": 1})
    assert change is not None
    assert change.whole
