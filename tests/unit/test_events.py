"""Events and inputs as JSON: what is written, what is read, and what is refused."""

import json
import math
from decimal import Decimal
from typing import get_args

import ag_ui.core
import pytest
from ag_ui.encoder import EventEncoder
from hypothesis import given
from hypothesis import strategies as st

from shared.protocol import events as ag

EVENT_CLASSES = get_args(get_args(ag.Event)[0])
PATCH = [{"op": "add", "path": "/a", "value": None}, {"op": "remove", "path": "/b"}]
TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
INPUT = {
    "threadId": "th",
    "runId": "run",
    "messages": [
        {"id": "u1", "role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"id": "m1", "role": "assistant", "toolCalls": [TOOL_CALL]},
    ],
    "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}}],
    "context": [],
    "state": {"n": None},
    "forwardedProps": {"x": [1, 2.5, None]},
}
MINIMAL = {
    "TEXT_MESSAGE_START": {"messageId": "m"},
    "TEXT_MESSAGE_CONTENT": {"messageId": "m", "delta": 'a "quoted" \\ \n\t\x00\x7f ü 😀'},
    "TEXT_MESSAGE_END": {"messageId": "m"},
    "TEXT_MESSAGE_CHUNK": {},
    "TOOL_CALL_START": {"toolCallId": "c", "toolCallName": "f"},
    "TOOL_CALL_ARGS": {"toolCallId": "c", "delta": '{"a":'},
    "TOOL_CALL_END": {"toolCallId": "c"},
    "TOOL_CALL_CHUNK": {},
    "TOOL_CALL_RESULT": {"messageId": "r", "toolCallId": "c", "content": [{"type": "text", "text": "42"}]},
    "STATE_SNAPSHOT": {"snapshot": None},
    "STATE_DELTA": {"delta": PATCH},
    "MESSAGES_SNAPSHOT": {"messages": INPUT["messages"]},
    "ACTIVITY_SNAPSHOT": {"messageId": "a", "activityType": "P", "content": {"k": None}},
    "ACTIVITY_DELTA": {"messageId": "a", "activityType": "P", "patch": PATCH},
    "RAW": {"event": None},
    "CUSTOM": {"name": "n", "value": None},
    "RUN_STARTED": {"threadId": "th", "runId": "run", "input": INPUT},
    "RUN_FINISHED": {"threadId": "th", "runId": "run", "outcome": {"type": "cancelled"}},
    "RUN_ERROR": {"message": "broke", "usage": [{"inputTokens": 3}]},
    "STEP_STARTED": {"stepName": "s"},
    "STEP_FINISHED": {"stepName": "s"},
    "REASONING_START": {"messageId": "g"},
    "REASONING_MESSAGE_START": {"messageId": "g", "role": "reasoning"},
    "REASONING_MESSAGE_CONTENT": {"messageId": "g", "delta": ""},
    "REASONING_MESSAGE_END": {"messageId": "g"},
    "REASONING_MESSAGE_CHUNK": {},
    "REASONING_END": {"messageId": "g"},
    "REASONING_ENCRYPTED_VALUE": {"subtype": "tool-call", "entityId": "c", "encryptedValue": "v"},
    "SUBAGENT_STARTED": {"subagentRunId": "s", "name": "n"},
    "SUBAGENT_FINISHED": {"subagentRunId": "s", "result": {"k": None}},
    "SUBAGENT_ERROR": {"subagentRunId": "s", "message": "broke"},
}
EXTRAS = {
    "none": {},
    "metadata with nulls": {"metadata": {"k": None, "n": {"x": [None]}}},
    "timestamp and raw event": {"timestamp": 1_700_000_000_000, "rawEvent": {"a": None}},
    "an owner": {"subagentRunId": "s1"},
    "the empty owner": {"subagentRunId": ""},
    "an unknown member": {"futureMember": [1, None]},
}
HOT = ["TEXT_MESSAGE_CONTENT", "TOOL_CALL_ARGS", "REASONING_MESSAGE_CONTENT"]


def event(kind, **members):
    return ag.parse(json.dumps({"type": kind, **MINIMAL[kind], **members}))


def custom(value):
    return ag.CustomEvent(name="n", value=value)


def nested(levels):
    value = "bottom"
    for _ in range(levels):
        value = [value]
    return value


def official(each):
    return json.loads(EventEncoder().encode(each).removeprefix("data: "))


@pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS)
@pytest.mark.parametrize("kind", MINIMAL)
def test_an_event_is_written_as_the_official_encoder_writes_it(kind, extra):
    each = event(kind, **extra)
    written = ag.dump(each)
    assert json.loads(written) == official(each)
    assert b"\n" not in written
    assert ag.parse(written) == each


