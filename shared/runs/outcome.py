"""The outcome of a run: one frozen value that the driver builds and the store records."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shared.runs.lifecycle import Status


class FailureCode(StrEnum):
    """Stable codes on RUN_ERROR and in the record; the set may grow, spellings never change."""

    PROTOCOL = "PROTOCOL"
    SERIALIZATION = "SERIALIZATION"
    PROTOCOL_VIOLATION = "PROTOCOL_VIOLATION"
    CANCELLED = "CANCELLED"
    DISCONNECTED = "DISCONNECTED"
    AGENT_ERROR = "AGENT_ERROR"
    EVENT_BUFFER_FULL = "EVENT_BUFFER_FULL"
    TRANSPORT_TIMEOUT = "transport_timeout"
    TRANSPORT_ERROR = "transport_error"
    PROVIDER_ERROR = "provider_error"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    QUEUE_TIMEOUT = "queue_timeout"
    WORKER_LOST = "worker_lost"
    WORKER_SHUTDOWN = "worker_shutdown"
    UNKNOWN_AGENT = "unknown_agent"
    INTERRUPT_OPEN = "INTERRUPT_OPEN"


SENTENCES: dict[FailureCode, str] = {
    FailureCode.PROTOCOL: "The agent produced a value that the protocol does not allow.",
    FailureCode.SERIALIZATION: "A value of this run does not convert to or from JSON.",
    FailureCode.PROTOCOL_VIOLATION: "The agent sent its events in an order that the protocol does not allow.",
    FailureCode.CANCELLED: "The run was cancelled.",
    FailureCode.DISCONNECTED: "This execution no longer owns its run.",
    FailureCode.AGENT_ERROR: "The agent failed.",
    FailureCode.EVENT_BUFFER_FULL: "The run produced more events than its log may hold.",
    FailureCode.TRANSPORT_TIMEOUT: "The model provider did not answer in time.",
    FailureCode.TRANSPORT_ERROR: "The model provider could not be reached.",
    FailureCode.PROVIDER_ERROR: "The model provider answered with an error.",
    FailureCode.DEADLINE_EXCEEDED: "The run took longer than its deadline allows.",
    FailureCode.QUEUE_TIMEOUT: "No worker took the run in time.",
    FailureCode.WORKER_LOST: "The worker was lost; the effect of unfinished tool calls is unknown.",
    FailureCode.WORKER_SHUTDOWN: "The worker was stopped before the run had ended.",
    FailureCode.UNKNOWN_AGENT: "No worker has the agent that this run names.",
    FailureCode.INTERRUPT_OPEN: "The run does not answer what an earlier run of its thread asked.",
}
"""What a client reads for each code; an exception's own text never gets there."""


class StopCause(StrEnum):
    """Why a run is to stop; whoever trips the token says it, and it decides the recorded ending."""

    CLIENT = "client"
    OPERATOR = "operator"
    THREAD_POLICY = "thread_policy"
    DEADLINE = "deadline"
    SHUTDOWN = "shutdown"
    LOST = "lost"
    BUFFER_FULL = "buffer_full"


CANCEL_CAUSES = frozenset({StopCause.CLIENT, StopCause.OPERATOR, StopCause.THREAD_POLICY})
"""Causes that somebody asked for; only these end a run as cancelled."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended; ``wire`` is the AG-UI outcome object, ``detail`` is for operators only."""

    status: Status
    code: FailureCode | None = None
    message: str | None = None
    wire: dict[str, Any] | None = None
    detail: str | None = None
    incident: str | None = None
    result: Any = field(default=None, compare=False)

    @classmethod
    def succeeded(cls, wire: dict[str, Any] | None = None, result: Any = None) -> Outcome:
        """The agent's body came to its end; ``wire`` may list pending tool calls."""
        return cls(Status.SUCCEEDED, wire=wire or {"type": "success"}, result=result)

    @classmethod
    def interrupted(cls, interrupts: list[dict[str, Any]]) -> Outcome:
        """The agent paused for people's answers (AG-UI 1.0, outcome ``interrupt``)."""
        return cls(Status.INTERRUPTED, wire={"type": "interrupt", "interrupts": interrupts})

    @classmethod
    def cancelled(cls) -> Outcome:
        """Somebody asked for the stop and the run stopped."""
        return cls(Status.CANCELLED, wire={"type": "cancelled"})

    @classmethod
    def failed(
        cls,
        code: FailureCode,
        *,
        message: str | None = None,
        detail: str | None = None,
        incident: str | None = None,
    ) -> Outcome:
        """The run failed; without ``message`` the client reads the code's fixed sentence."""
        return cls(
            Status.FAILED, code=code, message=message or SENTENCES[code], detail=detail, incident=incident
        )
