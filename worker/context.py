"""What an agent is given: its input, its way to speak, its shared state, its ways to notice a stop."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TypeVar, overload

from pydantic import BaseModel

from shared.protocol import events as ag
from shared.protocol.events import Event, RunAgentInput, TokenUsage
from worker.activity import Activity, Content
from worker.blocks import SCOPE, Message, Reasoning, Step, ToolCall, content_of
from worker.cancellation import CancellationToken, Cancelled, Disconnected
from worker.failures import mark_provider_call
from worker.provider_calls import ProviderCalls
from worker.races import race, race_in_thread
from worker.resources import Resources
from worker.run_view import RunView
from worker.sink import EventSink
from worker.state import SharedState
from worker.subagent import Subagent
from worker.terminal import completed
from worker.transformation import Transformation, Transformer

__all__ = ["RunContext", "Transformer", "current_run", "running"]

T = TypeVar("T")

_CURRENT: ContextVar[RunContext | None] = ContextVar("outlast_run", default=None)
_STATE = (ag.StateSnapshotEvent, ag.StateDeltaEvent)


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


class RunContext(RunView):
    """One execution of one run: what it was asked, and the way to answer.

    Emitting calls are plain calls, in sync and async agents alike. Each raises Cancelled or Disconnected
    once the run is to stop, VerificationError for an event out of order, SerializationError for a value
    without JSON, EventBufferFull, and TransformerFailed once a transformer of the run has raised.
    """

    def __init__(
        self,
        run_input: RunAgentInput,
        *,
        sink: EventSink,
        token: CancellationToken,
        attempt: int = 1,
        actor: str | None = None,
        transformers: Sequence[Transformer] = (),
        state_model: type[BaseModel] | None = None,
        resources: Resources | None = None,
    ) -> None:
        super().__init__(run_input)
        self.token = token
        self.attempt = attempt
        self.actor = actor
        self.usage: list[TokenUsage] = []
        self.sink = sink
        self.transformation = Transformation(transformers)
        self.provider_calls = ProviderCalls()
        self._resources = resources
        self._state = SharedState(run_input.state, state_model)
        self._counters: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.count(1))

    # Speaking

    def emit(self, event: Event) -> None:
        """Sends an event, tagged with the innermost open subagent unless it carries a tag."""
        self.put(event, SCOPE.get())
        if isinstance(event, _STATE):
            self._state.reset()

    def put(self, event: Event, owner: str | None) -> None:
        """Sends an event for the subagent ``owner`` (None is the parent agent); blocks call it."""
        self.sink.await_room()
        try:
            self.take(event, owner)
        finally:
            self.sink.flush()

    @contextmanager
    def room(self) -> Iterator[None]:
        """Waits for room first and writes at the end; under a lock that would hold up the loop."""
        self.sink.await_room()
        try:
            yield
        finally:
            self.sink.flush()

    def take(self, event: Event, owner: str | None) -> None:
        """Sends as ``put``, but neither waits nor writes; under locks it is called within ``room``."""
        if self.token.tripped:
            raise self.token.stopping()
        # Run-scoped events have no such member, subagent events always have it.
        if owner is not None and getattr(event, "subagent_run_id", owner) is None:
            event = event.model_copy(update={"subagent_run_id": owner})
        event = completed(event, self.sink.verifier, self.usage)
        if not self.transformation:
            self.sink.take(event)
            return
        made = self.transformation.send(event, self.sink.take)
        if any(isinstance(one, _STATE) and one is not event for one in made):
            self._state.reset()

    def say(self, text: str) -> str:
        """Sends a whole message of the assistant and returns its id."""
        with self.message() as message:
            message.delta(text)
        return message.id

    def think(self, text: str, *, encrypted: str | None = None) -> str:
        """Sends a whole reasoning, with the provider's opaque form if there is one, and returns its id."""
        with self.reasoning() as thought:
            thought.delta(text)
            if encrypted is not None:
                thought.encrypted(encrypted)
        return thought.id

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

    def tool_result(self, call_id: str, value: Any) -> str:
        """Sends the result of a call that was left open, also by an earlier run; returns its message id.

        The call keeps its id. Takes values as ``ToolCall.result``. It must be this run's, in the request's
        messages, or what an answered interrupt is about; another raises VerificationError (``unknown-id``).
        """
        content, message_id = content_of(value), self.new_id("msg")
        self.emit(
            ag.ToolCallResultEvent(message_id=message_id, tool_call_id=call_id, content=content, role="tool")
        )
        return message_id

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

    def activity(
        self, activity_type: str, content: Content, *, activity_id: str | None = None, replace: bool = True
    ) -> Activity:
        """Shows an activity (an object, or a pydantic model) and returns the handle that changes it.

        ``replace=False`` leaves alone an activity of that id which the client has from an earlier run.
        """
        return Activity(self, activity_type, content, activity_id=activity_id, replace=replace)

    def custom(self, name: str, value: Any) -> None:
        """Sends an event of the agent's own kind; ``value`` is any JSON value, None too."""
        self.emit(ag.CustomEvent(name=name, value=value))

    def raw(self, event: Any, source: str | None = None) -> None:
        """Passes on another system's event as it is; ``source`` names that system."""
        self.emit(ag.RawEvent(event=event, source=source))

    async def drained(self) -> None:
        """Waits while more events are buffered than the soft bound; for async agents that emit a lot."""
        await self.sink.drained()

    def new_id(self, kind: Literal["msg", "call", "sub", "int", "act"]) -> str:
        """The next deterministic id, such as ``<runId>-msg-1``; later attempts have ids of their own."""
        attempt = f"-a{self.attempt}" if self.attempt > 1 else ""
        return f"{self.run_id or 'run'}{attempt}-{kind}-{next(self._counters[kind])}"

    # Shared state

    @property
    def state(self) -> Any:
        """The state shared with the client, a copy of the input's; change it freely, then publish.

        An instance of the agent's state model if it has one. Assigning a value that does not fit the
        model raises SerializationError.
        """
        return self._state.value

    @state.setter
    def state(self, value: Any) -> None:
        self._state.value = value

    def load_state(self) -> None:
        """Reads the request's state; the worker does before it calls an agent that has a state model.

        Raises SerializationError for a state that does not fit the model.
        """
        self._state.load()

    def publish_state(self) -> None:
        """Sends what changed since the last publishing; the first one is a snapshot."""
        owner = SCOPE.get()
        with self.room():
            if not self._state.publish(lambda event: self.take(event, owner)):
                self.check_cancelled()

    def update_state(self, change: Callable[[Any], object] | None = None, /, **members: Any) -> None:
        """Changes the state, by a function of it or by its members, and publishes."""
        if change is not None:
            change(self.state)
        self._state.assign(members)
        self.publish_state()

    def replace_state(self, value: Any) -> None:
        """Puts a new state in place of the old and publishes."""
        self.state = value
        self.publish_state()

    def reset_state(self) -> None:
        """Makes the next publishing a snapshot, for when clients may have something else than was sent."""
        self._state.reset()

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

    # The world outside

    @property
    def resources(self) -> Resources:
        """What agents of this process keep between runs, such as provider clients."""
        if self._resources is None:
            self._resources = Resources()
        return self._resources

    @contextmanager
    def provider_call(self, name: str | None = None) -> Iterator[None]:
        """Declares a call to a provider: bare timeouts and connection errors in here are the provider's.

        It is measured, and shown with the run under ``name``.
        """
        with self.provider_calls.calling(name):
            try:
                yield
            except (Cancelled, Disconnected):
                raise
            except Exception as error:
                mark_provider_call(error)
                raise
