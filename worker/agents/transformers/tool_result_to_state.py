"""Makes a tool's result the shared state, or a change of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, Self

from pydantic import ValidationError

from shared.protocol import events as ag
from shared.protocol.events import Event, SerializationError
from worker.agents.transformers.filter_tool_calls import without_pending


class ToolResultToState:
    """Follows each JSON result of one tool with a state event that carries it, for the caller's subagent.

    ``snapshot``: the result is the state. ``delta``: it is a list of RFC 6902 operations. ``replacing``: the
    state event comes instead of the result, and the call does not count as left to the client. Content
    that does not parse passes untouched. What is shown this way is not in ``ctx.state``, whose next
    publishing is a snapshot; so let either the agent or this transformer keep the state.
    """

    def __init__(self, tool: str, kind: Literal["snapshot", "delta"], *, replacing: bool = False) -> None:
        self._tool = tool
        self._kind = kind
        self._replacing = replacing
        self._calls: set[str] = set()
        self._replaced: set[str] = set()

    @classmethod
    def snapshot(cls, tool: str, *, replacing: bool = False) -> Callable[[], Self]:
        """To be registered: a result of ``tool`` is the new state."""
        return partial(cls, tool, "snapshot", replacing=replacing)

    @classmethod
    def delta(cls, tool: str, *, replacing: bool = False) -> Callable[[], Self]:
        """To be registered: a result of ``tool`` is a patch of the state."""
        return partial(cls, tool, "delta", replacing=replacing)

    def __call__(self, event: Event) -> Iterable[Event]:
        """The event, and after a result of the tool the state."""
        match event:
            case ag.ToolCallStartEvent():
                self._note(event.tool_call_id, event.tool_call_name)
            case ag.ToolCallChunkEvent() if event.tool_call_id is not None:
                self._note(event.tool_call_id, event.tool_call_name)
            case ag.MessagesSnapshotEvent():
                for message in event.messages:
                    if isinstance(message, ag.AssistantMessage):
                        for call in message.tool_calls or ():
                            self._note(call.id, call.function.name)
            case ag.ToolCallResultEvent() if event.tool_call_id in self._calls:
                return self._with_state(event)
            case ag.RunFinishedEvent():
                return [without_pending(event, self._replaced)]
            case _:
                pass
        return [event]

    def _note(self, call: str, name: str | None) -> None:
        if name == self._tool:
            self._calls.add(call)
        elif name is not None:
            self._calls.discard(call)

    def _with_state(self, result: ag.ToolCallResultEvent) -> list[Event]:
        state = self._state(result)
        if state is None:
            return [result]
        if not self._replacing:
            return [result, state]
        self._replaced.add(result.tool_call_id)
        return [state]

    def _state(self, result: ag.ToolCallResultEvent) -> Event | None:
        try:
            value = json.loads(_text_of(result.content))
            state: Event
            if self._kind == "snapshot":
                state = ag.StateSnapshotEvent(snapshot=value, subagent_run_id=result.subagent_run_id)
            else:
                members = {"delta": value, "subagentRunId": result.subagent_run_id}
                state = ag.StateDeltaEvent.model_validate(members)
            # A text may hold what an event may not, such as NaN or too many levels.
            ag.dump(state)
        except (ValueError, RecursionError, ValidationError, SerializationError):
            return None
        return state


def _text_of(content: Any) -> str:
    """The text of a result, its parts joined; raises ValueError for parts of another kind."""
    if isinstance(content, str):
        return content
    if not all(isinstance(part, ag.TextPart) for part in content):
        raise ValueError("not a text")
    return "".join(part.text for part in content)
