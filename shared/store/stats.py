"""Numbers: what the scripts counted per minute and since ever, summed over the buckets at reading."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.runs.identity import BUCKETS
from shared.store import keys
from shared.store.connection import Client, ask
from shared.store.scripts import Argument, run_each, scripts

BOUNDS_MS = (
    *(5, 10, 25, 50, 100, 250, 500),
    *(1000, 2500, 5000, 10_000, 30_000, 60_000),
    *(120_000, 300_000, 600_000, 1_800_000, 3_600_000),
)
"""Upper bounds of the histograms, the same as in ``_tally.lua``; one more slot takes what is longer."""

HISTOGRAMS = ("queue_wait", "first_event", "duration", "cancel_latency")
"""Ready to claim; ready to the agent's first event; claim to ending; cancel request to ending."""

MOST_MINUTES = 48 * 60
SETTLED_MINUTES = 2
"""A minute this old gets no more counts and is kept in memory."""

MINUTES_PER_CALL = 120
"""Read by one call of the script, so that it holds up nobody."""

DEPTHS_SECONDS = 172_800


@dataclass(slots=True)
class Histogram:
    """How many fell into each slot, and the sum of all in milliseconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    sum_ms: int = 0

    @property
    def count(self) -> int:
        """How many were observed."""
        return sum(self.counts)

    def quantile_ms(self, share: float) -> float | None:
        """The value below which ``share`` of them lie, interpolated within its slot; None without any."""
        total = self.count
        if not total:
            return None
        if total == 1:
            return self._single()
        rank, seen = share * total, 0
        for slot, count in enumerate(self.counts):
            if count and seen + count >= rank:
                low = BOUNDS_MS[slot - 1] if slot else 0
                high = BOUNDS_MS[slot] if slot < len(BOUNDS_MS) else low
                return low + (high - low) * (rank - seen) / count
            seen += count
        return float(BOUNDS_MS[-1])

    def _single(self) -> float:
        """The only value: the sum is it, unless that was counted apart and does not fit the slot."""
        slot = self.counts.index(1)
        low = BOUNDS_MS[slot - 1] if slot else 0
        high = BOUNDS_MS[slot] if slot < len(BOUNDS_MS) else math.inf
        return float(self.sum_ms if low <= self.sum_ms <= high else min(high, BOUNDS_MS[-1]))

    def document(self) -> dict[str, Any]:
        """As it is shown; percentiles are absent when nothing was observed."""
        shown: dict[str, Any] = {
            "bounds_ms": list(BOUNDS_MS),
            "counts": list(self.counts),
            "count": self.count,
            "sum_ms": self.sum_ms,
        }
        for name, share in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)):
            value = self.quantile_ms(share)
            if value is not None:
                shown[name] = round(value, 1)
        return shown


@dataclass(frozen=True, slots=True)
class Numbers:
    """Counts by field: ``endings`` by (agent, status, code)."""

    accepted: int
    endings: dict[tuple[str, str, str], int]
    histograms: dict[str, Histogram]


@dataclass(frozen=True, slots=True)
class Minute:
    """One minute since the epoch, with the deepest queue and oldest wait the sweep saw in it."""

    minute: int
    numbers: Numbers
    depth: int | None = None
    oldest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """The last minutes, the oldest first, and their sum."""

    minutes: tuple[Minute, ...]
    total: Numbers


class Stats:
    """Reads the counters; one per process, because minutes that are over are remembered."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._settled: dict[int, Counter[str]] = {}
        self._totals: Counter[str] = Counter()

    def overview(self, minutes: int = 60) -> Overview:
        """The last ``minutes``, the running one included; raises ``StoreError``."""
        now = int(ask(self.client.time)[0]) // 60
        wanted = range(now - min(minutes, MOST_MINUTES) + 1, now + 1)
        counted = self._minutes(list(wanted), now)
        depths = self._depths(list(wanted))
        total: Counter[str] = Counter()
        shown = []
        for minute in wanted:
            total.update(counted[minute])
            depth, oldest = depths[minute]
            shown.append(Minute(minute, _numbers(counted[minute]), depth, oldest))
        return Overview(tuple(shown), _numbers(total))

    def totals(self) -> Numbers:
        """Everything since the store was made; raises ``StoreError``."""

        def read() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            for bucket in BUCKETS:
                pipeline.hgetall(keys.totals(bucket))
            return list(pipeline.execute())

        return _numbers(_summed(ask(read)))

    def note_sweep(self, counts: Mapping[str, int]) -> None:
        """Counts one pass of the sweep and what it did."""

        def write() -> None:
            pipeline = self.client.pipeline(transaction=False)
            pipeline.hincrby(keys.SWEEPS, "passes", 1)
            for name, count in counts.items():
                if count:
                    pipeline.hincrby(keys.SWEEPS, name, count)
            pipeline.execute()

        ask(write, tries=1)

    def sweeps(self) -> dict[str, int]:
        """Passes of the sweep and what they did, since ever."""
        stored: dict[bytes, bytes] = ask(lambda: self.client.hgetall(keys.SWEEPS))
        return {name.decode(): int(count) for name, count in stored.items()}

    def ready(self) -> tuple[int, int | None]:
        """How many runs wait for a worker, and for how long the oldest has (ms)."""

        def read() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            for bucket in BUCKETS:
                pipeline.zcard(keys.ready(bucket))
            for bucket in BUCKETS:
                pipeline.zrange(keys.ready(bucket), 0, 0)
            pipeline.time()
            return list(pipeline.execute())

        answers = ask(read)
        heads = [row[0].decode() for row in answers[len(BUCKETS) : -1] if row]
        seconds, micros = answers[-1]
        return sum(answers[: len(BUCKETS)]), self._oldest(heads, int(seconds) * 1000 + int(micros) // 1000)

    def _oldest(self, heads: list[str], now_ms: int) -> int | None:
        # The sorted set knows the last queue message, the record since when the run is ready.
        def read() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            for key in heads:
                pipeline.hget(keys.record(key), "ready_at")
            return list(pipeline.execute())

        moments = [int(float(moment)) for moment in (ask(read) if heads else []) if moment]
        return max(0, now_ms - min(moments)) if moments else None

    def sample(self) -> None:
        """Notes the queue's depth for the running minute; the deepest and the oldest of each minute stay."""
        depth, oldest = self.ready()
        minute = int(ask(self.client.time)[0]) // 60
        name = keys.depths(minute)
        stored = ask(lambda: self.client.hmget(name, "depth", "oldest_ms"))
        fields: dict[Any, Any] = {
            "depth": max(depth, int(stored[0] or 0)),
            "oldest_ms": max(oldest or 0, int(stored[1] or 0)),
        }

        def write() -> None:
            pipeline = self.client.pipeline(transaction=False)
            pipeline.hset(name, mapping=fields)
            pipeline.expire(name, DEPTHS_SECONDS)
            pipeline.execute()

        ask(write)

    def _minutes(self, wanted: list[int], now: int) -> dict[int, Counter[str]]:
        missing = [minute for minute in wanted if minute not in self._settled]

        counted: dict[int, Counter[bytes]] = {minute: Counter() for minute in missing}
        calls: list[tuple[Sequence[str], Sequence[Argument]]] = [
            ([keys.totals(bucket)], [keys.prefix(bucket), *missing[at : at + MINUTES_PER_CALL]])
            for at in range(0, len(missing), MINUTES_PER_CALL)
            for bucket in BUCKETS
        ]
        for answer in ask(lambda: run_each(self.client, scripts().minutes, calls)) if calls else []:
            for at in range(0, len(answer), 2):
                total = counted[int(answer[at])]
                for name, count in zip(answer[at + 1][::2], answer[at + 1][1::2], strict=True):
                    total[name] += int(count)
        found = {minute: _summed([total]) for minute, total in counted.items()}
        known = dict(self._settled)
        settled = {minute: count for minute, count in found.items() if minute <= now - SETTLED_MINUTES}
        # A new mapping, so that other threads never see one that changes.
        self._settled = {
            minute: count for minute, count in (known | settled).items() if minute > now - MOST_MINUTES
        }
        return known | found

    def _depths(self, wanted: list[int]) -> dict[int, tuple[int | None, int | None]]:
        def read() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            for minute in wanted:
                pipeline.hmget(keys.depths(minute), "depth", "oldest_ms")
            return list(pipeline.execute())

        rows = ask(read)
        return {
            minute: tuple(int(value) if value is not None else None for value in row)  # type: ignore[misc]  # two each
            for minute, row in zip(wanted, rows, strict=True)
        }


def _summed(hashes: Iterable[Mapping[bytes, bytes | int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for stored in hashes:
        for name, count in stored.items():
            total[name.decode("utf-8", "replace")] += int(count)
    return total


def _numbers(counts: Mapping[str, int]) -> Numbers:
    endings: dict[tuple[str, str, str], int] = {}
    histograms = {name: Histogram() for name in HISTOGRAMS}
    for name, count in counts.items():
        if "|" in name:
            agent, status, code = name.rsplit("|", 2)
            endings[agent, status, code] = count
        elif ":" in name:
            histogram, slot = name.split(":", 1)
            if slot == "sum":
                histograms[histogram].sum_ms = count
            else:
                histograms[histogram].counts[int(slot)] = count
    return Numbers(counts.get("accepted", 0), endings, histograms)
