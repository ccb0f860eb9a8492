"""A subagent: everything that is emitted inside its scope carries its id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.protocol import events as ag
from shared.protocol.events import Event
from worker.blocks import SCOPE, Block, Host
from worker.failures import code_of, sentence_of


class Subagent(Block):
    """One invocation of a subagent: everything emitted inside the scope is tagged with its id.

    Leaving the scope by an exception ends it with SUBAGENT_ERROR and the failure's code and
    sentence; otherwise it ends with success.
    """

    def __init__(
        self,
        host: Host,
        name: str,
        *,
        subagent_id: str | None = None,
        description: str | None = None,
        parent_tool_call_id: str | None = None,
        parent_message_id: str | None = None,
    ) -> None:
        super().__init__(host)
        self.id = subagent_id or host.new_id("sub")
        self._started = ag.SubagentStartedEvent(
            subagent_run_id=self.id,
            name=name,
            description=description,
            parent_subagent_run_id=self._owner,
            parent_tool_call_id=parent_tool_call_id,
            parent_message_id=parent_message_id,
        )

    def finish(self, result: Any = None) -> None:
        """Ends with success and, unless None, a result (any JSON value)."""
        self._end_with(ag.SubagentFinishedEvent(subagent_run_id=self.id, result=result))

    def suspend(self, interrupt_ids: Sequence[str]) -> None:
        """Ends as waiting for the answers to the interrupts that the run is about to return."""
        outcome = ag.SubagentFinishedSuspendedOutcome(type="suspended", interrupt_ids=list(interrupt_ids))
        self._end_with(ag.SubagentFinishedEvent(subagent_run_id=self.id, outcome=outcome))

    def fail(self, message: str, code: str | None = None) -> None:
        """Ends as failed; ``message`` is shown to people, the run itself may go on."""
        self._end_with(ag.SubagentErrorEvent(subagent_run_id=self.id, message=message, code=code))

    def _start(self) -> None:
        self._put(self._started)
        SCOPE.set(self.id)

    def _end_with(self, event: Event) -> None:
        if self._opened and not self._ended:
            self._ended = True
            self._leave()
            self._put_last(event)

    def _leave(self) -> None:
        # Set back by value: a generator may leave the scope in another context than it entered it.
        if SCOPE.get() == self.id:
            SCOPE.set(self._owner)

    def _close(self, error: BaseException | None) -> None:
        self._leave()
        if error is None:
            self._put_last(ag.SubagentFinishedEvent(subagent_run_id=self.id))
            return
        code = code_of(error)
        message = sentence_of(error, code)
        self._put_last(ag.SubagentErrorEvent(subagent_run_id=self.id, message=message, code=str(code)))