def test_every_event_of_the_protocol_is_among_those_compared():
    assert set(MINIMAL) == {kind.value for kind in ag.EventType}
    assert len(EVENT_CLASSES) == len(MINIMAL) == 31


@pytest.mark.parametrize("kind", HOT)
@given(
    delta=st.text(), owner=st.none() | st.text(max_size=3), timestamp=st.none() | st.integers(0, 2**53 - 1)
)
def test_the_fast_path_writes_the_same_members_in_the_same_order(kind, delta, owner, timestamp):
    optional = {"subagentRunId": owner, "timestamp": timestamp}
    each = event(kind, delta=delta, **{name: value for name, value in optional.items() if value is not None})
    slow = each.model_copy(update={"metadata": {}})
    assert ag.dump(each) == ag.dump(slow).replace(b'"metadata":{},', b"", 1)


def test_line_separators_are_escaped_in_fast_and_slow_events():
    text = "a\u2028b\u2029c\u0085d\u2027e"
    for each in (event("TEXT_MESSAGE_CONTENT", delta=text), custom({text: text})):
        written = ag.dump(each)
        assert len(written.decode().splitlines()) == 1
        assert json.loads(written) == official(each)


@pytest.mark.parametrize("kind", [*HOT, "TEXT_MESSAGE_CHUNK", "TOOL_CALL_CHUNK", "REASONING_MESSAGE_CHUNK"])
@pytest.mark.parametrize("extra", [{}, {"metadata": {}}], ids=["bare", "with metadata"])
def test_a_lone_surrogate_in_a_delta_becomes_the_replacement_character(kind, extra):
    each = event(kind, **extra).model_copy(update={"delta": "a\ud83db\ude00c"})
    assert json.loads(ag.dump(each))["delta"] == "a\ufffdb\ufffdc"
    assert each.delta == "a\ud83db\ude00c"


def test_the_two_halves_of_one_character_in_a_delta_are_joined():
    each = event("TEXT_MESSAGE_CONTENT").model_copy(update={"delta": "\ud83d\ude00"})
    assert json.loads(ag.dump(each))["delta"] == "😀"


SECRET = "sesame"
LOOP: list[object] = [SECRET]
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("each", "reason"),
    [
        (custom({SECRET: math.nan}), "a number is not finite"),
        (custom([SECRET, -math.inf]), "a number is not finite"),
        (ag.StateSnapshotEvent(snapshot=math.inf), "a number is not finite"),
        (ag.RunFinishedEvent(thread_id="t", run_id="r", result=math.nan), "a number is not finite"),
        (ag.SubagentFinishedEvent(subagent_run_id=SECRET, result=-math.inf), "a number is not finite"),
        (
            event("TEXT_MESSAGE_END", metadata={"k": 1}).model_copy(update={"metadata": {SECRET: math.nan}}),
            "finite",
        ),
        (custom(SECRET + "\ud800"), "a text holds a lone surrogate"),
        (custom({SECRET + "\ud800": 1}), "a text holds a lone surrogate"),
        (
            ag.TextMessageContentEvent(message_id=SECRET + "\ud800", delta="x"),
            "a text holds a lone surrogate",
        ),
        (
            ag.StateDeltaEvent(delta=[{"op": "add", "path": "/a", "value": SECRET + "\udfff"}]),
            "lone surrogate",
        ),
        (custom([SECRET, object()]), "a value is of an unknown type"),
        (custom([SECRET, lambda: SECRET]), "a value is of an unknown type"),
        (custom([SECRET, b"\xff"]), "bytes are not UTF-8"),
        (custom(LOOP), "it nests too deeply or contains itself"),
        (custom([SECRET, nested(128)]), "it nests more than 128 levels"),
        (custom([SECRET, nested(5000)]), "it nests too deeply or contains itself"),
        (
            event("TEXT_MESSAGE_CONTENT").model_copy(update={"timestamp": 1.5, "message_id": SECRET}),
            "wrong type",
        ),
        (event("TEXT_MESSAGE_CONTENT").model_copy(update={"delta": [SECRET]}), "a member is of a wrong type"),
        (event("TEXT_MESSAGE_CONTENT").model_copy(update={"subagent_run_id": [SECRET]}), "wrong type"),
    ],
)
def test_what_has_no_json_form_is_refused_without_repeating_it(each, reason):
    with pytest.raises(ag.SerializationError, match=reason) as caught:
        ag.dump(each)
    assert str(caught.value).startswith(f"{each.type.value} has no JSON form: ")
    assert SECRET not in repr(caught.value)
    assert caught.value.__context__ is None
    assert isinstance(caught.value, ValueError)


