"""Server-Sent Events as they arrive: from pieces of a body to the data of whole events."""

from __future__ import annotations

import re

from worker.failures import ProtocolError

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""What one event may take while it is not whole yet; it bounds memory, the run's own limits are smaller."""

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventSource:
    """One stream (WHATWG HTML, section 9.2): LF, CR LF or CR end a line, pieces may end anywhere.

    Comments and fields other than ``data`` are skipped, also a byte order mark in front.
    """

    def __init__(self, most: int = MAX_EVENT_BYTES) -> None:
        self._most = most
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._held = 0
        self._after_cr = False
        self._first = True

    @property
    def pending(self) -> bool:
        """Whether an event has begun and is not whole."""
        return bool(self._data or any(self._line))

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that this piece completes, none of them empty.

        Raises ProtocolError for an event that grows over the bound.
        """
        if self._after_cr and piece.startswith(b"\n"):
            piece = piece[1:]
            self._after_cr = False
        if not piece:
            return []
        self._after_cr = piece.endswith(b"\r")
        first, *others = _LINE_END.split(piece)
        self._hold(first)
        if not others:
            return []
        ready: list[bytes] = []
        line = b"".join(self._line)
        for following in others:
            self._take(line, ready)
            line = following
        self._line = [line] if line else []
        self._held = len(line) + sum(map(len, self._data))
        self._hold(b"")
        return ready

    def _hold(self, part: bytes) -> None:
        if part:
            self._line.append(part)
        self._held += len(part)
        if self._held > self._most:
            raise ProtocolError(f"an event of the stream is longer than {self._most} bytes")

    def _take(self, line: bytes, ready: list[bytes]) -> None:
        if self._first:
            line, self._first = line.removeprefix(_BOM), False
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif not line:
            data = b"\n".join(self._data)
            self._data = []
            if data:
                ready.append(data)
