"""Joins of random runs: whatever was said, a client that joins ends like one that never left."""

from __future__ import annotations

import copy

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.protocol import events as ag
from shared.protocol.fold import Fold
from tests.client_rules import Client
from tests.unit.random_runs import Author, same
from worker.agents.testing import run_input

HISTORY = [
    {"id": "m1", "role": "user", "content": "hello"},
    {
        "id": "p1",
        "role": "assistant",
        "toolCalls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"id": "r1", "role": "reasoning", "content": "so"},
    {"id": "t1", "role": "tool", "content": "r", "toolCallId": "c1"},
]


@pytest.mark.parametrize("restates", [False, True])
@settings(max_examples=60, deadline=None)
@given(random=st.randoms(use_true_random=False), length=st.integers(0, 60))
def test_a_join_at_any_moment_of_any_run_leads_to_the_same_end(restates, random, length):
    history = HISTORY[: random.randrange(5)]
    run = run_input(messages=history, state={"a": {}})
    events = Author(random, run.messages, restates=restates).run(length)
    start = Client(history, {"a": {}})
    whole = copy.deepcopy(start).run(events)
    fold = Fold(run)
    for k, event in enumerate(events, start=1):
        fold.take_json(orjson.dumps(event))
        prelude = [orjson.loads(ag.dump(one)) for one in fold.prelude()]
        for j in {0, random.randrange(k + 1), k}:
            client = copy.deepcopy(start).run(events[:j])
            client.run([*prelude, *events[k:]])
            assert same(client.messages, whole.messages), (j, k, client.messages, whole.messages)
            assert client.state == whole.state, (j, k)
