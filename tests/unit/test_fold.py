"""The snapshot with which a joining client is answered, for every moment of runs that show everything."""

from __future__ import annotations

import time
from typing import get_args

import orjson
import pytest

from shared.protocol import events as ag
from shared.protocol import sse
from shared.protocol.fold import Fold, fold, prelude_frames
from shared.protocol.verifier import Verifier
from tests.client_rules import Client
from tests.unit.rich_runs import FINISHED, HISTORY, QUIET, all_runs, event, made, text, thought
from worker.agents.testing import run_input

STARTED = event("RUN_STARTED", threadId="thread", runId="run", protocolVersion="1.0")
RUNS = all_runs()


def folded(events, given=None):
    return fold(given or run_input("hello"), [ag.parse(orjson.dumps(one)) for one in events])


def prelude_of(events, given=None):
    return [orjson.loads(ag.dump(one)) for one in folded(events, given).prelude()]


def types_of(events):
    return [one["type"] for one in events]


def client_for(given, *, with_activities=False):
    document = orjson.loads(ag.dump_input(given))
    messages = document["messages"]
    if with_activities:
        # A client keeps the activities of earlier runs to itself.
        for place, kind in ((2, "PLAN"), (0, "OLD")):
            messages.insert(place, {"id": kind, "role": "activity", "activityType": kind, "content": {}})
    return Client(messages, document.get("state"))


@pytest.mark.parametrize("name", RUNS)
def test_a_join_after_any_prefix_ends_like_the_whole_stream_whatever_was_read_before(name):
    given, events = RUNS[name]
    whole = client_for(given).run(events)
    fold_so_far = Fold(given)
    for k, one in enumerate(events, start=1):
        fold_so_far.take(ag.parse(orjson.dumps(one)))
        prelude = [orjson.loads(ag.dump(each)) for each in fold_so_far.prelude()]
        for j in range(k + 1):
            client = client_for(given).run(events[:j]).run([*prelude, *events[k:]])
            assert client.messages == whole.messages, (j, k)
            assert client.state == whole.state, (j, k)
            assert set(client.warnings) <= set(whole.warnings), (j, k)


@pytest.mark.parametrize("name", sorted(set(RUNS) - {"restated", "vanished"}))
def test_activities_of_earlier_runs_stay_where_the_client_has_them(name):
    given, events = RUNS[name]
    whole = client_for(given, with_activities=True).run(events)
    for k in range(1, len(events) + 1):
        client = client_for(given, with_activities=True)
        client.run([*prelude_of(events[:k], given), *events[k:]])
        assert client.messages == whole.messages, k


@pytest.mark.parametrize("types", [None, ["PLAN"]])
def test_activities_of_earlier_runs_go_when_the_agent_says_that_it_knows_all_of_them(types):
    metadata = {"@ag-ui/client": {"authoritativeActivityTypes": types}}
    events = [STARTED, event("MESSAGES_SNAPSHOT", messages=HISTORY, metadata=metadata), FINISHED]
    given = run_input(messages=HISTORY)
    whole = client_for(given, with_activities=True).run(events)
    for k in (2, 3):
        client = client_for(given, with_activities=True).run([*prelude_of(events[:k], given), *events[k:]])
        assert client.messages == whole.messages


def test_the_runs_of_these_tests_hold_every_event_and_break_no_rule():
    seen = set()
    for name, (given, events) in RUNS.items():
        verifier = Verifier(given.messages, thread_id="thread", run_id="run")
        for one in events:
            verifier.observe(ag.parse(orjson.dumps(one)))
        assert verifier.terminated, name
        seen |= {one["type"] for one in events}
    assert seen == {cls.model_fields["type"].default.value for cls in get_args(get_args(ag.Event)[0])}


