"""Short ways to bring a run into a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from shared.protocol import events, sse
from shared.runs.identity import RunIdentity
from shared.runs.outcome import Outcome
from shared.store import keys
from shared.store.answers import Accepted, Claim, Finish
from shared.store.ending import terminal_event
from shared.store.log import Batch
from shared.store.runs import new_execution
from shared.store.store import Store


@dataclass
class Bench:
    """Drives the store as web and worker do."""

    store: Store

    def accept(
        self, run_id: str = "r1", *, thread: str = "t1", actor: str = "ann", policy: str = "enqueue"
    ) -> Accepted:
        identity = RunIdentity(actor, thread, run_id)
        started = sse.frame(1, events.dump(events.run_started(thread, run_id)))
        return self.store.runs.accept(
            identity, agent="echo", run_input=b"{}", started_frame=started, policy=policy
        )

    def key(self, run_id: str = "r1", *, thread: str = "t1", actor: str = "ann") -> str:
        return RunIdentity(actor, thread, run_id).key

    def claim(self, key: str, execution: str | None = None, worker: str = "w1", pid: int = 7) -> Claim | None:
        return self.store.runs.claim(key, execution or new_execution(), worker=worker, host="h", pid=pid)

    def running(self, run_id: str = "r1", **where: str) -> Claim:
        self.accept(run_id, **where)
        claim = self.claim(self.key(run_id, **where))
        assert claim is not None
        return claim

    def batch(self, claim: Claim, first: int, texts: Sequence[str]) -> Batch:
        frames = tuple(
            sse.frame(first + index, events.dump(events.CustomEvent(name="word", value=text)))
            for index, text in enumerate(texts)
        )
        return Batch(claim.key, claim.execution, first, frames)

    def finish(self, claim: Claim, first: int, outcome: Outcome | None = None) -> Finish:
        ending = outcome or Outcome.succeeded()
        frame = sse.frame(first, events.dump(terminal_event(claim.identity, ending)))
        return self.store.runs.finish(
            claim.key, claim.execution, first_seq=first, outcome=ending, frames=[frame]
        )

    def long_known(self, key: str) -> None:
        """As if this server had been seen for long in the run's bucket."""
        self.store.client.hset(keys.prefix(key[:2]) + "server", "seen_at", 1)

    def types(self, key: str) -> list[str]:
        """Event types in the log; checks on the way that seqs have no holes."""
        frames = self.store.log.read_all(key)
        assert [sse.seq_of(frame) for frame in frames] == list(range(1, len(frames) + 1))
        return [str(events.parse(sse.data_of(frame)).type.value) for frame in frames]


@pytest.fixture
def bench(store: Store) -> Bench:
    return Bench(store)
