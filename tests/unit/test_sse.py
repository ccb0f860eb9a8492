"""Frames as they stand in the log and travel to clients."""

import pytest

from shared.protocol import sse


def test_a_frame_is_number_and_data_and_a_blank_line():
    assert sse.frame(7, b'{"a":1}') == b'id: 7\ndata: {"a":1}\n\n'


def test_a_frame_gives_its_number_and_data_back():
    framed = sse.frame(12_345, b'{"text":"data: x\\nid: 9"}')
    assert sse.seq_of(framed) == 12_345
    assert sse.data_of(framed) == b'{"text":"data: x\\nid: 9"}'


def test_a_prelude_frame_has_no_number():
    framed = sse.prelude_frame(b"{}")
    assert framed == b"data: {}\n\n"
    assert sse.data_of(framed) == b"{}"


def test_the_last_prelude_frame_carries_the_folded_number():
    assert sse.prelude_frame(b"{}", 0) == b"id: 0\ndata: {}\n\n"
    assert sse.prelude_frame(b"{}", 41) == sse.frame(41, b"{}")


@pytest.mark.parametrize("data", [b'{"a":\n1}', b"{}\r", b"\n\n", b""])
def test_data_that_is_not_one_line_cannot_be_framed(data):
    for make in (lambda: sse.frame(1, data), lambda: sse.prelude_frame(data)):
        with pytest.raises(ValueError, match="one line"):
            make()


@pytest.mark.parametrize("framed", [b"", b"data: {}\n\n", b"id: x\ndata: {}\n\n", b": 7\n\n", b"id: 7"])
def test_a_frame_without_a_number_has_no_seq(framed):
    with pytest.raises(ValueError, match="numbered"):
        sse.seq_of(framed)


@pytest.mark.parametrize("framed", [b"", sse.HEARTBEAT, b"id: 7\n\n", b"data: {}\n", b"event: x\ndata: {}"])
def test_what_is_no_event_frame_has_no_data(framed):
    with pytest.raises(ValueError, match="event frame"):
        sse.data_of(framed)


def test_a_heartbeat_is_a_comment():
    assert sse.HEARTBEAT.startswith(b":")
    assert sse.HEARTBEAT.endswith(b"\n\n")
    assert sse.HEARTBEAT.count(b"\n") == 2


@pytest.mark.parametrize("text", ["a\n\ndata: {}\n\n", "a\rdata: {}", "a\r\nid: 9", "\ud800\n"])
def test_a_comment_cannot_add_lines(text):
    framed = sse.comment(text)
    assert framed.startswith(b": ")
    assert framed.endswith(b"\n\n")
    assert framed[:-2].count(b"\n") == framed.count(b"\r") == 0


def test_a_comment_keeps_its_text():
    assert sse.comment("kein Worker für dich") == ": kein Worker für dich\n\n".encode()


@pytest.mark.parametrize(
    ("text", "cursor"), [("0", 0), ("7", 7), ("9999999999999999", 9_999_999_999_999_999)]
)
def test_a_cursor_is_the_number_of_an_event(text, cursor):
    assert sse.parse_cursor(text) == cursor


@pytest.mark.parametrize("text", [None, ""])
def test_no_cursor_is_none(text):
    assert sse.parse_cursor(text) is None


@pytest.mark.parametrize(
    "text", ["-1", "+1", " 1", "1\n", "01", "1.0", "0x1", "1e3", "abc", "٣", "²", "1" * 17, "1_0", "NaN"]
)
def test_a_made_up_cursor_is_refused(text):
    with pytest.raises(ValueError, match="not the number of an event"):
        sse.parse_cursor(text)