def test_a_run_under_way_is_told_as_start_messages_state_and_openers_in_opening_order():
    events = [
        STARTED,
        event("SUBAGENT_STARTED", subagentRunId="s", name="n"),
        event("STEP_STARTED", stepName="plan"),
        *list(thought("r", "hm"))[:3],
        event("TEXT_MESSAGE_START", messageId="m", name="Bot", metadata={"x": 1}),
        event("TEXT_MESSAGE_CONTENT", messageId="m", delta="Hel"),
        event("TOOL_CALL_START", toolCallId="c", toolCallName="f", parentMessageId="m"),
        event("TOOL_CALL_ARGS", toolCallId="c", delta='{"half'),
    ]
    prelude = prelude_of(events, run_input("hello", state={"n": 1}))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"half'}}
    assert [{**one} for one in prelude] == [
        STARTED,
        event(
            "MESSAGES_SNAPSHOT",
            messages=[
                {"id": "user-1", "role": "user", "content": "hello"},
                {"id": "r", "role": "reasoning", "content": "hm"},
                {
                    "id": "m",
                    "role": "assistant",
                    "content": "Hel",
                    "name": "Bot",
                    "metadata": {"x": 1},
                    "toolCalls": [call],
                },
            ],
        ),
        event("STATE_SNAPSHOT", snapshot={"n": 1}),
        event("SUBAGENT_STARTED", subagentRunId="s", name="n"),
        event("STEP_STARTED", stepName="plan"),
        event("REASONING_START", messageId="r"),
        event("REASONING_MESSAGE_START", messageId="r", role="reasoning"),
        event("TEXT_MESSAGE_START", messageId="m", name="Bot"),
        event("TOOL_CALL_START", toolCallId="c", toolCallName="f", parentMessageId="m"),
    ]


@pytest.mark.parametrize("terminal", [FINISHED, event("RUN_ERROR", message="no", code="X")])
def test_an_ended_run_is_told_as_start_messages_state_and_its_terminal_event(terminal):
    events = [STARTED, *text("m", "hi", end=False), event("STATE_SNAPSHOT", snapshot=None), terminal]
    prelude = prelude_of(events)
    assert types_of(prelude) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", terminal["type"]]
    assert prelude[-1] == terminal
    assert folded(events).ended


@pytest.mark.parametrize("state", [None, {}])
def test_a_state_of_which_nobody_spoke_is_not_told(state):
    assert types_of(prelude_of([STARTED], run_input("hi", state=state))) == [
        "RUN_STARTED",
        "MESSAGES_SNAPSHOT",
    ]


def test_before_the_first_event_there_is_no_prelude():
    assert folded([]).prelude() == []
    assert prelude_frames(run_input("hi"), []) == ([], 0)


def test_only_the_last_frame_of_a_prelude_carries_the_number_of_the_last_event():
    events = [STARTED, *text("m", "one", "two")]
    frames = [sse.frame(number, orjson.dumps(one)) for number, one in enumerate(events, start=1)]
    prelude, seq = prelude_frames(run_input("hi"), frames[:3])
    assert seq == 3
    assert [frame.startswith(b"id: ") for frame in prelude] == [False, False, True]
    assert sse.seq_of(prelude[-1]) == 3
    assert [orjson.loads(sse.data_of(frame)) for frame in prelude] == prelude_of(events[:3], run_input("hi"))


def test_the_prelude_of_an_ended_run_ends_with_the_terminal_frame_of_the_log():
    frames = [sse.frame(number, orjson.dumps(one)) for number, one in enumerate([STARTED, FINISHED], start=1)]
    prelude, _ = prelude_frames(run_input("hi"), frames)
    assert sse.is_terminal(prelude[-1])
    assert sse.seq_of(prelude[-1]) == 2


def test_the_echo_of_the_input_is_left_to_the_snapshot():
    echo = {"threadId": "thread", "runId": "run", "messages": HISTORY}
    prelude = prelude_of([STARTED | {"input": echo}])
    assert prelude[0] == STARTED
    assert [one["id"] for one in prelude[1]["messages"]] == ["user-1", "u1", "r0", "a1", "u2"]


