"""Records one run's ending: the rest of its log, the closing events, the terminal event and the outcome."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from pydantic import ValidationError

from shared.logs import get_logger
from shared.protocol import events, sse
from shared.protocol.events import SerializationError
from shared.protocol.verifier import VerificationError
from shared.runs.lifecycle import Status
from shared.runs.outcome import SENTENCES, FailureCode, Outcome
from shared.settings import Settings
from shared.store.answers import Finish
from shared.store.ending import terminal_event
from shared.store.errors import StoreError
from shared.store.runs import RunStore
from worker.emitter import RunEmitter
from worker.execution import Execution
from worker.failures import classify

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
        )
        if finish.state == "gap":
            return None if emitter.rewound(finish.last_seq) else finish
        if finish.state == "unclaimed":
            return None if self._reclaim(self.execution) else finish
        return finish

    def _close(self, emitter: RunEmitter) -> list[bytes]:
        """Closing events and the terminal event as frames, numbered after everything emitted."""
        try:
            made = self._closers(emitter)
            made.append(self._terminal(emitter))
            return _framed(made, emitter.next_seq)
        except (VerificationError, ValidationError, SerializationError) as error:
            log.warning("run.not_closed_in_order", run=self.execution.key, error=type(error).__name__)
            if self.outcome.status is Status.CANCELLED:
                code = FailureCode.CANCELLED
                terminal: events.Event = events.run_error(SENTENCES[code], str(code))
            else:
                self.outcome = classify(error)
                terminal = terminal_event(self.execution.claim.identity, self.outcome)
            return _framed([terminal], emitter.next_seq)

    def _closers(self, emitter: RunEmitter) -> list[events.Event]:
        if emitter.pending_terminal is not None:
            return []
        code = str(self.outcome.code or FailureCode.CANCELLED)
        closers = emitter.verifier.closing_events(subagent_code=code)
        if self.outcome.status is Status.SUCCEEDED:
            # Left open by an agent that came to its end: finished, not stopped.
            closers = [
                events.SubagentFinishedEvent(subagent_run_id=event.subagent_run_id)
                if isinstance(event, events.SubagentErrorEvent)
                else event
                for event in closers
            ]
        for event in closers:
            emitter.verifier.observe(event)
        return closers

    def _terminal(self, emitter: RunEmitter) -> events.Event:
        said = emitter.pending_terminal
        if isinstance(said, events.RunErrorEvent):
            return said.model_copy(update={"code": str(self.outcome.code)})
        if said is not None:
            return said
        pending = emitter.verifier.unanswered_calls
        if self.outcome.status is Status.SUCCEEDED and pending:
            wire = {"type": "success", "pendingToolCallIds": list(pending)}
            self.outcome = dataclasses.replace(self.outcome, wire=wire)
        terminal = terminal_event(self.execution.claim.identity, self.outcome)
        usage = self.execution.context.usage if self.execution.context else None
        if usage:
            terminal = terminal.model_copy(update={"usage": list(usage)})
        emitter.verifier.observe(terminal)
        return terminal


def _framed(made: list[events.Event], first_seq: int) -> list[bytes]:
    return [sse.frame(first_seq + index, events.dump(event)) for index, event in enumerate(made)]
