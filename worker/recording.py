"""Records one run's ending: the rest of its log, the closing events, the terminal event and the outcome."""

from __future__ import annotations

import time
from collections.abc import Callable

from shared.logs import get_logger
from shared.protocol import sse
from shared.runs.outcome import Outcome
from shared.settings import Settings
from shared.store.answers import Finish
from shared.store.errors import StoreError
from shared.store.runs import RunStore
from worker.emitter import RunEmitter
from worker.ending import Ending
from worker.execution import Execution

PATIENCE_SECONDS = 300.0
"""How long beyond the lease an outcome is offered to a Redis that does not answer."""

_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)

log = get_logger(__name__)


class Recording:
    """One execution's ending; ``carry_out`` may be repeated, even after a success: it stays one ending."""

    def __init__(
        self,
        execution: Execution,
        outcome: Outcome,
        runs: RunStore,
        settings: Settings,
        reclaim: Callable[[Execution], bool],
    ) -> None:
        self.execution = execution
        self.outcome = outcome
        self.at = time.monotonic()
        self._runs = runs
        self._patience = settings.lease_seconds + PATIENCE_SECONDS
        self._reclaim = reclaim
        self._closing: list[bytes] | None = None

    def carry_out(self) -> Finish | None:
        """The store's answer: ours, or somebody else's ending; None when it never came."""
        emitter = self.execution.emitter
        if emitter is None:
            return None
        emitter.seal()
        give_up = time.monotonic() + self._patience
        failures = 0
        while time.monotonic() < give_up:
            try:
                finish = self._once(emitter)
            except StoreError as error:
                if not failures:
                    log.warning("run.record_delayed", run=self.execution.key, error=type(error).__name__)
                time.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
                failures += 1
                continue
            if finish is not None:
                self.at = time.monotonic()
                return finish
        return None

    def _once(self, emitter: RunEmitter) -> Finish | None:
        """One try; None means that something was repaired and the next try may succeed."""
        rest = emitter.rest(timeout=1.0)
        if rest is None:
            return None
        first_seq, frames = rest
        if self._closing is None:
            self._closing = self._close(emitter)
        finish = self._runs.finish(
            self.execution.key,
            self.execution.id,
            first_seq=first_seq,
            outcome=self.outcome,
            frames=[*frames, *self._closing],
            extra=self._extra(),
        )
        if finish.state == "gap":
            return None if emitter.rewound(finish.last_seq) else finish
        if finish.state == "unclaimed":
            return None if self._reclaim(self.execution) else finish
        return finish

    def _close(self, emitter: RunEmitter) -> list[bytes]:
        """Closing events and the terminal event as frames, numbered after everything emitted."""
        ctx = self.execution.context
        ending = Ending(
            self.execution.claim.identity,
            self.outcome,
            verifier=emitter.verifier,
            transformation=ctx.transformation if ctx else None,
            usage=ctx.usage if ctx else (),
            said=emitter.pending_terminal,
        )
        ending.carry_out()
        self.outcome = ending.outcome
        return [sse.frame(emitter.next_seq + index, line) for index, line in enumerate(ending.lines)]

    def _extra(self) -> dict[str, str]:
        ctx = self.execution.context
        calls = ctx.provider_calls.stored() if ctx else None
        return {} if calls is None else {"provider_calls": calls}
