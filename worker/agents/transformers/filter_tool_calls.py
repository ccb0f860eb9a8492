"""Keeps tool calls of some names from the client."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Self

from shared.protocol import events as ag
from shared.protocol.events import Event
from worker.agents.transformers.lanes import Lanes


class FilterToolCalls:
    """Drops calls of refused names: start, arguments, end, result, chunks, encrypted values.

    Their ids leave MESSAGES_SNAPSHOT and the calls left to the client too. With ``allow`` every other name
    is refused; ``deny`` refuses more.
    """

    def __init__(self, *, allow: Iterable[str] | None = None, deny: Iterable[str] = ()) -> None:
        self._allow = None if allow is None else frozenset(allow)
        self._deny = frozenset(deny)
        self._dropped: set[str] = set()
        self._lanes = Lanes()

    @classmethod
    def allowing(cls, *names: str) -> Callable[[], Self]:
        """To be registered: only calls of these names are shown."""
        return partial(cls, allow=names)

    @classmethod
    def denying(cls, *names: str) -> Callable[[], Self]:
        """To be registered: all calls but those of these names are shown."""
        return partial(cls, deny=names)

    def __call__(self, event: Event) -> Iterable[Event]:
        """The event, unless it belongs to a refused call."""
        chunked = self._lanes.follow(event)
        match event:
            case ag.ToolCallStartEvent():
                self._judge(event.tool_call_id, event.tool_call_name)
                return self._unless_dropped(event, event.tool_call_id)
            case ag.ToolCallChunkEvent():
                if event.tool_call_id is not None and event.tool_call_name is not None:
                    self._judge(event.tool_call_id, event.tool_call_name)
                return self._unless_dropped(event, chunked)
            case ag.ToolCallArgsEvent() | ag.ToolCallEndEvent() | ag.ToolCallResultEvent():
                return self._unless_dropped(event, event.tool_call_id)
            case ag.ReasoningEncryptedValueEvent(subtype="tool-call"):
                return self._unless_dropped(event, event.entity_id)
            case ag.SubagentStartedEvent() if event.parent_tool_call_id in self._dropped:
                return [event.model_copy(update={"parent_tool_call_id": None})]
            case ag.MessagesSnapshotEvent():
                return [event.model_copy(update={"messages": self._messages(event.messages)})]
            case ag.RunFinishedEvent():
                return [without_pending(event, self._dropped)]
            case _:
                return [event]

    def _judge(self, call: str, name: str) -> None:
        if name in self._deny or (self._allow is not None and name not in self._allow):
            self._dropped.add(call)
        else:
            self._dropped.discard(call)

    def _unless_dropped(self, event: Event, call: str | None) -> list[Event]:
        return [] if call in self._dropped else [event]

    def _messages(self, messages: list[ag.Message]) -> list[ag.Message]:
        for message in messages:
            if isinstance(message, ag.AssistantMessage):
                for call in message.tool_calls or ():
                    self._judge(call.id, call.function.name)
        return without_calls(messages, self._dropped)


def without_calls(messages: list[ag.Message], dropped: set[str]) -> list[ag.Message]:
    """The messages without these calls, their results, and messages that held nothing else."""
    kept: list[ag.Message] = []
    for message in messages:
        if isinstance(message, ag.ToolMessage) and message.tool_call_id in dropped:
            continue
        if isinstance(message, ag.AssistantMessage) and message.tool_calls:
            calls = [call for call in message.tool_calls if call.id not in dropped]
            if not calls and not message.content:
                continue
            kept.append(message.model_copy(update={"tool_calls": calls or None}))
        else:
            kept.append(message)
    return kept


def without_pending(event: ag.RunFinishedEvent, dropped: set[str]) -> ag.RunFinishedEvent:
    """RUN_FINISHED without these calls among those left to the client."""
    outcome = event.outcome
    if not isinstance(outcome, ag.RunFinishedSuccessOutcome) or not outcome.pending_tool_call_ids:
        return event
    left = [call for call in outcome.pending_tool_call_ids if call not in dropped]
    told = outcome.model_copy(update={"pending_tool_call_ids": left or None})
    return event.model_copy(update={"outcome": told})
