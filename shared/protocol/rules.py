"""The ordering rules of a run's event stream, and the refusal that names one."""

from collections.abc import Sequence
from enum import StrEnum

from shared.protocol.events import EventType
from shared.protocol.items import OpenItem


class Rule(StrEnum):
    """One ordering rule; the value is its name in error texts, logs and metrics."""

    RUN_ENDED = "run-ended"
    DUPLICATE_RUN_STARTED = "duplicate-run-started"
    DUPLICATE_START = "duplicate-start"
    NOT_OPEN = "not-open"
    UNKNOWN_ID = "unknown-id"
    OUT_OF_ORDER = "out-of-order"
    OPEN_AT_FINISH = "open-at-finish"
    OWNER_MISMATCH = "owner-mismatch"
    IDENTITY_MISMATCH = "identity-mismatch"
    DUPLICATE_ID = "duplicate-id"

    def describe(self) -> str:
        """The rule as one sentence for people."""
        return _SENTENCES[self]


_SENTENCES = {
    Rule.RUN_ENDED: "Nothing follows RUN_FINISHED or RUN_ERROR.",
    Rule.DUPLICATE_RUN_STARTED: "A run is started once.",
    Rule.DUPLICATE_START: "What is open is not opened again, and a subagent id serves one invocation only.",
    Rule.NOT_OPEN: "Only what is open can be continued or closed.",
    Rule.UNKNOWN_ID: "A result names a known tool call, and a nested subagent names an announced parent.",
    Rule.OUT_OF_ORDER: "A tool call's result comes after the end of the call.",
    Rule.OPEN_AT_FINISH: "Everything opened is closed before RUN_FINISHED, whatever the outcome.",
    Rule.OWNER_MISMATCH: "What one subagent (or the parent agent) began is not taken over by another.",
    Rule.IDENTITY_MISMATCH: "RUN_STARTED and RUN_FINISHED carry the thread id and run id of the request.",
    Rule.DUPLICATE_ID: "The interrupts of one outcome have different ids.",
}


class VerificationError(Exception):
    """An event that its run's stream may not carry at this point; it must not be sent.

    ``rule`` and ``event_type`` say what was broken by what, ``id`` names the item where the event
    names one. ``open_items`` is what was open, in opening order, and is empty unless debugging.
    """

    def __init__(
        self,
        rule: Rule,
        event_type: EventType,
        detail: str,
        item_id: str | None = None,
        open_items: Sequence[OpenItem] | None = None,
    ) -> None:
        self.rule = rule
        self.event_type = event_type
        self.id = item_id
        self.open_items = tuple(open_items or ())
        text = f"{EventType(event_type).value} breaks rule `{rule}` ({detail})"
        if open_items is not None:
            text += f"; open: {', '.join(map(str, open_items)) or 'nothing'}"
        super().__init__(text)


def shown(item_id: str) -> str:
    """An id as error texts show it: quoted, escaped, at most some 80 characters."""
    return repr(item_id if len(item_id) <= 80 else item_id[:79] + "…")
