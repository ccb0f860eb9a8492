"""Joins: what a client gets that already has, or has lost, a part of the run.

A raw replay would append what such a client has a second time. So it gets the conversation as it stands by
snapshots, then what is open, then only what follows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from shared.protocol.events import ACCEPTED_DEPTH, RunAgentInput, parse_input
from shared.protocol.fold import prelude_frames
from shared.protocol.sse import is_terminal
from shared.store.log import EventLog
from web.api.answers import follow
from web.api.lookup import expired_run
from web.reader import OPENING
from web.services import RunReader, services

_PAGE = 500


class Join:
    """A stream that begins with a prelude and goes on with the run; ended runs end with the prelude."""

    def __init__(self, prelude: bytes, rest: RunReader | None) -> None:
        self._pieces: list[bytes] = [prelude, OPENING]
        self._rest = rest

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._pieces:
            return self._pieces.pop()
        if self._rest is None:
            raise StopIteration
        return next(self._rest)

    def close(self) -> None:
        """Ends the stream; harmless when it has ended."""
        if self._rest is not None:
            self._rest.close()


def join(key: str) -> RunReader:
    """The run as it stands, then what follows; raises the 410 of a run that expired meanwhile.

    Raises ``StoreError`` and ``TooManyStreams``.
    """
    run_input = accepted_input(key)
    prelude, seq = prelude_frames(run_input, frames_of(key))
    if not prelude:
        raise expired_run()
    ended = is_terminal(prelude[-1])
    return Join(b"".join(prelude), None if ended else follow(key, seq))


def accepted_input(key: str) -> RunAgentInput:
    """The input that a run was accepted with; raises the 410 when it is gone."""
    stored = services().store.runs.input_of(key)
    if stored is None:
        raise expired_run()
    return parse_input(stored, max_depth=ACCEPTED_DEPTH)


def frames_of(key: str) -> Iterator[bytes]:
    """The run's log page by page; a long fold lets other requests of the process in between pages."""
    log: EventLog = services().store.log
    read = 0
    while page := log.read(key, read, _PAGE):
        yield from page
        read += len(page)
        time.sleep(0)
