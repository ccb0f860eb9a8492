"""Puts a run's events into the store as a worker does."""

from __future__ import annotations

from shared.protocol import sse
from shared.runs.identity import RunIdentity
from shared.runs.outcome import Outcome
from shared.store.log import Batch
from shared.store.runs import new_execution
from shared.store.store import Store


class Producer:
    """One run and what has been written of it."""

    def __init__(
        self, store: Store, run_id: str = "run", thread_id: str = "thread", actor: str = "ada"
    ) -> None:
        self.store = store
        self.identity = RunIdentity(actor, thread_id, run_id)
        self.key = self.identity.key
        self.execution = new_execution()
        self.last = 0

    def accept(self) -> Producer:
        started = b'{"type":"RUN_STARTED","threadId":"thread","runId":"run"}'
        self.store.runs.accept(
            self.identity, agent="echo", run_input=b"{}", started_frame=sse.frame(1, started)
        )
        self.last = 1
        return self

    def claim(self) -> Producer:
        assert self.store.runs.claim(self.key, self.execution, worker="w@h", host="h", pid=1)
        return self

    def start(self) -> Producer:
        return self.accept().claim()

    def say(self, *texts: str) -> None:
        """One batch of deltas."""
        frames = tuple(
            sse.frame(
                self.last + 1 + n,
                b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"%b"}' % text.encode(),
            )
            for n, text in enumerate(texts)
        )
        answer = self.store.log.append(Batch(self.key, self.execution, self.last + 1, frames))
        assert answer.state == "ok", answer
        self.last += len(frames)

    def finish(self) -> None:
        terminal = b'{"type":"RUN_FINISHED","threadId":"thread","runId":"run"}'
        outcome = Outcome.succeeded()
        frames = [sse.frame(self.last + 1, terminal)]
        answer = self.store.runs.finish(
            self.key, self.execution, first_seq=self.last + 1, outcome=outcome, frames=frames
        )
        assert answer.recorded, answer
        self.last += 1

    def log(self, after: int = 0) -> bytes:
        return b"".join(self.store.log.read_all(self.key)[after:])
