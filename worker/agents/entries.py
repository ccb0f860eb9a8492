"""From what an author registers to the entry that the worker runs."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, TypedDict, Unpack, overload

from pydantic import BaseModel

from shared.protocol.events import SerializationError
from worker.agents.base import MOST_RETRIES, POLICIES, AgentEntry
from worker.agents.stream import of_async_generator, of_generator
from worker.context import RunContext, running
from worker.json_form import json_text
from worker.transformation import Transformer


class Facts(TypedDict, total=False):
    """What may be said about an agent, all of it optional; the terms of ``AgentEntry``."""

    description: str | None
    capabilities: BaseModel | dict[str, Any] | None
    policy: str
    transformers: Iterable[Callable[[], Transformer]]
    state: type[BaseModel] | None
    echo_input: bool
    retry_on_worker_lost: int


def entry_for(name: str, agent: Any) -> AgentEntry:
    """The entry of a callable or of an object with ``run``.

    ``description`` (else the first line of its docstring), ``capabilities``, ``policy``, ``transformers``,
    ``state`` (a pydantic model), ``echo_input`` and ``retry_on_worker_lost`` are read from attributes of the
    agent. Raises TypeError with a sentence for what cannot be run.
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
    state = getattr(agent, "state", None)
    return AgentEntry(
        name=name,
        run=_in_its_run(run) if is_async else _in_its_run_sync(run),
        is_async=is_async,
        cancel_at_once=at_once,
        description=_description(agent),
        capabilities=_capabilities(getattr(agent, "capabilities", None)),
        policy=_policy(getattr(agent, "policy", "enqueue")),
        transformers=_factories(getattr(agent, "transformers", ())),
        # An agent object may well have a state of its own, which is no model.
        state_model=_model(state) if isinstance(state, type) else None,
        echo_input=getattr(agent, "echo_input", False) is True,
        retry_on_worker_lost=_retries(getattr(agent, "retry_on_worker_lost", 0)),
    )


@overload
def agent(body: Any, /, **facts: Unpack[Facts]) -> AgentEntry: ...


@overload
def agent(body: None = None, /, **facts: Unpack[Facts]) -> Callable[[Any], AgentEntry]: ...


def agent(body: Any = None, /, **facts: Unpack[Facts]) -> AgentEntry | Callable[[Any], AgentEntry]:
    """An agent with facts about it, to be registered under a name; also used as ``@agent(...)``.

    Facts that are not given are the agent's own, see ``entry_for``. Raises TypeError with a sentence for an
    agent that cannot be run and for facts that do not fit.
    """
    if body is None:
        return lambda decorated: agent(decorated, **facts)
    known = body if isinstance(body, AgentEntry) else entry_for(getattr(body, "__name__", "agent"), body)
    changed: dict[str, Any] = dict(facts)
    if "capabilities" in changed:
        changed["capabilities"] = _capabilities(changed["capabilities"])
    if "policy" in changed:
        changed["policy"] = _policy(changed["policy"])
    if "retry_on_worker_lost" in changed:
        changed["retry_on_worker_lost"] = _retries(changed["retry_on_worker_lost"])
    if "transformers" in changed:
        changed["transformers"] = _factories(changed["transformers"])
    if "state" in changed:
        changed["state_model"] = _model(changed.pop("state"))
    return dataclasses.replace(known, **changed)


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


def _capabilities(told: Any) -> dict[str, Any] | None:
    if not isinstance(told, BaseModel | dict):
        return None
    try:
        known: dict[str, Any] = json.loads(json_text(told))
    except SerializationError as error:
        raise TypeError(f"has capabilities that cannot be told: {error}") from None
    return known


def _policy(told: Any) -> str:
    if told not in POLICIES:
        raise TypeError(f"has the policy {told!r}; it is one of {', '.join(sorted(POLICIES))}")
    return str(told)


def _retries(told: Any) -> int:
    if isinstance(told, int) and not isinstance(told, bool) and 0 <= told <= MOST_RETRIES:
        return told
    raise TypeError(f"has retry_on_worker_lost={told!r}; it is a number from 0 to {MOST_RETRIES}")


def _model(told: Any) -> type[BaseModel] | None:
    if told is None or (isinstance(told, type) and issubclass(told, BaseModel)):
        return told
    raise TypeError(f"has the state {told!r}, which is no pydantic model class")


def _factories(told: Any) -> tuple[Callable[[], Transformer], ...]:
    for factory in (found := tuple(told)):
        try:
            inspect.signature(factory).bind()
        except (TypeError, ValueError):
            raise TypeError(
                f"has the transformer {factory!r}, which cannot be called without arguments: a run gets "
                "transformers of its own, so give the class or a function that makes one"
            ) from None
    return found
