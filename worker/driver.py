"""Drives one run: claim, prepare, run, decide, record. Whatever escapes the agent becomes one ending."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from shared import tracing
from shared.logs import bound, get_logger
from shared.protocol import events, sse
from shared.protocol.verifier import VerificationError, Verifier
from shared.runs.outcome import FailureCode, Outcome, StopCause
from shared.store.answers import Claim
from shared.store.errors import StoreError
from shared.store.interrupts import end_uncovered
from shared.store.runs import new_execution
from worker.agents.base import AgentEntry
from worker.context import RunContext
from worker.decision import decide
from worker.emitter import RunEmitter
from worker.execution import Execution
from worker.failures import classify
from worker.forms import Ended, Running
from worker.recording import Recording

if TYPE_CHECKING:
    from worker.process import Process

MOST_HANDBACKS = 3
"""How often a run is handed back by workers that lack its agent before it ends ``unknown_agent``."""

_CLAIM_PAUSES = (0.05, 0.1, 0.2, 0.5)

log = get_logger(__name__)


class Driver:
    """Executes runs in this process; ``execute`` is called with the key that a queue message hints at."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.settings = process.settings
        self.store = process.store

    def execute(self, key: str) -> None:
        """Takes the run, if it is to be had, to its recorded ending; nothing escapes."""
        with bound(run=key):
            try:
                self._execute(key)
            except BaseException as error:  # a message must never take the worker down
                log.exception("run.driver_failed", error=type(error).__name__)

    def _execute(self, key: str) -> None:
        if self.process.draining:
            self.process.queue.enqueue(key)
            log.info("run.handed_back", reason="draining")
            return
        claim = self.claim(key)
        if claim is None:
            log.info("run.dropped")
            return
        execution = Execution(claim)
        self.process.pulse.follow(execution)
        try:
            with (
                bound(agent=claim.agent, attempt=claim.attempt),
                tracing.span(
                    "outlast.run",
                    parent=claim.traceparent,
                    kind="consumer",
                    run=key,
                    agent=claim.agent,
                    attempt=claim.attempt,
                ),
            ):
                outcome = self._outcome_of(execution)
                if outcome is not None:
                    self.record(execution, outcome)
        finally:
            self.process.pulse.leave(execution)

    # --- claim --------------------------------------------------------------------------------------------

    def claim(self, key: str) -> Claim | None:
        """Takes the run, asking again with the same execution id while Redis does not answer."""
        execution = new_execution()
        give_up = time.monotonic() + self.settings.lease_seconds
        attempt = 0
        while True:
            try:
                claim = self.process.say_claim(key, execution)
            except ValueError:
                log.warning("run.key_unknown")
                return None
            except StoreError as error:
                if time.monotonic() > give_up:
                    log.warning("run.claim_failed", error=type(error).__name__)
                    return None
                time.sleep(_CLAIM_PAUSES[min(attempt, len(_CLAIM_PAUSES) - 1)])
                attempt += 1
                continue
            if claim is None:
                self._end_uncovered(key)
            else:
                log.info("run.claimed", agent=claim.agent, attempt=claim.attempt, worker=self.process.name)
            return claim

    def _end_uncovered(self, key: str) -> None:
        successor = end_uncovered(self.store.runs, self.store.log, key)
        if successor:
            self.process.queue.enqueue(successor)

    # --- prepare, run, decide -----------------------------------------------------------------------------

    def _outcome_of(self, execution: Execution) -> Outcome | None:
        """The outcome to record; None for a run that was handed back or is not ours any more."""
        entry = self.process.registry.get(execution.claim.agent)
        if entry is None and self._handed_back(execution):
            return None
        try:
            ctx = self.prepare(execution, entry)
        except BaseException as error:
            log.exception("run.not_prepared")
            # The failure is recorded all the same, over a log that holds nothing of the agent yet.
            execution.emitter = execution.emitter or self._emitter(execution, Verifier(enforce=False))
            return classify(error)
        if entry is None:
            cause = execution.token.cause
            return Outcome.cancelled() if cause else Outcome.failed(FailureCode.UNKNOWN_AGENT)
        if execution.claim.seconds_left <= 0:
            # A retried run may have waited until its time was over.
            return Outcome.failed(FailureCode.DEADLINE_EXCEEDED)
        ended = self.run(execution, entry, ctx)
        emitter = execution.emitter
        if emitter is not None:
            emitter.seal()
        return decide(execution, ended)

    def _handed_back(self, execution: Execution) -> bool:
        """Whether the run waits for a worker that has its agent; the sweep sends its next message."""
        # A released run looks like one whose claim was forgotten, which the pulse would claim again.
        self.process.pulse.leave(execution)
        try:
            answer = self.store.runs.release(
                execution.key, execution.id, most=MOST_HANDBACKS, last_seq=execution.claim.last_seq
            )
        except StoreError:
            # Uncertain: either it is queued again, or its lease runs out.
            answer = "uncertain"
        log.warning("run.agent_unknown", agent=execution.claim.agent, answer=answer)
        if answer == "cancel":
            execution.token.trip(StopCause.CLIENT)
        kept = answer in {"cancel", "exhausted"}
        if kept:
            self.process.pulse.follow(execution)
        return not kept

    def prepare(self, execution: Execution, entry: AgentEntry | None = None) -> RunContext:
        """Context with the agent's transformers, emitter, and a verifier seeded from the input.

        Raises what the input makes it raise, and what a transformer's factory does.
        """
        claim, identity = execution.claim, execution.claim.identity
        run_input = events.parse_input(claim.input, max_depth=self.settings.max_input_depth)
        verifier = Verifier(
            run_input.messages,
            thread_id=identity.thread_id,
            run_id=identity.run_id,
            enforce=self.settings.verify,
            debug=self.settings.log_level == "debug",
            answerable=claim.answered_calls,
        )
        verifier.observe(events.run_started(identity.thread_id, identity.run_id))
        said = self.store.log.read_all(claim.key) if claim.last_seq > 1 else []
        for frame in said[1:]:
            with suppress(ValueError, VerificationError):
                verifier.observe(events.parse(sse.data_of(frame)))
        if claim.attempt > 1:
            verifier.forget_unanswered()
        execution.emitter = self._emitter(execution, verifier, size=sum(map(len, said)))
        execution.context = RunContext(
            run_input,
            sink=execution.emitter,
            token=execution.token,
            attempt=claim.attempt,
            actor=identity.actor,
            transformers=[make() for make in entry.transformers] if entry else (),
            state_model=entry.state_model if entry else None,
            resources=self.process.resources,
        )
        return execution.context

    def _emitter(self, execution: Execution, verifier: Verifier, *, size: int = 0) -> RunEmitter:
        return RunEmitter(
            execution.key,
            execution.id,
            verifier=verifier,
            token=execution.token,
            settings=self.settings,
            writer=self.process.writer,
            last_seq=execution.claim.last_seq,
            size=size,
            stop=execution.stop,
            reclaim=lambda: self.process.reclaim(execution),
        )

    def run(self, execution: Execution, entry: AgentEntry, ctx: RunContext) -> Ended:
        """Runs the agent to its end in its form; it is not called for a state that does not fit its model."""
        if entry.state_model is not None:
            try:
                ctx.load_state()
            except BaseException as error:  # noqa: BLE001 - a validator of the model is the author's code too
                return Ended(error=error)
        execution.running = Running(entry, ctx, self.process.loop)
        return execution.running.run()

    # --- record -------------------------------------------------------------------------------------------

    def record(self, execution: Execution, outcome: Outcome) -> None:
        """Writes what is left of the log and the outcome in one step, and wakes the thread's next run."""
        execution.recording = True
        recording = Recording(execution, outcome, self.store.runs, self.settings, self.process.reclaim)
        finish = recording.carry_out()
        if finish is None or not finish.recorded:
            tracing.record_ending("lost")
            log.warning(
                "run.lost", state=finish.state if finish else "unanswered", recorded=finish and finish.status
            )
            return
        self.process.remember(recording)
        ended = recording.outcome
        tracing.record_ending(str(ended.status), ended.code and str(ended.code))
        log.info(
            "run.ended",
            status=str(ended.status),
            last_seq=finish.last_seq,
            seconds=round(time.monotonic() - execution.claimed_at, 3),
            **{
                name: str(value)
                for name, value in (
                    ("code", ended.code),
                    ("incident", ended.incident),
                    ("detail", ended.detail),
                )
                if value
            },
        )
        if finish.successor:
            self.process.queue.enqueue(finish.successor)
