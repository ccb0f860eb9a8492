"""Finds runs by what an operator knows of them: the smallest index is walked, the others are asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.runs.identity import BUCKETS, KEY_PATTERN, bucket_of_thread, short_digest
from shared.runs.lifecycle import Status, is_terminal
from shared.runs.record import RunRecord
from shared.store import keys
from shared.store.connection import Client, ask
from shared.store.listing import RunListing, parse_cursor
from shared.store.live import LiveRuns
from shared.store.scripts import run_each, scripts

MOST_LOOKED_AT = 3000
"""How many runs of one bucket one page looks at; a page that found less says where to go on."""

MOST_READ = 500
"""The same where every record has to be read: for a text, a thread of any actor, several statuses."""

_WORDS = {"q": "text", "code": "failure"}
"""What a filter's members are called where their names would say too little."""

LEAST_READ = 100
"""How many records of runs in trouble are read at once until a page is full."""

_LIVE = frozenset({str(Status.QUEUED), str(Status.RUNNING)})


@dataclass(frozen=True, slots=True)
class Filter:
    """What is looked for; what is absent does not matter. Ages are in seconds since the acceptance."""

    statuses: frozenset[str] = frozenset()
    agent: str | None = None
    actor: str | None = None
    thread: str | None = None
    code: str | None = None
    older_than: float | None = None
    newer_than: float | None = None
    attention: frozenset[str] = field(default_factory=frozenset)
    text: str | None = None

    @property
    def empty(self) -> bool:
        """Whether every run fits."""
        return not self.document()

    @property
    def live_only(self) -> bool:
        """Whether only live runs can fit."""
        return bool(self.attention) or (
            bool(self.statuses) and not any(is_terminal(status) for status in self.statuses)
        )

    def document(self) -> dict[str, Any]:
        """As a query names it; absent members left out."""
        listed = {"status": sorted(self.statuses), "attention": sorted(self.attention)}
        named = {name: value for name, value in listed.items() if value}
        for name in ("agent", "actor", "thread", "code", "older_than", "newer_than"):
            if getattr(self, name) is not None:
                named[name] = getattr(self, name)
        return named | ({"q": self.text} if self.text else {})

    def words(self) -> str:
        """For people."""
        shown = []
        for name, value in self.document().items():
            if isinstance(value, list):
                text = " or ".join(word.replace("_", " ") for word in value)
            else:
                text = f"{value:.12g} s" if isinstance(value, float | int) else f"{value}"
            shown.append(f"{_WORDS.get(name, name.replace('_', ' '))} {text}")
        return ", ".join(shown) or "every run"

    def fits(self, record: RunRecord, now_ms: int) -> bool:
        """Whether a record fits, apart from ``attention``."""
        age = (now_ms - record.times["created_at"]) / 1000
        ids = (record.key, record.identity.run_id, record.identity.thread_id)
        return (
            (not self.statuses or record.status in self.statuses)
            and self.agent in {None, record.agent}
            and self.actor in {None, record.identity.actor}
            and self.thread in {None, record.identity.thread_id}
            and self.code in {None, record.texts.get("code")}
            and (self.older_than is None or age >= self.older_than)
            and (self.newer_than is None or age <= self.newer_than)
            and (self.text is None or any(self.text in name for name in ids))
        )


def filter_of(document: dict[str, Any]) -> Filter:
    """Reads back what ``Filter.document`` wrote."""
    texts = {name: document.get(name) for name in ("agent", "actor", "thread", "code")}
    return Filter(
        statuses=frozenset(document.get("status", ())),
        attention=frozenset(document.get("attention", ())),
        older_than=document.get("older_than"),
        newer_than=document.get("newer_than"),
        text=document.get("q"),
        **texts,
    )


@dataclass(frozen=True, slots=True)
class Found:
    """Keys, newest first; ``cursor`` asks for what follows, ``partial`` says that the bound was reached."""

    keys: tuple[str, ...]
    cursor: str | None = None
    partial: bool = False


