"""Who wrote an item first: a subagent invocation, or None for the parent agent."""

from collections.abc import Iterable

from shared.protocol.events import ActivityMessage, AssistantMessage, Message, ReasoningMessage

OwnerRecord = dict[str, str | None]


class Owners:
    """The owner of every id a run knows, by family; the ids of one family never meet another's.

    Reasoning spans and reasoning messages share a record. A call that is in ``calls`` is *known*:
    it may get a result.
    """

    __slots__ = ("activities", "calls", "messages", "reasoning")

    def __init__(self) -> None:
        self.messages: OwnerRecord = {}
        self.reasoning: OwnerRecord = {}
        self.calls: OwnerRecord = {}
        self.activities: OwnerRecord = {}

    def learn(self, messages: Iterable[Message]) -> None:
        """Take owners and tool calls of a history for the ids not recorded yet."""
        for record, item_id, owner in self._named_in(messages):
            record.setdefault(item_id, owner)

    def overwrite(self, messages: Iterable[Message]) -> None:
        """Take owners and tool calls of an authoritative history (a snapshot), whatever was recorded."""
        for record, item_id, owner in self._named_in(messages):
            record[item_id] = owner

    def _named_in(self, messages: Iterable[Message]) -> Iterable[tuple[OwnerRecord, str, str | None]]:
        for message in messages:
            owner = message.subagent_run_id
            if isinstance(message, ReasoningMessage):
                yield self.reasoning, message.id, owner
            elif isinstance(message, ActivityMessage):
                yield self.activities, message.id, owner
            else:
                yield self.messages, message.id, owner
                if isinstance(message, AssistantMessage):
                    for call in message.tool_calls or ():
                        yield self.calls, call.id, owner