def test_a_subagent_that_ended_is_known_as_the_parent_of_a_later_one():
    ended = [
        event("SUBAGENT_STARTED", subagentRunId="s", name="n"),
        event("SUBAGENT_FINISHED", subagentRunId="s"),
    ]
    later = event("SUBAGENT_STARTED", subagentRunId="t", name="n", parentSubagentRunId="s")
    prelude = prelude_of([STARTED, *ended])
    assert prelude[2:] == ended
    Client([]).run([*prelude, later])


@pytest.mark.parametrize(
    ("first", "further"),
    [
        (event("TEXT_MESSAGE_CHUNK", messageId="k", delta="a"), event("TEXT_MESSAGE_CHUNK", delta="b")),
        (
            event("REASONING_MESSAGE_CHUNK", messageId="k", delta="a"),
            event("REASONING_MESSAGE_CHUNK", delta="b"),
        ),
        (
            event("TOOL_CALL_CHUNK", toolCallId="k", toolCallName="f", delta="a", subagentRunId="s"),
            event("TOOL_CALL_CHUNK", delta="b", subagentRunId="s"),
        ),
    ],
)
def test_chunks_go_on_without_naming_what_was_begun_before_the_join(first, further):
    whole = Client([]).run([STARTED, first, further, FINISHED])
    prelude = prelude_of([STARTED, first], run_input())
    assert prelude[-1]["type"] == first["type"]
    assert "delta" not in prelude[-1]
    assert Client([]).run([*prelude, further, FINISHED]).messages == whole.messages


@pytest.mark.parametrize(
    "cut",
    [
        event("STATE_DELTA", delta=[]),
        event("CUSTOM", name="n", value=1),
        event("STEP_FINISHED", stepName="s"),
        event("TEXT_MESSAGE_START", messageId="other"),
        event("MESSAGES_SNAPSHOT", messages=[]),
    ],
)
def test_a_chunk_stream_that_was_cut_is_not_opened_again(cut):
    chunk = event("TEXT_MESSAGE_CHUNK", messageId="k", delta="a")
    prelude = prelude_of([STARTED, event("STEP_STARTED", stepName="s"), chunk, cut])
    assert "TEXT_MESSAGE_CHUNK" not in types_of(prelude)
    assert "k" not in [one.get("messageId") for one in prelude]


def test_what_an_agents_snapshot_gave_away_and_then_removed_has_the_new_owner_when_it_goes_on():
    moved = {"id": "m", "role": "assistant", "content": "x", "subagentRunId": "new"}
    events = [
        STARTED,
        event("TEXT_MESSAGE_START", messageId="m", subagentRunId="old"),
        event("MESSAGES_SNAPSHOT", messages=[moved]),
        event("MESSAGES_SNAPSHOT", messages=[]),
    ]
    rest = [event("TEXT_MESSAGE_CONTENT", messageId="m", delta="y", subagentRunId="new")]
    whole = Client([]).run([*events, *rest])
    assert Client([]).run([*prelude_of(events, run_input()), *rest]).messages == whole.messages == []


def test_a_conversation_that_only_grew_needs_one_snapshot_and_one_that_moved_needs_more():
    calls = [event("TOOL_CALL_START", toolCallId=name, toolCallName="f") for name in ("c1", "c2")]
    ends = [event("TOOL_CALL_END", toolCallId=name) for name in ("c1", "c2")]
    grown = [STARTED, *calls, *ends]
    moved = event("TOOL_CALL_RESULT", messageId="t", toolCallId="c1", content="r")
    assert types_of(prelude_of(grown)).count("MESSAGES_SNAPSHOT") == 1
    prelude = prelude_of([*grown, moved])
    snapshots = [one["messages"] for one in prelude if one["type"] == "MESSAGES_SNAPSHOT"]
    assert [[one["id"] for one in messages] for messages in snapshots] == [
        ["user-1", "c1"],
        ["user-1", "c1", "t", "c2"],
    ]


