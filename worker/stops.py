"""What a stop makes of a run: the ending that its cause decides, once it has reached the agent."""

from __future__ import annotations

from shared.runs.outcome import CANCEL_CAUSES, FailureCode, Outcome, StopCause
from worker.cancellation import CancellationToken
from worker.failures import classify, is_transport_timeout

_FAILURES = {
    StopCause.DEADLINE: FailureCode.DEADLINE_EXCEEDED,
    StopCause.SHUTDOWN: FailureCode.WORKER_SHUTDOWN,
    StopCause.BUFFER_FULL: FailureCode.EVENT_BUFFER_FULL,
    StopCause.LOST: FailureCode.DISCONNECTED,
}


def stopped(token: CancellationToken, error: BaseException | None) -> Outcome | None:
    """The ending of a run that was stopped, ``error`` being what escaped its agent.

    None if no stop has reached the agent: its own ending stands. A provider that did not answer in time is
    told although somebody asked for the stop.
    """
    if not (token.tripped and token.delivered) or token.cause is None:
        return None
    if token.cause not in CANCEL_CAUSES:
        return Outcome.failed(_FAILURES[token.cause])
    if error is not None and is_transport_timeout(error):
        return classify(error)
    return Outcome.cancelled()
