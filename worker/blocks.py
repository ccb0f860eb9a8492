"""Message, reasoning, tool call and step as context managers that close themselves once.

A block's own events carry the owner it was opened under, so it may be continued inside a subagent
that was opened later. What is refused while a scope unwinds is swallowed after the trip and after
the run's end; the worker closes what is still open then.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar, overload

from shared.protocol import events as ag
from shared.protocol.events import Event
from shared.protocol.verifier import Rule, VerificationError
from worker.cancellation import Cancelled, Disconnected
from worker.failures import ProtocolError
from worker.json_form import from_json, json_text

T = TypeVar("T")

SCOPE: ContextVar[str | None] = ContextVar("outlast_subagent", default=None)
"""The innermost open subagent of this task or thread; its id tags what is emitted inside."""

_PARTS = (ag.TextPart, ag.ImagePart, ag.AudioPart, ag.VideoPart, ag.DocumentPart)


class Host(Protocol):
    """What a block needs of the run's context."""

    def put(self, event: Event, owner: str | None) -> None:
        """Emits for ``owner``; raises as ``RunContext.emit``."""

    def room(self) -> AbstractContextManager[None]:
        """Waits for room first and writes at the end; a lock is taken inside, around ``take`` alone."""

    def take(self, event: Event, owner: str | None) -> None:
        """Emits as ``put``, but neither waits nor writes."""

    def new_id(self, kind: Literal["msg", "call", "sub", "act"]) -> str:
        """The next id of the run."""


def content_of(value: Any) -> str | list[Any]:
    """A tool's result as it travels: a text or content parts as they are, anything else as JSON.

    Raises SerializationError for a value that has no JSON form.
    """
    if isinstance(value, list) and value and all(isinstance(part, _PARTS) for part in value):
        return value
    return value if isinstance(value, str) else json_text(value)


class Block:
    """Something opened that closes once: by ``end()`` or on leaving the scope, however that happens."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._owner = SCOPE.get()
        self._opened = False
        self._ended = False

    def open(self) -> Self:
        """Sends what opens the block; ``with`` does it."""
        if not self._opened:
            self._start()
            self._opened = True
        return self

    def end(self) -> None:
        """Closes the block; asking again does nothing. After the trip the worker closes it."""
        if self._opened and not self._ended:
            self._ended = True
            self._close(None)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._opened or self._ended:
            return
        self._ended = True
        try:
            self._close(error)
        except Exception as refusal:
            # While an error unwinds it is the one to be heard.
            if error is None and not (
                isinstance(refusal, VerificationError) and refusal.rule is Rule.RUN_ENDED
            ):
                raise

    def _put(self, event: Event) -> None:
        self._host.put(event, self._owner)

    def _put_last(self, *closers: Event) -> None:
        """Sends terminators, the later ones also if an earlier one is refused; a trip is no error."""
        refused: Exception | None = None
        for event in closers:
            try:
                self._put(event)
            except (Cancelled, Disconnected):
                return
            except Exception as error:  # noqa: BLE001 - raised below, after the other terminators
                refused = refused or error
        if refused is not None:
            raise refused

    def _start(self) -> None:
        raise NotImplementedError

    def _close(self, error: BaseException | None) -> None:
        raise NotImplementedError


class TextBlock(Block):
    """A block that is written in pieces; a character cut in two waits for its second half."""

    _held = ""

    def _piece(self, text: str) -> str:
        if self._held:
            text = (
                (self._held + text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
            )
            self._held = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held = text[-1]
            return text[:-1]
        return text

    def _rest(self) -> str:
        rest, self._held = self._held, ""
        return rest


class Message(TextBlock):
    """A text message being written; ``id`` names it in the conversation."""

    def __init__(
        self,
        host: Host,
        role: Literal["assistant", "user", "system", "developer"] = "assistant",
        *,
        message_id: str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(host)
        self.id = message_id or host.new_id("msg")
        self._role = role
        self._name = name

    def delta(self, text: str) -> None:
        """Appends a fragment; an empty one is not sent."""
        if piece := self._piece(text):
            self._put(ag.TextMessageContentEvent(message_id=self.id, delta=piece))

    def _start(self) -> None:
        self._put(ag.TextMessageStartEvent(message_id=self.id, role=self._role, name=self._name))

    def _close(self, error: BaseException | None) -> None:
        closers: list[Event] = [ag.TextMessageEndEvent(message_id=self.id)]
        if rest := self._rest():
            closers.insert(0, ag.TextMessageContentEvent(message_id=self.id, delta=rest))
        self._put_last(*closers)


class Reasoning(TextBlock):
    """A reasoning span with its one message, both under one id."""

    def __init__(self, host: Host, *, message_id: str | None = None) -> None:
        super().__init__(host)
        self.id = message_id or host.new_id("msg")

    def delta(self, text: str) -> None:
        """Appends a fragment; an empty one is not sent."""
        if piece := self._piece(text):
            self._put(ag.ReasoningMessageContentEvent(message_id=self.id, delta=piece))

    def encrypted(self, value: str) -> None:
        """Attaches the provider's opaque form of this reasoning, to be sent back in a later turn."""
        self._put(
            ag.ReasoningEncryptedValueEvent(subtype="message", entity_id=self.id, encrypted_value=value)
        )

    def _start(self) -> None:
        self._put(ag.ReasoningStartEvent(message_id=self.id))
        try:
            self._put(ag.ReasoningMessageStartEvent(message_id=self.id, role="reasoning"))
        except Exception:
            self._put_last(ag.ReasoningEndEvent(message_id=self.id))
            raise

    def _close(self, error: BaseException | None) -> None:
        closers: list[Event] = [
            ag.ReasoningMessageEndEvent(message_id=self.id),
            ag.ReasoningEndEvent(message_id=self.id),
        ]
        if rest := self._rest():
            closers.insert(0, ag.ReasoningMessageContentEvent(message_id=self.id, delta=rest))
        self._put_last(*closers)


