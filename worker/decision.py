"""How a run ended: from what the agent did and what it was told to one frozen outcome."""

from __future__ import annotations

from typing import Any

from shared.logs import get_logger
from shared.runs.outcome import FailureCode, Outcome, StopCause
from worker.agents.base import Interrupt
from worker.execution import Execution
from worker.failures import classify
from worker.forms import Ended
from worker.stops import stopped
from worker.terminal import told_by

log = get_logger(__name__)


def decide(execution: Execution, ended: Ended) -> Outcome | None:
    """The outcome, or None when this execution has nothing to record any more.

    In this order: not ours any more; the agent's own terminal event, whatever it did afterwards; a stop
    that reached the agent; what escaped it; what it returned. A transformer that
    raised is met again when the ending is carried out.
    """
    emitter = execution.emitter
    if emitter is None or execution.abandoned or execution.token.cause is StopCause.LOST:
        log.warning("run.lost", cause="abandoned" if execution.abandoned else "lost")
        return None
    if emitter.pending_terminal is not None:
        return told_by(emitter.pending_terminal)
    if ended.error is not None:
        _explain(ended.error)
    if emitter.overflowed:
        return Outcome.failed(FailureCode.EVENT_BUFFER_FULL)
    stop = stopped(execution.token, ended.error)
    if stop is not None:
        return stop
    if ended.error is not None:
        return classify(ended.error)
    if emitter.refused_terminal is not None:
        return classify(emitter.refused_terminal)
    return _returned(ended.value)


def _explain(error: BaseException) -> None:
    if not isinstance(error, Exception):
        log.warning("run.agent_escaped", error=type(error).__name__)


def _returned(value: Any) -> Outcome:
    if isinstance(value, Interrupt):
        return Outcome.interrupted(value.interrupts)
    return Outcome.succeeded()
