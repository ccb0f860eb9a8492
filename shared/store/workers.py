"""What live workers tell of themselves: heartbeats, and the catalogue of agents they have."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from shared.store import keys
from shared.store.connection import Client, ask
from shared.store.errors import StoreFull
from shared.store.scripts import scripts

HEARTBEAT_SECONDS = 2.0
"""Pause between two heartbeats of a worker."""

SILENT_SECONDS = 15
"""A worker not heard of for this long is gone."""

LATELY_SECONDS = 300
"""So long after its last worker an agent is still offered beside those of live ones: a deploy takes less."""

Offered = Literal["now", "lately", "once"]


@dataclass(frozen=True, slots=True)
class WorkerBeat:
    """One worker's last heartbeat; ``facts``: host, pid, pool, slots, busy, versions, started_at, agents."""

    name: str
    facts: dict[str, Any]
    silent_seconds: float = 0.0


class Workers:
    """Heartbeats and the agent catalogue. Methods raise ``StoreError`` when Redis does not answer."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def beat(self, name: str, facts: dict[str, Any], agents: dict[str, dict[str, Any]]) -> None:
        """Writes a heartbeat; ``agents`` maps name -> description, capabilities, policy."""
        told: list[str | int] = [json.dumps(facts | {"agents": sorted(agents)}), SILENT_SECONDS]
        ask(lambda: scripts().beat.run(self.client, [keys.worker(name)], told))

        def write() -> None:
            pipeline = self.client.pipeline(transaction=False)
            pipeline.sadd(keys.WORKERS, name)
            if agents:
                pipeline.hset(
                    keys.AGENTS, mapping={agent: json.dumps(facts) for agent, facts in agents.items()}
                )
            for agent in agents:
                pipeline.set(keys.offer(agent), 1, ex=LATELY_SECONDS)
            pipeline.execute()

        # Refused by a full Redis; they stand from earlier heartbeats.
        with suppress(StoreFull):
            ask(write)

    def leave(self, name: str) -> None:
        """Takes a worker that stops out of the list."""

        def write() -> None:
            pipeline = self.client.pipeline(transaction=False)
            pipeline.delete(keys.worker(name))
            pipeline.srem(keys.WORKERS, name)
            pipeline.hdel(keys.DRAINING, name)
            pipeline.execute()

        ask(write)

    def alive(self) -> list[WorkerBeat]:
        """Workers heard of within ``SILENT_SECONDS``."""
        members: set[bytes] = ask(lambda: self.client.smembers(keys.WORKERS))
        names = sorted(member.decode() for member in members)
        if not names:
            return []

        def read() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            pipeline.mget([keys.worker(name) for name in names])
            for name in names:
                pipeline.pttl(keys.worker(name))
            return list(pipeline.execute())

        beats, *left = ask(read)
        gone = [name for name, beat in zip(names, beats, strict=True) if beat is None]
        if gone:
            ask(lambda: self.client.srem(keys.WORKERS, *gone))
            ask(lambda: self.client.hdel(keys.DRAINING, *gone))
        return [
            WorkerBeat(name, json.loads(beat), max(0.0, SILENT_SECONDS - milliseconds / 1000))
            for name, beat, milliseconds in zip(names, beats, left, strict=True)
            if beat is not None
        ]

    def agents(self) -> dict[str, dict[str, Any]]:
        """Every agent that a worker of this installation has offered; empty when none was ever seen.

        Member ``offered`` says when: ``now`` by a live worker, ``lately`` (see ``LATELY_SECONDS``), ``once``.
        """
        stored: dict[bytes, bytes] = ask(lambda: self.client.hgetall(keys.AGENTS))
        if not stored:
            return {}
        now = {agent for beat in self.alive() for agent in beat.facts.get("agents", ())}
        names = sorted(stored)
        lately = ask(lambda: self.client.mget([keys.offer(name.decode()) for name in names]))
        return {
            name.decode(): json.loads(stored[name]) | {"offered": _offered(name.decode() in now, seen)}
            for name, seen in zip(names, lately, strict=True)
        }


def _offered(now: bool, seen: bytes | None) -> Offered:
    return "now" if now else "once" if seen is None else "lately"
