"""What a run was asked: the request's input, as an agent reads it."""

from __future__ import annotations

from typing import Any

from shared.protocol import events as ag
from shared.protocol.events import RunAgentInput


class RunView:
    """The request by its members, absent ones as empty values."""

    def __init__(self, run_input: RunAgentInput) -> None:
        self.input = run_input

    @property
    def thread_id(self) -> str:
        """The conversation."""
        return self.input.thread_id

    @property
    def run_id(self) -> str:
        """The run."""
        return self.input.run_id

    @property
    def parent_run_id(self) -> str | None:
        """The run that the client says this one branches off from."""
        return self.input.parent_run_id

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
        """Tools that the client offers to execute; calling another is no error."""
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
