"""Lists of runs, newest first, merged over the buckets, page by page."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from shared.runs.identity import BUCKETS, bucket_of_thread, short_digest
from shared.runs.interrupts import Question
from shared.runs.lifecycle import Status
from shared.runs.record import RunRecord
from shared.store import keys
from shared.store.connection import Client, ask

_PAGE = 100


@dataclass(frozen=True, slots=True)
class Page:
    """Records of one page; ``cursor`` asks for the next one and is absent on the last."""

    records: tuple[RunRecord, ...]
    cursor: str | None = None


class RunListing:
    """Reads the indexes; raises ``StoreError`` without Redis, ``ValueError`` for a bad cursor."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def of_actor(
        self,
        actor: str,
        *,
        limit: int = 50,
        cursor: str | None = None,
        keep: Callable[[RunRecord], bool] | None = None,
    ) -> Page:
        """One actor's runs that ``keep`` lets through."""
        digest = short_digest(actor)
        return self._page([keys.runs_of_actor(bucket, digest) for bucket in BUCKETS], limit, cursor, keep)

    def of_thread(
        self,
        actor: str,
        thread_id: str,
        *,
        limit: int = 50,
        cursor: str | None = None,
        keep: Callable[[RunRecord], bool] | None = None,
    ) -> Page:
        """The runs of one actor's thread."""
        index = keys.runs_of_thread(bucket_of_thread(actor, thread_id), short_digest(actor, thread_id))
        return self._page([index], limit, cursor, keep)

    def of_all(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        keep: Callable[[RunRecord], bool] | None = None,
    ) -> Page:
        """Everybody's runs."""
        return self._page([keys.runs(bucket) for bucket in BUCKETS], limit, cursor, keep)

    def records(self, run_keys: list[str]) -> list[RunRecord]:
        """The records of these keys in one round trip; those that are gone are left out."""

        def read() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            for key in run_keys:
                pipeline.hgetall(keys.record(key))
                pipeline.llen(keys.log(key))
            return list(pipeline.execute())

        answers = ask(read) if run_keys else []
        pairs = zip(run_keys, answers[::2], answers[1::2], strict=True)
        return [RunRecord.from_fields(key, fields, int(length)) for key, fields, length in pairs if fields]

    def left_open(self, records: Iterable[RunRecord]) -> dict[str, list[Question]]:
        """Run key -> what that run asked and nobody has answered, by id; for those that are interrupted."""
        asking = [record for record in records if record.status is Status.INTERRUPTED]

        def read() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            for record in asking:
                own = record.identity
                thread = short_digest(own.actor, own.thread_id)
                pipeline.hgetall(keys.open_interrupts(own.bucket, thread))
            return list(pipeline.execute())

        found: dict[str, list[Question]] = {}
        for record, stored in zip(asking, ask(read) if asking else [], strict=True):
            questions = [Question.stored(id_, text) for id_, text in sorted(stored.items())]
            found[record.key] = [one for one in questions if one.run == record.key]
        return found

    def sizes(self) -> dict[str, int]:
        """How many runs are live, ended, and readable at all."""

        def read() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            for index in (keys.live, keys.ended, keys.runs):
                for bucket in BUCKETS:
                    pipeline.zcard(index(bucket))
            return list(pipeline.execute())

        counts, size = ask(read), len(BUCKETS)
        return {
            name: sum(counts[at * size : (at + 1) * size])
            for at, name in enumerate(("live", "ended", "runs"))
        }

    def _page(
        self,
        indexes: list[str],
        limit: int,
        cursor: str | None,
        keep: Callable[[RunRecord], bool] | None,
    ) -> Page:
        before = parse_cursor(cursor)
        kept: list[RunRecord] = []
        stream = self._newest_first(indexes, before)
        while len(kept) <= limit:
            chunk = [key for _, key in zip(range(_PAGE), stream, strict=False)]
            kept += [record for record in self.records(chunk) if keep is None or keep(record)]
            if len(chunk) < _PAGE:
                break
        shown = kept[:limit]
        more = len(kept) > limit
        return Page(tuple(shown), f"{shown[-1].times['created_at']}-{shown[-1].key}" if more else None)

    def _newest_first(self, indexes: list[str], before: tuple[int, str] | None) -> Iterator[str]:
        pages = [self._index(index, before) for index in indexes]
        for _, key in heapq.merge(*pages, reverse=True):
            yield key

    def _index(self, index: str, before: tuple[int, str] | None) -> Iterator[tuple[int, str]]:
        top: str | int = before[0] if before else "+inf"
        start = 0
        while True:
            read = partial(
                self.client.zrange,
                index,
                top,
                "-inf",
                desc=True,
                byscore=True,
                offset=start,
                num=_PAGE,
                withscores=True,
            )
            rows: list[tuple[bytes, float]] = ask(read)
            for member, score in rows:
                row = (int(score), member.decode())
                if before is None or row < before:
                    yield row
            if len(rows) < _PAGE:
                return
            start += _PAGE


def parse_cursor(cursor: str | None) -> tuple[int, str] | None:
    """Moment and run key that a page ended with; raises ValueError for what no page gave."""
    if not cursor:
        return None
    moment, _, key = cursor.partition("-")
    if not (moment.isdigit() and key):
        raise ValueError("not a cursor")
    return int(moment), key
