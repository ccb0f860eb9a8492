"""How much of its subagents a run shows: attributed, as if the agent did all itself, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, Self

from shared.protocol import events as ag
from shared.protocol.events import Event
from worker.agents.transformers.filter_tool_calls import without_calls, without_pending
from worker.agents.transformers.lanes import CHUNKS, Lanes

_LIFECYCLE = (ag.SubagentStartedEvent, ag.SubagentFinishedEvent, ag.SubagentErrorEvent)
_OPENERS = (
    ag.TextMessageStartEvent,
    ag.TextMessageChunkEvent,
    ag.ReasoningStartEvent,
    ag.ReasoningMessageStartEvent,
    ag.ReasoningMessageChunkEvent,
    ag.ActivitySnapshotEvent,
)


class SubagentVisibility:
    """Shows subagents ``attributed`` (as they are), ``inline`` or ``hidden``.

    Inline strips their tags and drops their lifecycle. Hidden drops everything of theirs, also
    continuations, results and snapshot messages without a tag, but keeps their state events. Interrupts
    are shown always, without the tag unless attributed.
    """

    def __init__(self, mode: Literal["attributed", "inline", "hidden"]) -> None:
        self._mode = mode
        self._inline = _Inline()
        self._hidden = _Hidden()

    @classmethod
    def attributed(cls) -> Self:
        """To be registered: subagents are shown as subagents, which is what happens without it too."""
        return cls("attributed")

    @classmethod
    def inline(cls) -> Self:
        """To be registered: what subagents do is shown as the agent's own work."""
        return cls("inline")

    @classmethod
    def hidden(cls) -> Self:
        """To be registered: nothing of subagents is shown but the state they publish."""
        return cls("hidden")

    def __call__(self, event: Event) -> Iterable[Event]:
        """What is shown of the event."""
        match self._mode:
            case "attributed":
                return [event]
            case "inline":
                return self._inline(event)
            case "hidden":
                return self._hidden(event)


class _Inline:
    """Lanes and steps that subagents kept apart come together, so chunks get ids and steps are counted."""

    def __init__(self) -> None:
        self._lanes = Lanes()
        self._names: dict[str, str] = {}
        self._steps: Counter[str] = Counter()

    def __call__(self, event: Event) -> list[Event]:
        chunked = self._lanes.follow(event)
        if isinstance(event, _LIFECYCLE):
            return []
        if isinstance(event, ag.StepStartedEvent):
            self._steps[event.step_name] += 1
            if self._steps[event.step_name] > 1:
                return []
        elif isinstance(event, ag.StepFinishedEvent) and self._steps[event.step_name]:
            self._steps[event.step_name] -= 1
            if self._steps[event.step_name]:
                return []
        elif isinstance(event, CHUNKS) and chunked is not None:
            event = self._named(event, chunked)
        return [_untagged(event)]

    def _named(self, event: Event, chunked: str) -> Event:
        if not isinstance(event, ag.ToolCallChunkEvent):
            return event.model_copy(update={"message_id": chunked})
        if event.tool_call_name is not None:
            self._names[chunked] = event.tool_call_name
        name = self._names.get(chunked)
        return event.model_copy(update={"tool_call_id": chunked, "tool_call_name": name})


class _Hidden:
    """Knows by id what belongs to subagents, because later events of it need no tag."""

    def __init__(self) -> None:
        self._lanes = Lanes()
        self._messages: set[str] = set()
        self._calls: set[str] = set()
        self._shown_calls: set[str] = set()

    def __call__(self, event: Event) -> list[Event]:
        chunked = self._lanes.follow(event)
        match event:
            case ag.MessagesSnapshotEvent():
                return [event.model_copy(update={"messages": self._kept(event.messages)})]
            case ag.RunFinishedEvent():
                return [_untagged(without_pending(event, self._calls))]
            case ag.RunStartedEvent() | ag.RunErrorEvent():
                return [event]
            case ag.StateSnapshotEvent() | ag.StateDeltaEvent():
                return [_untagged(event)]
            case ag.ToolCallResultEvent():
                return self._result(event)
            case ag.ToolCallStartEvent() | ag.ToolCallChunkEvent():
                self._note_call(event, chunked)
            case _:
                pass
        tagged = event.subagent_run_id is not None
        if tagged and isinstance(event, _OPENERS) and (opened := event.message_id or chunked):
            self._messages.add(opened)
        return [] if tagged or self._is_hidden(event, chunked) else [event]

    def _note_call(self, event: ag.ToolCallStartEvent | ag.ToolCallChunkEvent, chunked: str | None) -> None:
        call = event.tool_call_id or chunked
        if call is None or call in self._calls | self._shown_calls:
            return
        hidden = event.subagent_run_id is not None or event.parent_message_id in self._messages
        (self._calls if hidden else self._shown_calls).add(call)

    def _result(self, event: ag.ToolCallResultEvent) -> list[Event]:
        # Whoever executed it: a result is shown where its call is.
        tagged = event.subagent_run_id is not None
        if event.tool_call_id in self._calls or (tagged and event.tool_call_id not in self._shown_calls):
            self._messages.add(event.message_id)
            return []
        return [_untagged(event)]

    def _is_hidden(self, event: Event, chunked: str | None) -> bool:
        if isinstance(event, ag.ReasoningEncryptedValueEvent):
            return event.entity_id in (self._calls if event.subtype == "tool-call" else self._messages)
        call = getattr(event, "tool_call_id", None)
        if call is None and isinstance(event, ag.ToolCallChunkEvent):
            call = chunked
        if call is not None:
            return call in self._calls
        return (getattr(event, "message_id", None) or chunked) in self._messages

    def _kept(self, messages: list[ag.Message]) -> list[ag.Message]:
        kept: list[ag.Message] = []
        for message in messages:
            if not self._is_hidden_message(message):
                kept.append(message.model_copy(update={"subagent_run_id": None}))
                continue
            self._messages.add(message.id)
            if isinstance(message, ag.AssistantMessage):
                self._calls.update(call.id for call in message.tool_calls or ())
        return without_calls(kept, self._calls)

    def _is_hidden_message(self, message: ag.Message) -> bool:
        tagged = message.subagent_run_id is not None
        if isinstance(message, ag.ToolMessage):
            return message.tool_call_id in self._calls or (
                tagged and message.tool_call_id not in self._shown_calls
            )
        if isinstance(message, ag.AssistantMessage) and not tagged:
            self._shown_calls.update(call.id for call in message.tool_calls or ())
        return tagged or message.id in self._messages


def _untagged(event: Event) -> Event:
    """The event as the agent's own; so are a snapshot's messages and what an interrupt asks."""
    if isinstance(event, ag.MessagesSnapshotEvent):
        messages = [message.model_copy(update={"subagent_run_id": None}) for message in event.messages]
        return event.model_copy(update={"messages": messages})
    if isinstance(event, ag.RunFinishedEvent):
        outcome = event.outcome
        if not isinstance(outcome, ag.RunFinishedInterruptOutcome):
            return event
        asked = [question.model_copy(update={"subagent_run_id": None}) for question in outcome.interrupts]
        return event.model_copy(update={"outcome": outcome.model_copy(update={"interrupts": asked})})
    if getattr(event, "subagent_run_id", None) is None:
        return event
    return event.model_copy(update={"subagent_run_id": None})
