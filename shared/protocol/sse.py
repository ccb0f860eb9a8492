"""Server-Sent Events frames. A run's log holds them as they travel: number, one line of JSON, blank line.

Only LF ends a line, every frame has exactly one ``data:`` line (WHATWG HTML, section 9.2).
"""

import re
from typing import Final

HEARTBEAT: Final = b": \n\n"
"""A comment that clients skip; it shows proxies and peers that the stream lives."""

_CANONICAL = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)
_BREAKS = re.compile(r"[\r\n]+")
_DATA = b"data: "


def frame(seq: int, data: bytes) -> bytes:
    """The frame of event number ``seq``. Raises ValueError if ``data`` is not exactly one line."""
    if b"\n" in data or b"\r" in data or not data:
        raise ValueError("an event travels as one line")
    return b"id: %d\ndata: %b\n\n" % (seq, data)


def prelude_frame(data: bytes, seq: int | None = None) -> bytes:
    """A frame that is not in the log; without a number it leaves the client's cursor where it was."""
    if seq is not None:
        return frame(seq, data)
    return frame(0, data)[len(b"id: 0\n") :]


def data_of(framed: bytes) -> bytes:
    """The JSON inside a frame made here. Raises ValueError for anything else."""
    start = 0 if framed.startswith(_DATA) else framed.find(b"\n") + 1
    if not framed.startswith(_DATA, start) or not framed.endswith(b"\n\n"):
        raise ValueError("not an event frame")
    return framed[start + len(_DATA) : -2]


def seq_of(framed: bytes) -> int:
    """The number of a frame made here. Raises ValueError for a frame without one and anything else."""
    number = framed[4 : framed.find(b"\n")]
    if not framed.startswith(b"id: ") or not number.isdigit():
        raise ValueError("not a numbered frame")
    return int(number)


def comment(text: str) -> bytes:
    """A comment frame; line breaks in ``text`` become spaces, so it cannot add lines of its own."""
    return b": %b\n\n" % _BREAKS.sub(" ", text).encode(errors="replace")


def parse_cursor(text: str | None) -> int | None:
    """The number of the last event a client has, from Last-Event-ID or ``after``.

    None if there is none; an empty text is none too, as in the browser's own rule. 0 is the
    place before the first event. Raises ValueError for everything that this server never sent as
    an id: signs, spaces, leading zeros, letters, other digits, more than 16 digits.
    """
    if not text:
        return None
    if _CANONICAL.fullmatch(text) is None:
        raise ValueError("not the number of an event")
    return int(text)


_TERMINALS = (b'{"type":"RUN_FINISHED"', b'{"type":"RUN_ERROR"')


def is_terminal(framed: bytes) -> bool:
    """Whether a frame made here carries the event that ends its run."""
    return data_of(framed).startswith(_TERMINALS)