def test_texts_that_spell_a_non_finite_number_are_texts():
    each = custom({"NaN": None, "text": "Infinity"})
    assert json.loads(ag.dump(each)) == official(each)


def test_values_that_pydantic_has_a_form_for_are_written_in_it():
    assert json.loads(ag.dump(custom({1: Decimal("1.5"), "s": ("a",)})))["value"] == {"1": "1.5", "s": ["a"]}


def test_the_deepest_event_that_is_written_can_be_read():
    each = custom(nested(127))
    assert ag.parse(ag.dump(each)) == each


def test_brackets_in_texts_are_no_nesting():
    each = custom(['"\\' + "[{" * 5000, "]"] * 200)
    assert ag.parse(ag.dump(each)) == each


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", ""),
        ("{", ""),
        (b'{"type":"CUSTOM","name":"\xff","value":1}', ""),
        ('"\ud800"', ""),
        ("[]", ""),
        ('{"name":"n"}', "type"),
        ('{"type":"THINKING_START"}', "type"),
        ('{"type":"STEP_STARTED"}', "stepName"),
        ('{"type":"STEP_STARTED","stepName":5}', "stepName"),
        ('{"type":"STEP_STARTED","stepName":"s","timestamp":1.5}', "timestamp"),
        ('{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a"}]}', "delta.0.value"),
        ('{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"timeout"}}', "outcome.type"),
    ],
)
def test_a_text_that_is_no_event_is_refused_with_its_field(text, field):
    with pytest.raises(ag.InvalidEvent) as caught:
        ag.parse(text)
    assert caught.value.field == field


def test_a_start_declares_the_protocol_version_and_leaves_an_absent_parent_out():
    assert json.loads(ag.dump(ag.run_started("th", "run"))) == {
        "type": "RUN_STARTED",
        "threadId": "th",
        "runId": "run",
        "protocolVersion": "1.0",
    }
    assert ag.run_started("th", "run", "before").parent_run_id == "before"


def test_a_finish_carries_outcome_result_and_usage_if_it_has_them():
    bare = {"type": "RUN_FINISHED", "threadId": "th", "runId": "run"}
    assert json.loads(ag.dump(ag.run_finished("th", "run", None))) == bare
    full = ag.run_finished("th", "run", {"type": "success"}, {"n": 1}, [ag.TokenUsage(input_tokens=3)])
    assert json.loads(ag.dump(full)) == {
        **bare,
        "outcome": {"type": "success"},
        "result": {"n": 1},
        "usage": [{"inputTokens": 3}],
    }


@pytest.mark.parametrize("outcome", [{"type": "timeout"}, {"type": "interrupt", "interrupts": []}, {}])
def test_a_finish_with_an_outcome_that_the_protocol_lacks_is_refused(outcome):
    with pytest.raises(ValueError, match="outcome"):
        ag.run_finished("th", "run", outcome)


def test_an_error_carries_message_and_code():
    members = {"type": "RUN_ERROR", "message": "It failed.", "code": "AGENT_ERROR"}
    assert json.loads(ag.dump(ag.run_error("It failed.", "AGENT_ERROR"))) == members


def test_the_door_lets_the_official_classes_through_unchanged():
    for name in set(ag.__all__) & set(ag_ui.core.__all__):
        assert getattr(ag, name) is getattr(ag_ui.core, name)
    assert {cls.__name__ for cls in EVENT_CLASSES} < set(ag.__all__)