class RunSearch:
    """Raises ``StoreError`` when Redis does not answer, ``ValueError`` for a bad cursor."""

    def __init__(self, client: Client, listing: RunListing, live: LiveRuns) -> None:
        self.client = client
        self.listing = listing
        self.live = live

    def find(self, wanted: Filter, *, limit: int = 50, cursor: str | None = None) -> Found:
        """One page of the runs that fit."""
        before = parse_cursor(cursor)
        if wanted.attention:
            return self._in_trouble(wanted, limit, before)
        if wanted.text and KEY_PATTERN.fullmatch(wanted.text) and cursor is None:
            records = self.listing.records([wanted.text])
            if records and wanted.fits(records[0], self._now_ms()):
                return Found((wanted.text,))
        reads = wanted.text or wanted.thread or self._statuses_to_check(wanted)
        return self._walk(wanted, limit, before, MOST_READ if reads else MOST_LOOKED_AT)

    def live_matches(self, wanted: Filter, most: int) -> Found:
        """Every live run that fits, the newest ``most`` of them; the whole live index is looked at."""
        statuses = (wanted.statuses & _LIVE) if wanted.statuses else _LIVE
        if not statuses:
            return Found(())
        narrowed = dataclasses.replace(wanted, statuses=statuses)
        if wanted.attention:
            return self._in_trouble(narrowed, most, None)
        return self._walk(narrowed, most, None, 1_000_000)

    # --- by index -----------------------------------------------------------------------------------------

    def _walk(self, wanted: Filter, limit: int, before: tuple[int, str] | None, budget: int) -> Found:
        buckets, kinds = self._indexes(wanted)
        newest, oldest = self._moments(wanted)
        after_key = ""
        if before and (newest is None or before[0] <= newest):
            newest, after_key = before
        arguments = [
            "+inf" if newest is None else newest,
            after_key,
            "-inf" if oldest is None else oldest,
            limit + 1,
            budget,
            self._statuses_to_check(wanted),
            wanted.thread or "",
            wanted.text or "",
        ]
        calls = [([kind(bucket) for kind in kinds], [keys.prefix(bucket), *arguments]) for bucket in buckets]
        answers = ask(lambda: run_each(self.client, scripts().search, calls))
        return _merged(answers, limit)

    def _indexes(self, wanted: Filter) -> tuple[Sequence[str], list[Any]]:
        """The buckets, and the indexes that have every fitting run, the smallest first."""
        kinds: list[Any] = []
        if wanted.live_only:
            kinds.append(keys.live)
        if len(wanted.statuses) == 1 and not wanted.live_only:
            (status,) = wanted.statuses
            kinds.append(lambda bucket: keys.ended_with_status(bucket, status))
        if wanted.code is not None:
            code = wanted.code
            kinds.append(lambda bucket: keys.failed_with_code(bucket, code))
        if wanted.agent is not None:
            agent = wanted.agent
            kinds.append(lambda bucket: keys.runs_of_agent(bucket, agent))
        buckets: Sequence[str] = BUCKETS
        if wanted.actor is not None:
            actor = short_digest(wanted.actor)
            kinds.append(lambda bucket: keys.runs_of_actor(bucket, actor))
            if wanted.thread is not None:
                buckets = (bucket_of_thread(wanted.actor, wanted.thread),)
                thread = short_digest(wanted.actor, wanted.thread)
                kinds.append(lambda bucket: keys.runs_of_thread(bucket, thread))
        if len(kinds) <= 1:
            return buckets, kinds or [keys.runs]

        def measure() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            for kind in kinds:
                for bucket in buckets:
                    pipeline.zcard(kind(bucket))
            return list(pipeline.execute())

        sizes = ask(measure)
        totals = [sum(sizes[at * len(buckets) : (at + 1) * len(buckets)]) for at in range(len(kinds))]
        smallest_first = sorted(range(len(kinds)), key=totals.__getitem__)
        return buckets, [kinds[at] for at in smallest_first]

    @staticmethod
    def _statuses_to_check(wanted: Filter) -> str:
        """Those that no index vouches for."""
        if wanted.live_only and wanted.statuses >= _LIVE:
            return ""
        if len(wanted.statuses) == 1 and not wanted.live_only:
            return ""
        return " ".join(sorted(wanted.statuses))

    def _moments(self, wanted: Filter) -> tuple[int | None, int | None]:
        if wanted.older_than is None and wanted.newer_than is None:
            return None, None
        now = self._now_ms()
        newest = now - int(wanted.older_than * 1000) if wanted.older_than is not None else None
        oldest = now - int(wanted.newer_than * 1000) if wanted.newer_than is not None else None
        return newest, oldest

    def _now_ms(self) -> int:
        seconds, micros = ask(self.client.time)
        return int(seconds) * 1000 + int(micros) // 1000

    # --- by trouble ---------------------------------------------------------------------------------------

    def _in_trouble(self, wanted: Filter, limit: int, before: tuple[int, str] | None) -> Found:
        view = self.live.view()
        troubled = sorted(
            (
                (run.times["created_at"], run.key)
                for run in view.runs
                if any(one.kind in wanted.attention for one in view.attention(run))
            ),
            reverse=True,
        )
        rows = [row for row in troubled if before is None or row < before]
        fitting: list[RunRecord] = []
        step = max(limit + 1, LEAST_READ)
        for at in range(0, len(rows), step):
            records = self.listing.records([key for _, key in rows[at : at + step]])
            fitting += [record for record in records if wanted.fits(record, view.now_ms)]
            if len(fitting) > limit:
                break
        shown = fitting[:limit]
        more = f"{shown[-1].times['created_at']}-{shown[-1].key}" if len(fitting) > limit else None
        return Found(tuple(record.key for record in shown), more)


def _merged(answers: list[Any], limit: int) -> Found:
    rows: list[tuple[int, str]] = []
    horizon: tuple[int, str] | None = None
    for kept, moment, key in answers:
        rows += [(int(float(kept[at + 1])), kept[at].decode()) for at in range(0, len(kept), 2)]
        if key:
            # Beyond this one nothing is known of the bucket.
            stopped = (int(float(moment)), key.decode())
            horizon = stopped if horizon is None else max(horizon, stopped)
    rows.sort(reverse=True)
    sure = [row for row in rows if horizon is None or row >= horizon]
    shown = sure[:limit]
    if len(sure) > limit:
        return Found(tuple(key for _, key in shown), f"{shown[-1][0]}-{shown[-1][1]}")
    if horizon is not None:
        return Found(tuple(key for _, key in shown), f"{horizon[0]}-{horizon[1]}", partial=True)
    return Found(tuple(key for _, key in shown))
