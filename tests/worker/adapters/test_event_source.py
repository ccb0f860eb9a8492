"""Server-Sent Events in pieces of any size, with any line end that the standard knows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.agents.event_source import EventSource
from worker.failures import ProtocolError

EVENTS = [b'{"a":"\xc3\xa9\xe2\x80\xa8"}', b"two\nlines", b"3"]
BODY = (
    b"\xef\xbb\xbf: hello\nid: 1\ndata: %b\n\n\n\nevent: x\ndata:two\ndata: lines\nretry: 5\n\n:\ndata: 3\n\n"
    % EVENTS[0]
)


def all_of(body: bytes, sizes: list[int]) -> list[bytes]:
    source = EventSource()
    found: list[bytes] = []
    position, turn = 0, 0
    while position < len(body):
        size = sizes[turn % len(sizes)]
        found += source.feed(body[position : position + size])
        position, turn = position + size, turn + 1
    assert not source.pending
    return found


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_events_are_whole_however_the_bytes_arrive(end: bytes, sizes: list[int]) -> None:
    assert all_of(BODY.replace(b"\n", end), sizes) == EVENTS


def test_an_event_without_its_blank_line_is_not_one_yet() -> None:
    source = EventSource()
    assert source.feed(b"data: 1\n") == []
    assert source.pending
    assert source.feed(b"\n") == [b"1"]


def test_data_that_is_empty_is_no_event() -> None:
    assert EventSource().feed(b"data:\n\ndata\n\n") == []


@pytest.mark.parametrize("piece", [b"x" * 10, b"data: 123\n"])
def test_an_event_is_bounded_whether_it_is_one_line_or_many(piece: bytes) -> None:
    source = EventSource(most=100)
    with pytest.raises(ProtocolError):
        list(map(source.feed, [piece] * 100))


def test_many_events_in_one_piece_are_not_taken_for_a_long_one() -> None:
    assert len(EventSource(most=100).feed(b"data: 1234567890\n\n" * 50)) == 50


def test_comments_without_end_are_no_event_that_grows() -> None:
    source = EventSource(most=100)
    for _ in range(100):
        assert source.feed(b": still here\n") == []
