"""What a chat agent does with the calls of an answer: execute, ask a person, or leave them to the client."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from shared.protocol import events as ag
from worker.agents.tools import Arguments, Tool
from worker.context import RunContext
from worker.failures import AgentError
from worker.json_form import from_json, json_text

APPROVAL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}
"""What an answer to the question about a tool call looks like; the model reads ``reason`` of a denial."""


_APPROVAL = re.compile(r".+-int-\d+-([0-9a-f]{32})", re.DOTALL)


class Called(Protocol):
    """One call that a model made; ``answer`` sends the result and returns it as a message."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def text(self) -> str: ...

    def answer(self, content: str) -> ag.ToolMessage: ...


@dataclass
class Round:
    """What became of one answer's calls: results, questions to people, and whether any is the client's."""

    answers: list[ag.ToolMessage] = field(default_factory=list)
    questions: list[ag.Interrupt] = field(default_factory=list)
    left: bool = False


@dataclass(frozen=True)
class _Ready:
    """A call whose arguments fit."""

    call: Called
    tool: Tool[..., Any]
    arguments: Arguments


@dataclass(frozen=True)
class _Earlier:
    """A call of an earlier run, known from the conversation; its result keeps the call's id."""

    ctx: RunContext
    id: str
    name: str
    text: str

    def answer(self, content: str) -> ag.ToolMessage:
        message_id = self.ctx.tool_result(self.id, content)
        return ag.ToolMessage(id=message_id, role="tool", tool_call_id=self.id, content=content)


class Toolbox:
    """The tools of one agent. Raises ValueError for two of one name, TypeError as Tool."""

    def __init__(self, tools: Iterable[Tool[..., Any] | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool[..., Any]] = {}
        for given in tools:
            one = given if isinstance(given, Tool) else Tool(given)
            if one.name in self._tools:
                raise ValueError(f"an agent has two tools named {one.name}")
            self._tools[one.name] = one

    def __bool__(self) -> bool:
        return bool(self._tools)

    @property
    def asks(self) -> bool:
        """Whether any of them may need a person's approval."""
        return any(one.needs_approval for one in self._tools.values())

    def wire(self) -> list[ag.Tool]:
        """The tools as the protocol writes them."""
        return [
            ag.Tool(name=one.name, description=one.description, parameters=one.parameters)
            for one in self._tools.values()
        ]

    def offered(self, of_client: Sequence[ag.Tool]) -> list[ag.Tool]:
        """What the model is offered: these, then the client's; no client takes the place of one of these."""
        return [*self.wire(), *(one for one in of_client if one.name not in self._tools)]

    def is_left(self, ctx: RunContext, call: Called) -> bool:
        """Whether a call is the client's to answer; without tools here every one is."""
        return call.name not in self._tools and (not self._tools or ctx.tool(call.name) is not None)

    async def run(self, ctx: RunContext, calls: Sequence[Called]) -> Round:
        """Executes what may be executed now and sends the results.

        Raises what ends a run although it was raised in a tool, see ``Tool.answer``.
        """
        done = Round()
        ready: list[_Ready] = []
        for call in calls:
            one = self._tools.get(call.name)
            if self.is_left(ctx, call):
                done.left = True
            elif one is None:
                done.answers.append(call.answer(json_text({"error": f"there is no tool {call.name}"})))
            elif (arguments := one.check(call.text)).problem:
                done.answers.append(call.answer(arguments.problem))
            elif one.must_ask(arguments):
                done.questions.append(_question(ctx, call))
            else:
                ready.append(_Ready(call, one, arguments))
        done.answers += await _executed(ctx, ready)
        return done

    async def resume(self, ctx: RunContext) -> list[ag.ToolMessage]:
        """Executes the approved calls of the conversation, answers the denied ones, and sends the results.

        Raises AgentError for an approval of a call that the conversation does not hold as it was asked for.
        """
        answers = {
            found.group(1): entry
            for entry in ctx.resume
            if (found := _APPROVAL.fullmatch(entry.interrupt_id)) is not None
        }
        done: list[ag.ToolMessage] = []
        ready: list[_Ready] = []
        for call in _unanswered(ctx):
            one = self._tools.get(call.name)
            entry = answers.pop(_digest(call), None) if one is not None else None
            if one is None or entry is None:
                continue
            if not _approved(entry):
                done.append(call.answer(_denial(entry)))
            elif (arguments := one.check(call.text)).problem:
                done.append(call.answer(arguments.problem))
            else:
                ready.append(_Ready(call, one, arguments))
        if any(map(_approved, answers.values())):
            raise AgentError("an approval does not belong to a tool call of this conversation as it is now")
        return done + await _executed(ctx, ready)


async def _executed(ctx: RunContext, ready: Sequence[_Ready]) -> list[ag.ToolMessage]:
    """The results, sent as they come: together, or one by one if a tool demands it."""

    async def one(item: _Ready) -> ag.ToolMessage:
        return item.call.answer(await item.tool.answer(ctx, item.arguments))

    if len(ready) < 2 or any(item.tool.sequential for item in ready):
        return [await one(item) for item in ready]
    return await _together([one(item) for item in ready])


async def _together(work: Sequence[Awaitable[ag.ToolMessage]]) -> list[ag.ToolMessage]:
    """All results in order; the first failure stops the others and is raised as it is."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task in done:
                task.result()
        return [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _question(ctx: RunContext, call: Called) -> ag.Interrupt:
    """Asks about exactly this call: the id carries a digest of it, which the next run compares."""
    return ag.Interrupt(
        id=f"{ctx.new_id('int')}-{_digest(call)}",
        reason="tool_call",
        message=f"The agent asks to call {call.name}.",
        tool_call_id=call.id,
        response_schema=APPROVAL_SCHEMA,
        metadata={"toolName": call.name, "arguments": from_json(call.text, "the arguments")},
    )


def _digest(call: Called) -> str:
    parts = (call.id, call.name, call.text)
    told = b"".join(
        b"%d:%b" % (len(data), data) for data in (part.encode(errors="replace") for part in parts)
    )
    return hashlib.sha256(told).hexdigest()[:32]


def _unanswered(ctx: RunContext) -> Iterator[_Earlier]:
    answered = {message.tool_call_id for message in ctx.messages if isinstance(message, ag.ToolMessage)}
    for message in ctx.messages:
        for call in (message.tool_calls or ()) if isinstance(message, ag.AssistantMessage) else ():
            if call.id not in answered:
                yield _Earlier(ctx, call.id, call.function.name, call.function.arguments)


def _approved(entry: ag.ResumeEntry) -> bool:
    said = entry.payload.get("approved") if isinstance(entry.payload, dict) else None
    return entry.status == "resolved" and said is True


def _denial(entry: ag.ResumeEntry) -> str:
    told: dict[str, Any] = {"error": "a person did not approve this call; it was not executed"}
    reason = entry.payload.get("reason") if isinstance(entry.payload, dict) else None
    return json_text(told | {"reason": reason} if isinstance(reason, str) and reason else told)
