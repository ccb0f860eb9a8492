"""The event log of a run: a list of frames whose index is seq - 1, and the channel that announces them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError

from shared.store import keys
from shared.store.answers import Append
from shared.store.connection import Client, ask, translate
from shared.store.errors import StoreError
from shared.store.runs import DOORBELL_BYTES
from shared.store.scripts import run_pipelined, scripts

PAGE_BYTES = 256 * 1024
"""About how much of a log is read in one go."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Frames of one run in order, frozen until answered; ``first_seq`` numbers the first of them."""

    key: str
    execution: str
    first_seq: int
    frames: tuple[bytes, ...]


class EventLog:
    """Appends and reads frames. Methods raise ``StoreError`` when Redis does not answer."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.script = scripts().append

    def append(self, batch: Batch) -> Append:
        """Appends one batch, asked once: the caller repeats the same batch when uncertain."""
        try:
            return _answer(self.script.run(self.client, *_call(batch)))
        except RedisError as error:
            raise translate(error) from error

    def append_many(self, batches: Sequence[Batch]) -> list[Append | StoreError]:
        """Appends batches of many runs in one round trip; an answer may be the error of that batch alone."""
        try:
            if len(batches) == 1:
                return [_answer(self.script.run(self.client, *_call(batches[0])))]
            answers = run_pipelined(self.client, self.script, [_call(batch) for batch in batches])
        except RedisError as error:
            raise translate(error) from error
        return [
            translate(answer) if isinstance(answer, RedisError) else _answer(answer) for answer in answers
        ]

    def read(self, key: str, after: int = 0, most: int = 1000, most_bytes: int = PAGE_BYTES) -> list[bytes]:
        """At most ``most`` frames after seq ``after``; fewer when they are large, but one at least."""
        arguments = [after, most, most_bytes]
        frames: list[bytes] = ask(lambda: scripts().page.run(self.client, [keys.log(key)], arguments))
        return frames

    def read_all(self, key: str) -> list[bytes]:
        """Every frame of a run."""
        frames: list[bytes] = ask(lambda: self.client.lrange(keys.log(key), 0, -1))
        return frames

    def last_seqs(self, run_keys: Sequence[str]) -> list[int]:
        """The last seq of each run in one round trip; 0 when there is no log."""

        def measure() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            for key in run_keys:
                pipeline.llen(keys.log(key))
            return list(pipeline.execute())

        return [int(length) for length in ask(measure)] if run_keys else []


def _call(batch: Batch) -> tuple[list[str], list[Any]]:
    size = sum(map(len, batch.frames))
    arguments: list[Any] = [
        batch.key,
        batch.execution,
        batch.first_seq,
        size,
        DOORBELL_BYTES,
        keys.run_channel(batch.key),
        *batch.frames,
    ]
    return [keys.record(batch.key), keys.log(batch.key)], arguments


def _answer(answer: Any) -> Append:
    state = answer[0].decode()
    if state == "ok":
        return Append("ok", int(answer[1]), answer[2].decode() or None)
    return Append(state, int(answer[1]) if state == "gap" else 0)
