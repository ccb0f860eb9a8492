"""One answer of a model on its way into a run: chunks in, the run's events out, and what it came to."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import orjson

from shared.protocol import events as ag
from worker.agents.chat_messages import sealed
from worker.agents.chat_wire import CallPart, Chunk, joined
from worker.blocks import Message, Reasoning, ToolCall
from worker.context import RunContext
from worker.failures import AgentError, ProviderStreamBroken


class Reply:
    """One answer on its way into a run; leaving the scope closes what is open and notes what it cost.

    One block is open at a time: fragments of a call behind another one wait until that is whole.
    ``messages`` is the conversation that the answer belongs to.
    """

    def __init__(self, ctx: RunContext, messages: Sequence[ag.Message]) -> None:
        self.begun = False
        self.finished = False
        self._reason: str | None = None
        self._ctx = ctx
        self._messages = messages
        self._text: list[str] = []
        self._thoughts: dict[str, list[str]] = {}
        self._block: Message | Reasoning | None = None
        self._parent: str | None = None
        self.calls: list[ReplyCall] = []
        self._front = 0
        self._late_text: list[str] = []
        self._usage: ag.TokenUsage | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._usage is not None:
            _add(self._ctx.usage, self._usage)
        for handle in (self._block, *(call.handle for call in self.calls)):
            if handle is not None:
                handle.__exit__(kind, error, trace)

    def take(self, chunk: Chunk) -> None:
        """Passes on what a chunk says. Raises ProviderStreamBroken for a fragment of a call that is over."""
        if chunk.usage is not None:
            # Some endpoints count up in every chunk, so the last one is the whole.
            self._usage = chunk.usage
        if chunk.reasoning:
            self._thoughts.setdefault(chunk.reasoning_name, []).append(chunk.reasoning)
            self._open_reasoning().delta(chunk.reasoning)
        self._text.append(chunk.text)
        if chunk.text and self.calls:
            self._late_text.append(chunk.text)
        elif chunk.text:
            self._open_message().delta(chunk.text)
        for part in chunk.calls:
            self._take_part(part)
        if chunk.finish_reason:
            self._reason = self._reason or chunk.finish_reason
            self.finish()

    def finish(self) -> None:
        """The answer is over: closes everything, the calls in their order; asking again does nothing."""
        if self.finished:
            return
        self._close_block()
        for call in self.calls[self._front :]:
            if self._reason != "length" and not call.text.strip():
                # Told like any other fragment: an approval holds for the arguments that the client was told.
                call.fragments.append("{}")
            self._send(call)
            if call.handle is None:
                raise ProviderStreamBroken("the provider sent a tool call without a name")
            call.close()
        if self._late_text:
            self._ctx.say(joined(self._late_text))
        self.finished = True

    def conclude(self) -> None:
        """Judges how a finished answer ended.

        Raises AgentError if the provider withheld it, or cut it off inside a tool call, whose arguments
        nobody may act upon. Text that reached the model's limit stands; CUSTOM ``finish_reason`` says so.
        """
        if self._reason == "content_filter":
            raise AgentError("the provider's content filter stopped the answer")
        if self._reason == "length":
            if not all(call.is_whole() for call in self.calls):
                raise AgentError("the answer reached its length limit inside a tool call")
            self._ctx.emit(ag.CustomEvent(name="finish_reason", value="length"))

    def message(self) -> ag.AssistantMessage:
        """The finished answer as a message of the conversation."""
        calls = [call.wire() for call in self.calls]
        return ag.AssistantMessage(
            id=self._parent or self._ctx.run_id or "answer",
            role="assistant",
            content=joined(self._text) or None,
            tool_calls=calls or None,
        )

    def thoughts(self) -> dict[str, str]:
        """The reasoning by the names it came under; many endpoints want it back until the turn is over."""
        return {name: joined(pieces) for name, pieces in self._thoughts.items()}

    def _open_reasoning(self) -> Reasoning:
        if not isinstance(self._block, Reasoning):
            self._close_block()
            self._block = self._ctx.reasoning().open()
        return self._block

    def _open_message(self) -> Message:
        if not isinstance(self._block, Message):
            self._close_block()
            self._block = self._ctx.message().open()
            self._parent = self._block.id
        return self._block

    def _close_block(self) -> None:
        if self._block is not None:
            self._block.end()
            self._block = None

    def _take_part(self, part: CallPart) -> None:
        self._close_block()
        call = self._call_of(part)
        call.name = call.name or part.name or ""
        call.extra = call.extra or part.extra
        if call.ended:
            if part.arguments.strip():
                raise ProviderStreamBroken("the provider went on with a tool call that was whole")
            return
        call.fragments.append(part.arguments)
        while True:
            front = self.calls[self._front]
            self._send(front)
            if front is self.calls[-1] or front.handle is None or not front.is_whole():
                return
            front.close()
            front.ended = True
            self._front += 1

    def _call_of(self, part: CallPart) -> ReplyCall:
        """The call of a fragment: by index, and by id where an endpoint gives all calls one index or none."""
        for call in reversed(self.calls):
            same_id = part.call_id is None or call.provider_id in {None, part.call_id}
            if same_id and part.index in {None, call.index}:
                if call.is_followed_by(part):
                    break
                return call
        call = ReplyCall(part.index, part.call_id)
        self.calls.append(call)
        return call

    def _send(self, call: ReplyCall) -> None:
        if call.handle is None:
            if not call.name:
                return
            # One parent for all, so that clients show parallel calls in one message.
            self._parent = self._parent or self._ctx.new_id("msg")
            call.handle = self._ctx.tool_call(
                call.name, call_id=self._free_id(call), parent_message_id=self._parent
            ).open()
        for fragment in call.fragments[call.sent :]:
            call.handle.args(fragment)
        call.sent = len(call.fragments)

    def _free_id(self, call: ReplyCall) -> str | None:
        """The provider's own id, which it likes best to see again, unless the conversation has it already."""
        taken = {
            known.id
            for message in self._messages
            if isinstance(message, ag.AssistantMessage)
            for known in message.tool_calls or ()
        }
        taken |= {other.handle.id for other in self.calls if other.handle}
        return None if call.provider_id in taken else call.provider_id


