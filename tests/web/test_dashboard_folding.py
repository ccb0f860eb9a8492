"""Folding events into rows, and charts that say in words what they show."""

from __future__ import annotations

import pytest

from web.ops import plots, wording
from web.ops.events_view import RAW_SHOWN, fold, fold_sizes, only


def _numbered(*events):
    return [{"seq": number, "event": event} for number, event in enumerate(events, 1)]


def _message(identity: str, *deltas: str):
    yield {"type": "TEXT_MESSAGE_START", "messageId": identity, "role": "assistant"}
    for delta in deltas:
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": identity, "delta": delta}
    yield {"type": "TEXT_MESSAGE_END", "messageId": identity}


def test_the_deltas_of_one_message_are_one_row():
    rows = fold(_numbered({"type": "RUN_STARTED"}, *_message("m", "Hel", "lo"), {"type": "RUN_FINISHED"}))
    assert [(row.title, row.first, row.last, row.text) for row in rows] == [
        ("Run started", 1, 1, ""),
        ("Message · assistant", 2, 5, "Hello"),
        ("Run finished", 6, 6, ""),
    ]


def test_interleaved_messages_stay_apart():
    first, second = list(_message("a", "1", "2")), list(_message("b", "3", "4"))
    mixed = [event for pair in zip(first, second, strict=True) for event in pair]
    assert [row.text for row in fold(_numbered(*mixed))] == ["12", "34"]


def test_a_tool_call_has_its_arguments_and_its_result():
    row = fold(
        _numbered(
            {"type": "TOOL_CALL_START", "toolCallId": "t", "toolCallName": "search"},
            {"type": "TOOL_CALL_ARGS", "toolCallId": "t", "delta": '{"q":1}'},
            {"type": "TOOL_CALL_END", "toolCallId": "t"},
            {"type": "TOOL_CALL_RESULT", "toolCallId": "t", "messageId": "r", "content": "found"},
        )
    )[0]
    assert (row.title, row.text, row.count, row.open) == ("Tool call · search", '{"q":1} → found', 4, False)


def test_a_message_without_its_end_is_open():
    assert fold(_numbered(*list(_message("m", "x"))[:-1]))[0].open


def test_a_page_that_begins_in_mid_message_shows_the_rest_of_it():
    rows = fold(_numbered(*list(_message("m", "x", "y"))[1:]))
    assert [(row.text, row.count) for row in rows] == [("xy", 3)]


def test_raw_events_of_a_long_row_are_bounded():
    row = fold(_numbered(*_message("m", *["x"] * 200)))[0]
    assert len(row.raw) == RAW_SHOWN
    assert row.more == 202 - RAW_SHOWN


def test_an_error_is_marked_and_a_duration_comes_from_the_agents_own_dates():
    rows = fold(
        _numbered(
            {"type": "STEP_STARTED", "stepName": "s", "timestamp": 1000},
            {"type": "RUN_ERROR", "message": "no", "timestamp": 3500},
        )
    )
    assert [row.bad for row in rows] == [False, True]


def test_sizes_are_folded_without_any_content():
    items = [
        {"seq": 1, "type": "RUN_STARTED", "bytes": 10},
        {"seq": 2, "type": "TEXT_MESSAGE_START", "bytes": 20},
        {"seq": 3, "type": "TEXT_MESSAGE_CONTENT", "bytes": 30},
    ]
    rows = fold_sizes(items)
    assert [(row.first, row.last, row.bytes, row.hidden, row.raw) for row in rows] == [
        (1, 1, 10, True, []),
        (2, 3, 50, True, []),
    ]


def test_rows_are_filtered_by_kind():
    rows = fold(_numbered({"type": "RUN_STARTED"}, *_message("m", "x")))
    assert [row.group for row in only(rows, {"message"})] == ["message"]
    assert only(rows, set()) == rows


def _minute(**counts: int):
    names = ("succeeded", "interrupted", "cancelled", "failed", "transport_timeout")
    return {"at": "2026-01-01T03:04:00.000Z"} | dict.fromkeys(names, 0) | counts


def test_time_outs_are_a_series_of_their_own_beside_the_other_failures():
    plot = plots.endings([_minute(failed=3, transport_timeout=2, succeeded=4)])
    assert "4 succeeded, 1 failed, other, 2 provider time-out" in plot.label
    assert 'class="fill-transport_timeout"' in plot.svg
    assert plot.top == "7"


def test_an_empty_hour_is_said_and_drawn_as_such():
    plot = plots.endings([_minute()])
    assert plot.empty
    assert plots.histogram({"counts": [0] * 19, "bounds_ms": list(range(1, 19)), "count": 0}, "x").empty


def test_a_chart_holds_no_text_of_others_and_no_style():
    minute = _minute(succeeded=1)
    minute["at"] = '2026-01-01T03:0"><script>'
    svg = plots.endings([minute]).svg
    assert "<script>" not in svg
    assert "style=" not in svg


def test_every_stage_of_a_life_is_seen_however_short_it_was():
    svg = plots.life([plots.Stage("queued", 0.001, "queued"), plots.Stage("running", 900, "running")])
    assert svg.count("<rect") == 2
    assert "running: 15 min" in svg


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.012, "12 ms"),
        (3.21, "3.2 s"),
        (42, "42 s"),
        (60, "1 min"),
        (95, "1 min 35 s"),
        (3700, "1 h 1 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_read_in_at_most_two_units(seconds, words):
    assert wording.duration(seconds) == words


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 B"), (999, "999 B"), (1234, "1.2 kB"), (2_500_000, "2.5 MB")]
)
def test_sizes_read_in_the_unit_that_fits(number, words):
    assert wording.size(number) == words


def test_the_worst_trouble_counts_before_the_stored_status():
    row = {"status": "running", "attention": [{"kind": "orphaned"}, {"kind": "stalled"}]}
    assert wording.state_of(row).name == "orphaned"
    assert wording.state_of({"status": "queued", "attention": []}).name == "waiting its turn"