def test_a_message_gets_the_owner_that_only_its_reasoning_span_named():
    tag = {"subagentRunId": "s"}
    events = [
        STARTED,
        event("REASONING_START", messageId="r", **tag),
        event("REASONING_MESSAGE_START", messageId="r", role="reasoning"),
    ]
    rest = [event("REASONING_MESSAGE_CONTENT", messageId="r", delta="x", **tag)]
    Client([]).run([*events, *rest])
    client = Client([]).run([*prelude_of(events, run_input()), *rest])
    assert client.messages == [{"id": "r", "role": "reasoning", "content": "x", **tag}]


def test_messages_and_state_are_those_of_the_client():
    given, events = RUNS["demo"]
    result = folded(events, given)
    whole = client_for(given).run(events)
    messages = [
        orjson.loads(one.model_dump_json(by_alias=True, exclude_none=True)) for one in result.messages
    ]
    assert [one["id"] for one in messages] == [one["id"] for one in whole.messages]
    assert messages[-1]["content"] == whole.messages[-1]["content"]
    assert result.state == whole.state


def test_asking_for_the_prelude_changes_nothing():
    given, events = RUNS["subagents"]
    asked, silent = Fold(given), Fold(given)
    for one in events:
        asked.take_json(orjson.dumps(one))
        silent.take_json(orjson.dumps(one))
        asked.prelude()
        assert asked.messages
    assert asked.prelude() == silent.prelude()


@pytest.mark.parametrize("name", QUIET)
def test_events_in_any_order_do_no_harm(name):
    given, events = RUNS[name]
    for stream in (events[1:-1][::-1], events[1::2], events[2::3] + events[1::3]):
        result = Fold(given)
        for one in stream:
            result.take_json(orjson.dumps(one))
            result.prelude()


def test_what_follows_the_terminal_event_is_ignored():
    events = [*made("failed"), *text("late", "too late")]
    assert prelude_of(events) == prelude_of(made("failed"))


def test_a_patch_that_makes_an_activity_no_object_leaves_it_as_it_was():
    snapshot = event("ACTIVITY_SNAPSHOT", messageId="a", activityType="T", content={"x": 1})
    patch = [{"op": "replace", "path": "", "value": 1}]
    delta = event("ACTIVITY_DELTA", messageId="a", activityType="T", patch=patch)
    assert prelude_of([STARTED, snapshot, delta]) == prelude_of([STARTED, snapshot])


def test_a_state_that_patches_nested_without_end_is_refused_like_an_event_of_that_depth():
    nest = [{"op": "copy", "from": "", "path": "/in"}]
    deeper = [{"op": "copy", "from": "", "path": "/in" * 9}]
    events = [STARTED, *(event("STATE_DELTA", delta=patch) for patch in [nest] * 9 + [deeper] * 40)]
    with pytest.raises(ag.SerializationError):
        folded(events, run_input(state={"x": 0})).prelude()


def test_folding_costs_time_in_proportion_to_the_log():
    given = run_input("hi")
    start = ag.dump(ag.TextMessageStartEvent(message_id="m"))
    content = ag.dump(ag.TextMessageContentEvent(message_id="m", delta="twelve chars" * 10))
    started = ag.dump(ag.run_started("thread", "run"))

    def seconds(count):
        frames = [sse.frame(n, data) for n, data in enumerate([started, start, *[content] * count], start=1)]
        best = float("inf")
        for _ in range(5):
            begun = time.perf_counter()
            prelude, _ = prelude_frames(given, frames)
            best = min(best, time.perf_counter() - begun)
        assert len(prelude[1]) > 120 * count
        return best

    few, many = seconds(2_000), seconds(20_000)
    assert many < 30 * few
    assert few < 0.2
