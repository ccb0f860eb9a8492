"""What operators switch: the intake of runs, and single workers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from shared.runs.identity import BUCKETS
from shared.runs.record import rfc3339
from shared.store import keys
from shared.store.connection import Client, ask


@dataclass(frozen=True, slots=True)
class Switch:
    """Who switched something, when (ms since the epoch) and why; ``exit`` lets a drained worker end."""

    by: str
    since: int
    reason: str | None = None
    exit: bool = False

    def document(self) -> dict[str, Any]:
        """As it is shown, absent members left out."""
        shown: dict[str, Any] = {"by": self.by, "since": rfc3339(self.since)}
        return (
            shown | ({"reason": self.reason} if self.reason else {}) | ({"exit": True} if self.exit else {})
        )


class Controls:
    """Raises ``StoreError`` when Redis does not answer; every switch may be repeated."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def pause(self, *, by: str, reason: str | None = None) -> None:
        """From now on no worker gets a run; what is queued waits and does not time out."""
        told = self._told(by, reason)

        def write() -> None:
            pipeline = self.client.pipeline(transaction=False)
            for bucket in BUCKETS:
                pipeline.hsetnx(keys.intake(bucket), "paused", told)
            pipeline.execute()

        ask(write)

    def resume(self) -> bool:
        """Lets workers take runs again, the sweep sends what waited; False when nothing was paused."""
        now = self._now_ms()

        def write() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            for bucket in BUCKETS:
                pipeline.hdel(keys.intake(bucket), "paused")
                pipeline.hset(keys.intake(bucket), "resumed_at", now)
            return list(pipeline.execute())

        return any(ask(write)[::2])

    def paused(self) -> Switch | None:
        """Who paused the intake, or None."""
        told = ask(lambda: self.client.hget(keys.intake(BUCKETS[0]), "paused"))
        return _read(told) if told else None

    # --- workers ------------------------------------------------------------------------------------------

    def drain(self, worker: str, *, by: str, reason: str | None = None) -> None:
        """The worker takes no more runs from its next heartbeat on, until ``undrain`` or its restart."""
        told = self._told(by, reason)
        ask(lambda: self.client.hset(keys.DRAINING, worker, told))

    def shut_down(self, worker: str, *, by: str, reason: str | None = None) -> None:
        """The worker shuts down from its next heartbeat on, as if it got SIGTERM; it cannot be taken back."""
        told = self._told(by, reason, exit=True)
        ask(lambda: self.client.hset(keys.DRAINING, worker, told))

    def undrain(self, worker: str) -> bool:
        """Lets it take runs again; False when it was not drained."""
        return bool(ask(lambda: self.client.hdel(keys.DRAINING, worker)))

    def draining(self) -> dict[str, Switch]:
        """Worker name -> who drained it."""
        stored: dict[bytes, bytes] = ask(lambda: self.client.hgetall(keys.DRAINING))
        return {name.decode(): _read(told) for name, told in stored.items()}

    def drained(self, worker: str) -> Switch | None:
        """Who said that this worker is to take no more runs, or to shut down; None when nobody did."""
        told = ask(lambda: self.client.hget(keys.DRAINING, worker))
        return _read(told) if told else None

    def kill_child(self, key: str, execution: str, *, worker: str, pid: int) -> None:
        """Asks a worker's main process to kill the pool child that still executes this run."""
        message = f"child {key} {execution} {worker} {pid}"
        ask(lambda: self.client.publish(keys.family_channel(worker), message))

    def _told(self, by: str, reason: str | None, **more: bool) -> str:
        return json.dumps({"by": by, "since": self._now_ms(), "reason": reason, **more})

    def _now_ms(self) -> int:
        seconds, micros = ask(self.client.time)
        return int(seconds) * 1000 + int(micros) // 1000


def _read(told: bytes) -> Switch:
    facts = json.loads(told)
    return Switch(facts["by"], facts["since"], facts["reason"], facts.get("exit", False))
