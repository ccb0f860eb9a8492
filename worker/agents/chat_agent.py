"""The ``chat`` agent: a model behind any endpoint that speaks OpenAI's chat completions, and its tools."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shared.protocol import events as ag
from shared.settings import Settings, load
from worker.agents.base import Interrupt
from worker.agents.chat_messages import request_body
from worker.agents.chat_tools import Toolbox
from worker.agents.tools import Tool
from worker.context import RunContext
from worker.failures import AgentError

if TYPE_CHECKING:
    from worker.agents.chat_provider import Provider

DEFAULT_BASE_URL = "https://api.openai.com/v1"
"""Where a model is asked if only model and key are set."""

MAX_ANSWERS = 10
"""How many answers of the model one run asks for, unless the agent says otherwise."""

_OURS = frozenset({"model", "messages", "stream", "stream_options", "tools"})


def chat(
    *,
    tools: Iterable[Tool[..., Any] | Callable[..., Any]] = (),
    model: str | None = None,
    instructions: str | Callable[[RunContext], str] = "",
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float | None = None,
    max_retries: int | None = None,
    max_answers: int = MAX_ANSWERS,
    options: Mapping[str, Any] | None = None,
    description: str | None = None,
) -> Chat:
    """An agent that asks a model, executes its calls of ``tools`` and asks again, until it only talks.

    What is not given is taken from the settings ``OUTLAST_CHAT_*``; ``timeout`` is in seconds. A run
    fails when ``max_answers`` answers were not enough. ``options`` are further members of the request's
    body, and ``tool_choice`` among them is meant for the first answer only. Raises ValueError without
    a model or a usable address, and TypeError for a function that cannot be a tool.
    """
    settings = load()
    changed: dict[str, Any] = {
        "chat_model": model,
        "chat_base_url": base_url,
        "chat_timeout_seconds": timeout,
        "chat_max_retries": max_retries,
    }
    settings = settings.model_copy(
        update={name: value for name, value in changed.items() if value is not None}
    )
    return make_chat(
        settings,
        tools=tools,
        key=api_key,
        instructions=instructions,
        max_answers=max_answers,
        options=options,
        description=description,
    )


def make_chat(
    settings: Settings,
    *,
    tools: Iterable[Tool[..., Any] | Callable[..., Any]] = (),
    key: str | None = None,
    instructions: str | Callable[[RunContext], str] = "",
    max_answers: int = MAX_ANSWERS,
    options: Mapping[str, Any] | None = None,
    description: str | None = None,
) -> Chat:
    """The agent for these settings, as ``chat``."""
    # The HTTP library is loaded only where a model is asked.
    from worker.agents.chat_provider import Provider

    if not settings.chat_model:
        raise ValueError("chat needs a model: set OUTLAST_CHAT_MODEL")
    if key is None:
        key = settings.chat_api_key.get_secret_value() if settings.chat_api_key else ""
    if taken := sorted(_OURS & (options or {}).keys()):
        raise ValueError(f"chat fills {', '.join(taken)} of the request itself")
    if max_answers < 1:
        raise ValueError("chat needs at least one answer: max_answers is 1 or more")
    provider = Provider(
        base_url=settings.chat_base_url or DEFAULT_BASE_URL,
        key=key,
        model=settings.chat_model,
        seconds=settings.chat_timeout_seconds,
        repeats=settings.chat_max_retries,
    )
    return Chat(
        provider,
        toolbox=Toolbox(tools),
        instructions=instructions,
        max_answers=max_answers,
        options=dict(options or {}),
        description=description,
    )


class Chat:
    """Asks a model, streams its answers, and executes the tools that are the agent's own.

    Calls of the client's tools end the run, which names them as pending; the client sends their results
    with its next run. A call that needs approval ends it interrupted, see ``Toolbox``.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        toolbox: Toolbox,
        instructions: str | Callable[[RunContext], str],
        max_answers: int,
        options: dict[str, Any],
        description: str | None,
    ) -> None:
        self.description = description or "Asks a language model and streams its answer."
        self._provider = provider
        self._toolbox = toolbox
        self._instructions = instructions
        self._max_answers = max_answers
        self._options = options

    @property
    def capabilities(self) -> dict[str, Any]:
        """AG-UI capabilities; what the model itself can do is not known here and stays undeclared."""
        tools: dict[str, Any] = {"supported": True, "parallelCalls": True, "clientProvided": True}
        if self._toolbox:
            tools["items"] = [
                one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in self._toolbox.wire()
            ]
        told: dict[str, Any] = {"transport": {"streaming": True}, "tools": tools}
        if self._toolbox.asks:
            told["humanInTheLoop"] = {"supported": True, "approvals": True, "interrupts": True}
        return told

    async def __call__(self, ctx: RunContext) -> Interrupt | None:
        """Executes one run.

        Raises AgentError for an input that cannot be sent, an answer that was filtered or cut off inside a
        tool call and too many answers; what a tool may raise; ProviderStatusError, ProviderStreamBroken, and
        httpx2's transport errors.
        """
        asked = await ctx.until_cancelled(self._turn(ctx))
        ctx.check_cancelled()
        return asked

    async def _turn(self, ctx: RunContext) -> Interrupt | None:
        messages: list[ag.Message] = list(ctx.messages)
        messages += await self._toolbox.resume(ctx)
        thoughts: dict[str, dict[str, str]] = {}
        for number in itertools.count(1):
            body = self._body(ctx, messages, thoughts)
            if number > 1:
                # Forced in every answer, a call would never end the run.
                body.pop("tool_choice", None)
            reply = await self._provider.answer(ctx, body, messages)
            if not reply.calls:
                return None
            last = number >= self._max_answers
            if last and not any(self._toolbox.is_left(ctx, call) for call in reply.calls):
                # Nothing is executed of which the model will never read the result.
                raise AgentError(f"the model still called tools in answer {number}, the last one allowed")
            done = await self._toolbox.run(ctx, reply.calls)
            if done.questions:
                return Interrupt(*done.questions)
            if done.left:
                return None
            said = reply.message()
            messages += [said, *done.answers]
            thoughts[said.id] = reply.thoughts()
        raise AssertionError("the answers do not end by themselves")

    def _body(
        self, ctx: RunContext, messages: Sequence[ag.Message], thoughts: Mapping[str, Mapping[str, str]]
    ) -> dict[str, Any]:
        told = self._instructions(ctx) if callable(self._instructions) else self._instructions
        body = request_body(
            ctx.input,
            self._provider.model,
            messages=messages,
            tools=self._toolbox.offered(ctx.tools),
            instructions=told,
            thoughts=thoughts,
        )
        return body | self._options