class ToolCall(TextBlock):
    """A tool call; without a result it is left to the client. ``message_id`` is reserved for the result."""

    def __init__(
        self, host: Host, name: str, *, call_id: str | None = None, parent_message_id: str | None = None
    ) -> None:
        super().__init__(host)
        self.id = call_id or host.new_id("call")
        self.message_id = host.new_id("msg")
        self.name = name
        self._parent = parent_message_id
        self._answered = False
        self._given: list[str] = []

    def args(self, value: Any) -> None:
        """Appends a fragment of the arguments' JSON (a text), or a whole value's JSON.

        Raises SerializationError for a value that has no JSON form.
        """
        text = value if isinstance(value, str) else json_text(value)
        if piece := self._piece(text):
            self._put(ag.ToolCallArgsEvent(tool_call_id=self.id, delta=piece))
            self._given.append(piece)

    @overload
    def arguments(self) -> Any: ...

    @overload
    def arguments(self, kind: type[T]) -> T: ...

    def arguments(self, kind: Any = Any) -> Any:
        """What the fragments so far say, as ``kind``: a pydantic model, a dataclass, ``dict[str, int]`` ...

        A call that ended without any has the arguments ``{}``. Raises SerializationError while they are
        partial, and for arguments that do not fit.
        """
        text = "".join(self._given)
        return from_json("{}" if self._ended and not text else text, "the arguments", kind)

    def result(self, value: Any) -> str:
        """Ends the call and sends its result: a text as it is, content parts, or anything else as JSON.

        Returns the result's message id. Raises SerializationError for a value that has no JSON form (the
        call stays open), ProtocolError for a second result, and as ``RunContext.emit``.
        """
        content = content_of(value)
        if self._answered:
            raise ProtocolError("a tool call has one result")
        if not self._ended:
            self._ended = True
            for event in self._closers():
                self._put(event)
        self._put(
            ag.ToolCallResultEvent(
                message_id=self.message_id, tool_call_id=self.id, content=content, role="tool"
            )
        )
        self._answered = True
        return self.message_id

    def encrypted(self, value: str) -> None:
        """Attaches the provider's opaque form of this call, to be sent back in a later turn."""
        self._put(
            ag.ReasoningEncryptedValueEvent(subtype="tool-call", entity_id=self.id, encrypted_value=value)
        )

    def _start(self) -> None:
        self._put(
            ag.ToolCallStartEvent(
                tool_call_id=self.id, tool_call_name=self.name, parent_message_id=self._parent
            )
        )

    def _closers(self) -> list[Event]:
        closers: list[Event] = [ag.ToolCallEndEvent(tool_call_id=self.id)]
        if rest := self._rest():
            closers.insert(0, ag.ToolCallArgsEvent(tool_call_id=self.id, delta=rest))
        return closers

    def _close(self, error: BaseException | None) -> None:
        self._put_last(*self._closers())


class Step(Block):
    """A named step of the work."""

    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host)
        self.name = name

    def _start(self) -> None:
        self._put(ag.StepStartedEvent(step_name=self.name))

    def _close(self, error: BaseException | None) -> None:
        self._put_last(ag.StepFinishedEvent(step_name=self.name))
