"""What an agent is given: its input, its way to speak, its shared state, its ways to notice a stop."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TypeVar, overload

from shared.protocol import events as ag
from shared.protocol.events import Event, RunAgentInput, TokenUsage
from worker.blocks import SCOPE, Message, Reasoning, Step, Subagent, ToolCall
from worker.cancellation import CancellationToken, Cancelled, Disconnected
from worker.failures import mark_provider_call
from worker.races import race, race_in_thread
from worker.sink import EventSink
from worker.state import SharedState

T = TypeVar("T")

Transformer = Callable[[Event], Iterable[Event]]
"""Turns one event into none, one or several, before they are verified; an instance serves one run."""

_CURRENT: ContextVar[RunContext | None] = ContextVar("outlast_run", default=None)
_TERMINAL = (ag.RunFinishedEvent, ag.RunErrorEvent)
_STATE = frozenset({ag.StateSnapshotEvent, ag.StateDeltaEvent})


def current_run() -> RunContext:
    """The context of the agent that is running here. Raises LookupError outside of one."""
    ctx = _CURRENT.get()
    if ctx is None:
        raise LookupError("no run is executing in this task or thread")
    return ctx


@contextmanager
def running(ctx: RunContext) -> Iterator[None]:
    """Makes ``current_run()`` answer with this run inside the block."""
    before, scope = _CURRENT.get(), SCOPE.get()
    _CURRENT.set(ctx)
    SCOPE.set(None)
    try:
        yield
    finally:
        _CURRENT.set(before)
        SCOPE.set(scope)


class RunContext:
    """One execution of one run. Emitting calls are plain calls, in sync and async agents alike.

    Every emitting call raises Cancelled or Disconnected once the run is to stop, VerificationError
    for an event out of order, SerializationError for a value without JSON, EventBufferFull.
    """

    def __init__(
        self,
        run_input: RunAgentInput,
        *,
        sink: EventSink,
        token: CancellationToken,
        attempt: int = 1,
        transformers: Sequence[Transformer] = (),
    ) -> None:
        self.input = run_input
        self.token = token
        self.attempt = attempt
        self.usage: list[TokenUsage] = []
        self.sink = sink
        self._transformers = tuple(transformers)
        self._transforming = threading.RLock()
        self._state = SharedState(run_input.state)
        self._counters: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.count(1))

    # The input

    @property
    def thread_id(self) -> str:
        """The conversation."""
        return self.input.thread_id

    @property
    def run_id(self) -> str:
        """The run."""
        return self.input.run_id

    @property
    def messages(self) -> list[ag.Message]:
        """The conversation so far."""
        return self.input.messages

    @property
    def last_user_text(self) -> str | None:
        """The text of the last user message, its parts joined; None if there is no user message."""
        for message in reversed(self.input.messages):
            if isinstance(message, ag.UserMessage):
                if isinstance(message.content, str):
                    return message.content
                return "".join(part.text for part in message.content if isinstance(part, ag.TextPart))
        return None

    @property
    def tools(self) -> list[ag.Tool]:
        """Tools that the client offers to execute."""
        return self.input.tools or []

    def tool(self, name: str) -> ag.Tool | None:
        """The offered tool of that name."""
        return next((tool for tool in self.tools if tool.name == name), None)

    @property
    def context(self) -> list[ag.Context]:
        """What the client says about the situation."""
        return self.input.context or []

    @property
    def forwarded_props(self) -> Any:
        """Values that the client passes through; an empty mapping if it passes none."""
        return {} if self.input.forwarded_props is None else self.input.forwarded_props

    @property
    def resume(self) -> list[ag.ResumeEntry]:
        """The answers to the interrupts of an earlier run of the thread."""
        return self.input.resume or []

    def answer_to(self, interrupt_id: str) -> ag.ResumeEntry | None:
        """The answer to one interrupt, if this request brings it."""
        return next((entry for entry in self.resume if entry.interrupt_id == interrupt_id), None)

    # Speaking

    def emit(self, event: Event) -> None:
        """Sends an event, tagged with the innermost open subagent unless it carries a tag."""
        self.put(event, SCOPE.get())
        if type(event) in _STATE:
            self._state.reset()

    def put(self, event: Event, owner: str | None) -> None:
        """Sends an event for the subagent ``owner`` (None is the parent agent); blocks call it."""
        if self.token.tripped:
            raise self.token.stopping()
        # Run-scoped events have no such member, subagent events always have it.
        if owner is not None and getattr(event, "subagent_run_id", owner) is None:
            event = event.model_copy(update={"subagent_run_id": owner})
        if not self._transformers:
            self.sink.put(event)
            return
        with self._transforming:
            for made in self._transformed(event):
                self.sink.put(made)

    def say(self, text: str) -> str:
        """Sends a whole message of the assistant and returns its id."""
        with self.message() as message:
            message.delta(text)
        return message.id

    def message(
        self,
        role: Literal["assistant", "user", "system", "developer"] = "assistant",
        *,
        message_id: str | None = None,
        name: str | None = None,
    ) -> Message:
        """A text message, written by ``delta``."""
        return Message(self, role, message_id=message_id, name=name)

    def reasoning(self, *, message_id: str | None = None) -> Reasoning:
        """The agent's thinking, written by ``delta``."""
        return Reasoning(self, message_id=message_id)

    def tool_call(
        self, name: str, *, call_id: str | None = None, parent_message_id: str | None = None
    ) -> ToolCall:
        """A tool call; ``result`` answers it here, without it the client is to answer."""
        return ToolCall(self, name, call_id=call_id, parent_message_id=parent_message_id)

    def step(self, name: str) -> Step:
        """A named step of the work."""
        return Step(self, name)

    def subagent(
        self,
        name: str,
        *,
        subagent_id: str | None = None,
        description: str | None = None,
        parent_tool_call_id: str | None = None,
        parent_message_id: str | None = None,
    ) -> Subagent:
        """An invocation of a subagent; what is emitted inside the scope belongs to it."""
        return Subagent(
            self,
            name,
            subagent_id=subagent_id,
            description=description,
            parent_tool_call_id=parent_tool_call_id,
            parent_message_id=parent_message_id,
        )

    async def drained(self) -> None:
        """Waits while more events are buffered than the soft bound; for async agents that emit a lot."""
        await self.sink.drained()

    def new_id(self, kind: Literal["msg", "call", "sub", "int"]) -> str:
        """The next deterministic id, such as ``<runId>-msg-1``; later attempts have ids of their own."""
        attempt = f"-a{self.attempt}" if self.attempt > 1 else ""
        return f"{self.run_id or 'run'}{attempt}-{kind}-{next(self._counters[kind])}"

    # Shared state

    @property
    def state(self) -> Any:
        """The state shared with the client, a copy of the input's; change it freely, then publish."""
        return self._state.value

    @state.setter
    def state(self, value: Any) -> None:
        self._state.value = value

    def publish_state(self) -> None:
        """Sends what changed since the last publishing; the first one is a snapshot."""
        event, text = self._state.changes()
        if event is not None:
            self.put(event, SCOPE.get())
            self._state.remember(text)
        elif self.token.tripped:
            raise self.token.stopping()

    # Stopping

    def is_cancelled(self) -> bool:
        """Whether the run is to stop."""
        if self.token.tripped:
            self.token.mark_delivered()
        return self.token.tripped

    def check_cancelled(self) -> None:
        """Raises Cancelled (Disconnected if the run is not ours any more) once the run is to stop."""
        if self.token.tripped:
            raise self.token.stopping()

    async def cancelled(self) -> None:
        """Returns when the run is to stop."""
        await self.token.wait_async()
        self.token.mark_delivered()

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Blocks a sync agent for ``timeout`` seconds at most; says whether the run is to stop."""
        tripped = self.token.wait(timeout)
        if tripped:
            self.token.mark_delivered()
        return tripped

    @overload
    def until_cancelled(self, work: Awaitable[T]) -> Awaitable[T | None]: ...

    @overload
    def until_cancelled(self, work: Callable[[], T]) -> T | None: ...

    def until_cancelled(self, work: Awaitable[T] | Callable[[], T]) -> Awaitable[T | None] | T | None:
        """The work's result, or None as soon as the run is to stop, at once if it already is.

        An awaitable is awaited and cancelled when the stop wins. A callable (sync agents) runs in
        a thread beside the token and is left behind when the stop wins, so give it a timeout of its
        own or an ``on_cancel`` that ends it. Raises what the work raises, and TypeError for a
        callable on an event loop, which it would block.
        """
        if isinstance(work, Awaitable):
            return self._raced(work)
        return race_in_thread(self.token, work)

    async def _raced(self, work: Awaitable[T]) -> T | None:
        result = await race(self.token, work)
        await self.sink.drained()
        return result

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Has ``callback`` called once when the run is to stop, from another thread; returns the way back.

        It is for closing what the agent blocks on, such as a response or a socket.
        """

        def told() -> None:
            self.token.mark_delivered()
            callback()

        return self.token.on_trip(told)

    @contextmanager
    def provider_call(self) -> Iterator[None]:
        """Declares a call to a provider: bare timeouts and connection errors in here are the provider's."""
        try:
            yield
        except (Cancelled, Disconnected):
            raise
        except Exception as error:
            mark_provider_call(error)
            raise

    def _transformed(self, event: Event) -> list[Event]:
        made = [event]
        for transform in self._transformers:
            made = [later for earlier in made for later in transform(earlier)]
        if isinstance(event, _TERMINAL) and not any(isinstance(one, _TERMINAL) for one in made):
            made.append(event)
        return made
