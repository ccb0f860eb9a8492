"""The last events of a run: what closes everything in order, then the terminal event."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from shared.logs import get_logger
from shared.protocol import events
from shared.protocol.events import Event
from shared.protocol.verifier import Verifier
from shared.runs.identity import RunIdentity
from shared.runs.lifecycle import Status
from shared.runs.outcome import SENTENCES, FailureCode, Outcome
from shared.store.ending import terminal_event
from worker.failures import classify
from worker.terminal import TERMINAL, completed, told_by, wire_of
from worker.transformation import Transformation, TransformerFailed

log = get_logger(__name__)


class Ending:
    """Ends one run. Its events pass the run's transformers, as the agent's did, and the verifier.

    ``carry_out`` is called once; then ``lines`` are the events as JSON and ``outcome`` is what they tell,
    which is another one than was given when the run could not be ended as it was decided. Without
    ``incidents`` a failure's text carries no incident id, so that two endings compare equal.
    """

    def __init__(
        self,
        identity: RunIdentity,
        outcome: Outcome,
        *,
        verifier: Verifier,
        transformation: Transformation | None = None,
        usage: Iterable[Any] = (),
        said: Event | None = None,
        incidents: bool = True,
    ) -> None:
        self.outcome = outcome
        self.lines: list[bytes] = []
        self._identity = identity
        self._verifier = verifier
        self._transformation = transformation
        self._usage = usage
        self._said = said
        self._incidents = incidents

    def carry_out(self) -> None:
        """Makes the events; nothing escapes."""
        if self._said is not None:
            self._repeat(self._said)
            return
        try:
            self._close()
            self._finish()
        except TransformerFailed as error:
            log.warning("run.transformer_failed", error=str(error))
            self._transformation = None
            if self.outcome.status in {Status.SUCCEEDED, Status.INTERRUPTED}:
                self.outcome = classify(error)
            self._without_transformers()
        except Exception as error:  # noqa: BLE001 - a run that cannot be ended would be lost
            self._out_of_order(error)

    def _without_transformers(self) -> None:
        try:
            self._close()
            self._finish()
        except Exception as error:  # noqa: BLE001 - as above
            self._out_of_order(error)

    def _repeat(self, said: Event) -> None:
        """The agent ended the run itself; only the code is the worker's to say."""
        if isinstance(said, events.RunErrorEvent):
            said = said.model_copy(update={"code": str(self.outcome.code)})
        self.lines.append(events.dump(said))

    def _out_of_order(self, error: Exception) -> None:
        """RUN_ERROR may leave anything open, so it is always right."""
        log.warning("run.not_closed_in_order", error=type(error).__name__)
        if self.outcome.status is Status.CANCELLED:
            code = FailureCode.CANCELLED
            terminal: Event = events.run_error(SENTENCES[code], str(code))
        else:
            self.outcome = classify(error)
            terminal = self._terminal()
        try:
            self._take(self._last(terminal)[-1])
        except Exception:  # noqa: BLE001 - as above
            self._take(terminal)

    def _close(self) -> None:
        for event in self._closers():
            for made in self._transformed(event):
                if not isinstance(made, TERMINAL):
                    self._take(made)
        # What transformers swallowed is closed all the same, or the run could not end in order.
        for event in self._closers():
            self._take(event)

    def _closers(self) -> list[Event]:
        code = str(self.outcome.code or FailureCode.CANCELLED)
        closers = self._verifier.closing_events(subagent_code=code)
        if self.outcome.status is not Status.SUCCEEDED:
            return closers
        # Left open by an agent that came to its end: finished, not stopped.
        return [
            events.SubagentFinishedEvent(subagent_run_id=event.subagent_run_id)
            if isinstance(event, events.SubagentErrorEvent)
            else event
            for event in closers
        ]

    def _finish(self) -> None:
        for event in self._last(self._terminal()):
            self._take(event)
            if isinstance(event, events.RunFinishedEvent):
                self.outcome = dataclasses.replace(self.outcome, wire=wire_of(event) or self.outcome.wire)

    def _terminal(self) -> Event:
        told = self.outcome if self._incidents else dataclasses.replace(self.outcome, incident=None)
        return terminal_event(self._identity, told)

    def _last(self, terminal: Event) -> list[Event]:
        """What becomes of the terminal event; transformers may add to it, not change how the run ends."""
        terminal = completed(terminal, self._verifier, self._usage)
        *before, last = self._transformed(terminal)
        if _same_ending(last, terminal):
            return [*before, last]
        log.warning("run.ending_not_changed", type=str(last.type.value))
        return [*before, terminal]

    def _transformed(self, event: Event) -> list[Event]:
        return self._transformation.last(event) if self._transformation else [event]

    def _take(self, event: Event) -> None:
        line = events.dump(event)
        self._verifier.observe(event)
        self.lines.append(line)


def _same_ending(made: Event, given: Event) -> bool:
    """Whether a transformer left alone how the run ends; it may add to the event, not change that."""
    told, decided = told_by(made), told_by(given)
    return type(made) is type(given) and told.status is decided.status and _code(made) == _code(given)


def _code(event: Event) -> str | None:
    return event.code if isinstance(event, events.RunErrorEvent) else None
