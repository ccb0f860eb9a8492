"""The live runs, read from their own index: what a person on call looks at, whatever else has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.runs.attention import Attention, Thresholds, attention
from shared.runs.identity import BUCKETS, bucket_of_key
from shared.runs.lifecycle import Status
from shared.settings import Settings
from shared.store import keys
from shared.store.connection import Client, ask
from shared.store.scripts import Argument, run_each, scripts

MOST_PER_BUCKET = 2000
"""How many live runs of one bucket are looked at, the oldest first."""

_WIDTH = 11
_TIMES = ("created_at", "ready_at", "started_at", "last_event_at", "cancel_requested_at")


@dataclass(frozen=True, slots=True)
class LiveRun:
    """The few facts of a live run by which trouble is recognised; times are ms since the epoch."""

    key: str
    status: Status
    times: dict[str, int]
    agent: str
    lease_until: int | None = None
    cancel_by: str | None = None
    worker: str | None = None


@dataclass(frozen=True, slots=True)
class LiveView:
    """All live runs at one moment; ``total`` exceeds their number when there are too many to look at."""

    now_ms: int
    total: int
    runs: tuple[LiveRun, ...]
    limits: Thresholds
    _found: dict[str, list[Attention]] = field(default_factory=dict, compare=False, repr=False)

    def attention(self, run: LiveRun) -> list[Attention]:
        """What is wrong with one of them; worked out once."""
        found = self._found.get(run.key)
        if found is None:
            found = self._found[run.key] = attention(run, self.now_ms, run.lease_until, self.limits)
        return found

    def counts(self) -> dict[str, int]:
        """How many are ready, waiting for their turn, running, and cancelling (these run too)."""
        queued = [run for run in self.runs if run.status is Status.QUEUED]
        ready = sum("ready_at" in run.times for run in queued)
        running = len(self.runs) - len(queued)
        cancelling = sum(
            "cancel_requested_at" in run.times for run in self.runs if run.status is Status.RUNNING
        )
        return {
            "queued": len(queued),
            "ready": ready,
            "waiting": len(queued) - ready,
            "running": running,
            "cancelling": cancelling,
            "total": self.total,
        }


def thresholds(settings: Settings) -> Thresholds:
    """The limits that the settings name."""
    return Thresholds(settings.stalled_seconds, settings.queued_long_seconds, settings.cancel_grace_seconds)


class LiveRuns:
    """Reads the live index. Methods raise ``StoreError`` when Redis does not answer."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.client = client
        self.limits = thresholds(settings)

    def view(self, most_per_bucket: int = MOST_PER_BUCKET) -> LiveView:
        """Every live run in one round trip."""
        calls: list[tuple[Sequence[str], Sequence[Argument]]] = [
            ([keys.live(bucket), keys.leases(bucket)], [keys.prefix(bucket), most_per_bucket])
            for bucket in BUCKETS
        ]
        answers = ask(lambda: run_each(self.client, scripts().live, calls))
        seconds, micros = ask(self.client.time)
        runs = [run for answer in answers for run in _runs(answer)]
        total = sum(int(answer[0]) for answer in answers)
        return LiveView(int(seconds) * 1000 + int(micros) // 1000, total, tuple(runs), self.limits)

    def lease_of(self, key: str) -> int | None:
        """When a run's lease runs out (ms since the epoch); None when it has none."""
        score = ask(lambda: self.client.zscore(keys.leases(bucket_of_key(key)), key))
        return int(score) if score is not None else None

    def leases_of(self, run_keys: list[str]) -> dict[str, int]:
        """The same for many runs in one round trip; those without a lease are left out."""

        def read() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            for key in run_keys:
                pipeline.zscore(keys.leases(bucket_of_key(key)), key)
            return list(pipeline.execute())

        scores = ask(read) if run_keys else []
        return {key: int(score) for key, score in zip(run_keys, scores, strict=True) if score is not None}


def _runs(answer: list[Any]) -> Iterator[LiveRun]:
    for at in range(1, len(answer), _WIDTH):
        row = answer[at : at + _WIDTH]
        times = {name: int(float(value)) for name, value in zip(_TIMES, row[2:7], strict=True) if value}
        yield LiveRun(
            key=row[0].decode(),
            status=Status(row[1].decode()),
            times=times,
            agent=row[9].decode(),
            lease_until=int(float(row[10])) if row[10] else None,
            cancel_by=row[7].decode("utf-8", "replace") or None,
            worker=row[8].decode() or None,
        )
