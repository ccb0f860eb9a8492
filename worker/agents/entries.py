"""From what an author registers to the entry that the worker runs."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from pydantic import BaseModel

from worker.agents.base import POLICIES, AgentEntry
from worker.agents.stream import of_async_generator, of_generator
from worker.context import RunContext, running


def entry_for(name: str, agent: Any) -> AgentEntry:
    """The entry of a callable or of an object with ``run``.

    ``description`` (else the first line of its docstring), ``capabilities`` and ``policy`` are read
    from attributes of the agent. Raises TypeError with a sentence for what cannot be run.
    """
    body = agent if callable(agent) and not isinstance(agent, type) else getattr(agent, "run", None)
    if isinstance(agent, type) or not callable(body):
        raise TypeError("is neither callable nor an object with a run method")
    _accept_one_argument(body)
    form = type(body).__call__
    if inspect.isasyncgenfunction(body) or inspect.isasyncgenfunction(form):
        run, is_async, at_once = of_async_generator(body), True, True
    elif inspect.isgeneratorfunction(body) or inspect.isgeneratorfunction(form):
        run, is_async, at_once = of_generator(body), False, False
    else:
        is_async = inspect.iscoroutinefunction(body) or inspect.iscoroutinefunction(form)
        run, at_once = body, False
    return AgentEntry(
        name=name,
        run=_in_its_run(run) if is_async else _in_its_run_sync(run),
        is_async=is_async,
        cancel_at_once=at_once,
        description=_description(agent),
        capabilities=_capabilities(agent),
        policy=_policy(agent),
    )


def _accept_one_argument(body: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(body)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(object())
    except TypeError:
        raise TypeError(f"cannot be called with one argument; its signature is {signature}") from None


def _in_its_run(body: Callable[[RunContext], Awaitable[Any]]) -> Callable[[RunContext], Awaitable[Any]]:
    async def run(ctx: RunContext) -> Any:
        with running(ctx):
            return await body(ctx)

    return run


def _in_its_run_sync(body: Callable[[RunContext], Any]) -> Callable[[RunContext], Any]:
    def run(ctx: RunContext) -> Any:
        with running(ctx):
            result = body(ctx)
        # An awaitable is the worker's to await; what a decorator hides of a generator nobody can run.
        if isinstance(result, (AsyncIterator, Iterator)):
            kind = type(result).__name__
            raise TypeError(f"the agent returned a {kind}: register the generator function itself")
        return result

    return run


def _description(agent: Any) -> str | None:
    told = getattr(agent, "description", None)
    if isinstance(told, str):
        return told
    written = agent.__doc__ if inspect.isroutine(agent) else type(agent).__doc__
    return inspect.cleandoc(written).partition("\n")[0] or None if written else None


def _capabilities(agent: Any) -> dict[str, Any] | None:
    told = getattr(agent, "capabilities", None)
    if isinstance(told, BaseModel):
        return told.model_dump(mode="json", by_alias=True)
    return told if isinstance(told, dict) else None


def _policy(agent: Any) -> str:
    told = getattr(agent, "policy", "enqueue")
    if told not in POLICIES:
        raise TypeError(f"has the policy {told!r}; it is one of {', '.join(sorted(POLICIES))}")
    return str(told)
