"""The stock client from npm joins recorded runs, and agrees with what the tests believe of it."""

from __future__ import annotations

import random

import orjson
import pytest

from shared.protocol import events as ag
from shared.protocol import sse
from shared.protocol.fold import prelude_frames
from tests.client_rules import Client
from tests.stock_client import ask, needs_client
from tests.unit.random_runs import Author, same
from tests.unit.rich_runs import HISTORY, QUIET, all_runs
from worker.agents.testing import run_input

pytestmark = needs_client


def recorded(name, given, events, choices):
    """A run as the client's program wants it; every prefix is joined, by clients that left at two moments."""
    frames = [sse.frame(number, orjson.dumps(event)) for number, event in enumerate(events, start=1)]
    preludes = [prelude_frames(given, frames[:k])[0] for k in range(1, len(frames) + 1)]
    # Whoever has the terminal event does not come back.
    last = len(frames) - 1
    joins = {
        (j, k) for k in range(1, last + 2) for j in (0, min(k, last), choices.randrange(min(k, last) + 1))
    }
    document = orjson.loads(ag.dump_input(given))
    return {
        "name": name,
        "messages": document["messages"],
        "state": document.get("state"),
        "frames": [frame.decode() for frame in frames],
        "preludes": [[frame.decode() for frame in prelude] for prelude in preludes],
        "joins": sorted(joins),
    }


def followed(runs):
    told = ask("apply.mjs", {"runs": runs}, seconds=100)
    return told["runs"]


@pytest.fixture(scope="module")
def results():
    choices = random.Random(7)
    runs = [recorded(name, given, events, choices) for name, (given, events) in all_runs().items()]
    return {result["name"]: result for result in followed(runs)}


@pytest.mark.parametrize("name", all_runs())
def test_the_stock_client_ends_the_same_wherever_it_left_and_came_back(results, name):
    result = results[name]
    assert result["joins"] >= 2
    assert result["failures"] == []


@pytest.mark.parametrize("name", QUIET)
def test_neither_staying_nor_joining_makes_the_stock_client_warn(results, name):
    assert results[name]["warnings"] == []


@pytest.mark.parametrize("name", all_runs())
def test_the_rules_in_the_tests_are_those_of_the_stock_client(results, name):
    given, events = all_runs()[name]
    document = orjson.loads(ag.dump_input(given))
    client = Client(document["messages"], document.get("state")).run(events)
    assert client.messages == results[name]["messages"]
    assert client.state == results[name]["state"]
    assert len(client.warnings) == len(results[name]["warnings"])


def test_the_stock_client_joins_random_runs_too():
    runs = []
    for seed in range(10):
        choices = random.Random(seed)
        given = run_input(messages=HISTORY[:2], state={"a": {}})
        events = Author(choices, given.messages, restates=seed % 2 == 1).run(30)
        runs.append(recorded(str(seed), given, events, choices))
    for result in followed(runs):
        assert result.get("error") is None
        for failure in result["failures"]:
            assert "error" not in failure, failure
            assert set(failure["warnings"]) <= set(result["warnings"]), failure
            assert failure["state"] == result["state"], failure
            assert same(failure["messages"], result["messages"]), failure