class ReplyCall:
    """One tool call as far as it has arrived."""

    def __init__(self, index: int | None, provider_id: str | None) -> None:
        self.index = index
        self.provider_id = provider_id
        self.name = ""
        self.extra: dict[str, Any] | None = None
        self.fragments: list[str] = []
        self.sent = 0
        self.handle: ToolCall | None = None
        self.ended = False

    @property
    def id(self) -> str:
        """The id that the run's events call it by; the call is finished."""
        return self.handle.id if self.handle else ""

    @property
    def text(self) -> str:
        return joined(self.fragments)

    def close(self) -> None:
        """Ends the call; what the endpoint wants to see again travels with it."""
        if self.handle is None:
            return
        self.handle.end()
        if self.extra:
            self.handle.encrypted(sealed(self.extra))

    def wire(self) -> ag.ToolCall:
        """The call as a message of the conversation has it."""
        function = ag.FunctionCall(name=self.name, arguments=self.text or "{}")
        seal = sealed(self.extra) if self.extra else None
        return ag.ToolCall(id=self.id, type="function", function=function, encrypted_value=seal)

    def answer(self, content: str) -> ag.ToolMessage:
        """Sends the call's result and returns it as a message of the conversation."""
        if self.handle is None:
            raise ProviderStreamBroken("the provider sent a tool call without a name")
        message_id = self.handle.result(content)
        return ag.ToolMessage(id=message_id, role="tool", tool_call_id=self.id, content=content)

    def is_followed_by(self, part: CallPart) -> bool:
        """Whether a fragment without an id of its own begins another call, to which it gives a name."""
        if part.call_id is not None or not part.name or not self.name:
            return False
        other = part.index is None and part.name != self.name
        return other or (bool(part.arguments.strip()) and self.is_whole())

    def is_whole(self) -> bool:
        """Whether the arguments are a whole JSON value; parsed only where an object could end."""
        last = next((piece for piece in reversed(self.fragments) if piece.strip()), "")
        if not last.rstrip().endswith("}"):
            return False
        try:
            orjson.loads(self.text)
        except orjson.JSONDecodeError:
            return False
        return True


def _add(usage: list[ag.TokenUsage], more: ag.TokenUsage) -> None:
    """Adds to what the run's earlier answers of the same model cost."""
    for place, known in enumerate(usage):
        if (known.provider, known.model) == (more.provider, more.model):
            counts = {name: count for name, count in more if isinstance(count, int)}
            sums = {name: (getattr(known, name) or 0) + count for name, count in counts.items()}
            usage[place] = known.model_copy(update=sums)
            return
    usage.append(more)
