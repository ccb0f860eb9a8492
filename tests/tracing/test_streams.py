"""The span of a stream covers its body, however that ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from shared import tracing
from web.spans import StreamSpan

FRAME = b'id: 2\ndata: {"type":"CUSTOM"}\n\n'
TERMINAL = b'id: 3\ndata: {"type":"RUN_FINISHED"}\n\n'


class Frames:
    def __init__(self, *pieces: bytes | Exception) -> None:
        self.pieces = list(pieces)
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if not self.pieces:
            raise StopIteration
        piece = self.pieces.pop(0)
        if isinstance(piece, Exception):
            raise piece
        return piece

    def close(self) -> None:
        self.closed += 1


def stream(*pieces: bytes | Exception) -> tuple[StreamSpan, Frames]:
    frames = Frames(*pieces)
    return StreamSpan(frames, tracing.begin("outlast.stream", run="b0")), frames


def test_it_ends_with_the_last_byte_and_knows_that_the_ending_was_sent(spans: Any):
    body, frames = stream(FRAME, FRAME + TERMINAL)
    assert next(body) == FRAME
    assert not spans.get_finished_spans()
    assert list(body) == [FRAME + TERMINAL]
    body.close()
    (one,) = spans.get_finished_spans()
    assert one.attributes["outlast.terminal_sent"] is True
    assert one.attributes["outlast.bytes"] == 2 * len(FRAME) + len(TERMINAL)
    assert [event.name for event in one.events] == ["outlast.first_bytes"]
    assert frames.closed == 1


def test_a_client_that_leaves_ends_it_without_an_error(spans: Any):
    body, frames = stream(FRAME, TERMINAL)
    next(body)
    body.close()
    body.close()
    (one,) = spans.get_finished_spans()
    assert one.attributes["outlast.terminal_sent"] is False
    assert one.status.status_code is StatusCode.UNSET
    assert frames.closed == 2


def test_a_body_that_breaks_is_an_error_without_its_text(spans: Any):
    body, _ = stream(FRAME, ValueError("secret"))
    with pytest.raises(ValueError, match="secret"):
        list(body)
    (one,) = spans.get_finished_spans()
    assert (one.status.status_code, one.attributes["error.type"]) == (StatusCode.ERROR, "builtins.ValueError")
    assert "secret" not in one.to_json()
