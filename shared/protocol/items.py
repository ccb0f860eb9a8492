"""What a run has opened and not yet closed, and the event that closes each kind."""

from typing import Final, Literal, NamedTuple, assert_never

from shared.protocol.events import (
    Event,
    ReasoningEndEvent,
    ReasoningMessageEndEvent,
    StepFinishedEvent,
    SubagentErrorEvent,
    TextMessageEndEvent,
    ToolCallEndEvent,
)

# Plain strings, not an enum: they are part of a key that is hashed for every event.
ItemKind = Literal["message", "reasoning", "reasoning-message", "tool-call", "step", "subagent"]
MESSAGE: Final = "message"
REASONING: Final = "reasoning"
REASONING_MESSAGE: Final = "reasoning-message"
TOOL_CALL: Final = "tool-call"
STEP: Final = "step"
SUBAGENT: Final = "subagent"


class OpenItem(NamedTuple):
    """Something open. ``reasoning`` is the span, ``reasoning-message`` a message (maybe inside one).

    ``id`` is the step's name for a step and the invocation's id for a subagent. ``owner`` is the
    subagent invocation it belongs to (for a subagent: its parent); None is the parent agent.
    """

    kind: ItemKind
    id: str
    owner: str | None

    def __str__(self) -> str:
        owner = "" if self.owner is None else f" of {self.owner!r}"
        return f"{self.kind} {self.id!r}{owner}"


def closing_event(item: OpenItem, *, subagent_code: str, subagent_message: str) -> Event:
    """The event that closes ``item``, tagged with its owner.

    A subagent is closed with SUBAGENT_ERROR: it was stopped, so success would be a lie.
    """
    kind, item_id, owner = item
    match kind:
        case "message":
            return TextMessageEndEvent(message_id=item_id, subagent_run_id=owner)
        case "reasoning":
            return ReasoningEndEvent(message_id=item_id, subagent_run_id=owner)
        case "reasoning-message":
            return ReasoningMessageEndEvent(message_id=item_id, subagent_run_id=owner)
        case "tool-call":
            return ToolCallEndEvent(tool_call_id=item_id, subagent_run_id=owner)
        case "step":
            return StepFinishedEvent(step_name=item_id, subagent_run_id=owner)
        case "subagent":
            return SubagentErrorEvent(subagent_run_id=item_id, message=subagent_message, code=subagent_code)
        case _:
            assert_never(kind)
