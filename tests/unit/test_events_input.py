"""A run's input as a request body: what is read, and what is refused with which field."""

import json

import pytest

from shared.protocol import events as ag

SECRET = "sesame"
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


def nested(levels):
    value = "bottom"
    for _ in range(levels):
        value = [value]
    return value


INPUT_TEXT = json.dumps(INPUT).encode()


def replaced(**members):
    return json.dumps({**INPUT, **members}).encode()


def refused(body, **options):
    with pytest.raises(ag.InvalidInput) as caught:
        ag.parse_input(body, **options)
    return caught.value


def test_an_input_is_read_and_written_again_with_its_unknown_members():
    text = replaced(futureMember=[1, None], protocolVersion="1.7")
    assert json.loads(ag.dump_input(ag.parse_input(text))) == json.loads(text)


def test_only_thread_run_and_messages_are_required():
    run_input = ag.parse_input(b'{"threadId":"t","runId":"r","messages":[]}')
    assert (run_input.tools, run_input.state, run_input.parent_run_id) == (None, None, None)
    for field in ("threadId", "runId", "messages"):
        without = {name: value for name, value in INPUT.items() if name != field}
        error = refused(json.dumps(without).encode())
        assert (error.field, error.reason) == (field, "is required")


def test_a_byte_order_mark_is_skipped_and_a_member_named_twice_counts_last():
    body = b'\xef\xbb\xbf{"threadId":"a","threadId":"b","runId":"r","messages":[]}'
    assert ag.parse_input(body).thread_id == "b"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{} x",
        b"\xff",
        INPUT_TEXT.decode().encode("utf-16"),
        INPUT_TEXT.replace(b"2.5", b"NaN"),
        INPUT_TEXT.replace(b"2.5", b"-Infinity"),
        INPUT_TEXT.replace(b"2.5", b"1e999"),
        INPUT_TEXT.replace(b"2.5", b"9" * 400 + b".0"),
        INPUT_TEXT.replace(b"2.5", b"9" * 5000),
        INPUT_TEXT.replace(b'"hi"', b'"\\ud800"'),
        INPUT_TEXT.replace(b'"hi"', b'"\xed\xa0\x80"'),
        INPUT_TEXT.replace(b'"hi"', b'"a\nb"'),
    ],
)
def test_a_body_that_is_not_strict_json_is_refused(body):
    error = refused(body)
    assert (error.field, error.reason.partition(" (")[0]) == ("", "is not strict UTF-8 JSON")


def test_the_place_where_a_body_stops_being_json_is_named_and_nothing_of_it_is_quoted():
    assert refused(b'{\n  "threadId": secret\n}').reason == "is not strict UTF-8 JSON (line 2, column 15)"


@pytest.mark.parametrize("body", [b"[]", b"null", b'"x"', b"5"])
def test_a_body_that_is_no_object_is_refused(body):
    assert refused(body).reason == "must be an object"


def message(**members):
    return replaced(messages=[{"id": "1", **members}])


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        (replaced(threadId=5), "threadId", "must be a string"),
        (replaced(messages={}), "messages", "must be a list"),
        (replaced(messages=[5]), "messages.0", "must be an object"),
        (message(), "messages.0.role", "is required"),
        (message(role="sesame"), "messages.0.role", "must be one of 'developer', 'system', 'assistant'"),
        (message(role="user"), "messages.0.content", "is required"),
        (message(role="user", user=1), "messages.0.content", "is required"),
        (message(role="user", content={"a": "sesame"}), "messages.0.content", "must be a string"),
        (message(role="user", content=[{"type": "binary"}]), "messages.0.content.0.type", "must be one of"),
        (
            message(role="user", content=[{"type": "image", "source": {"type": "url"}}]),
            "messages.0.content.0.source.value",
            "is required",
        ),
        (
            message(role="assistant", toolCalls=[{"id": "c", "function": {"name": "f"}}]),
            "messages.0.toolCalls.0.function.arguments",
            "is required",
        ),
        (replaced(tools=[{"name": "f"}]), "tools.0.description", "is required"),
        (
            replaced(resume=[{"interruptId": "i", "status": "sesame"}]),
            "resume.0.status",
            "must be 'resolved'",
        ),
        (replaced(context=5), "context", "must be a list"),
    ],
)
def test_a_malformed_member_is_named_by_its_path(body, field, reason):
    error = refused(body)
    assert error.field == field
    assert error.reason.startswith(reason)
    assert str(error) == f"{field} {error.reason}"
    assert SECRET not in str(error)


@pytest.mark.parametrize("field", ["threadId", "runId", "parentRunId"])
@pytest.mark.parametrize("bad", ["", "x" * 257, "a\nb", "a\x00", "\x7f", "a\x85"])
def test_an_id_that_is_empty_too_long_or_holds_control_characters_is_refused(field, bad):
    assert refused(replaced(**{field: bad})).field == field


@pytest.mark.parametrize("good", ["x" * 256, "a/b c", "../..", "日本 😀", "{}"])
def test_any_other_text_is_an_id(good):
    run_input = ag.parse_input(replaced(threadId=good, runId=good, parentRunId=good))
    assert {run_input.thread_id, run_input.run_id, run_input.parent_run_id} == {good}


def test_an_input_is_refused_beyond_its_depth_and_taken_at_it():
    body = replaced(state=nested(99))
    assert ag.parse_input(body).state == nested(99)
    assert refused(replaced(state=nested(100))).reason == "nests more than 100 levels"
    assert refused(body, max_depth=99).field == ""


@pytest.mark.timeout(10)
@pytest.mark.parametrize("bomb", [b"[" * 1_000_000, b'{"a":' * 200_000, b'\\"' * 500_000 + b"[" * 200])
def test_a_bomb_is_refused_at_once(bomb):
    refused(bomb)


def test_the_deepest_input_fits_into_the_events_that_repeat_it():
    run_input = ag.parse_input(replaced(state=nested(99)))
    assert ag.dump(ag.RunStartedEvent(thread_id="t", run_id="r", input=run_input))
    assert ag.dump(ag.StateSnapshotEvent(snapshot=run_input.state))


def test_whole_numbers_beyond_64_bits_keep_their_digits():
    body = replaced(state={"n": 2**70})
    assert json.loads(ag.dump_input(ag.parse_input(body)))["state"] == {"n": 2**70}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", [b'{"type":"x"}', b"7"])
def test_a_body_with_very_many_mistakes_is_refused_without_describing_them(part):
    body = message(role="user", content=["@"]).replace(b'"@"', b",".join([part] * 300_000))
    error = refused(body)
    assert (error.field, error.reason.startswith("is not valid in ")) == ("", True)
