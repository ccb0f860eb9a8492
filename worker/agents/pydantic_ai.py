"""The ``pydantic_ai`` adapter: a Pydantic AI agent as an agent, by the library's own AG-UI adapter.

How a cancel gets to the model call: the worker cancels the run's task, which closes the library's stream of
events; that cancels the task of its agent, and the model's HTTP connection is closed at once. A tool that is
a plain ``def`` runs in a thread that nothing can stop; it may watch ``current_run()``.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from shared.protocol import events as ag
from worker.agents.threads import private_thread
from worker.context import RunContext, current_run

_MISSING = (
    "pydantic_ai() cannot start: {}. Install what it needs: pip install 'outlast[pydantic-ai]', "
    "in a checkout .venv/bin/pip install -e '.[pydantic-ai]'"
)


def pydantic_ai(
    agent: Any,
    *,
    description: str | None = None,
    deps: Any = None,
    run: dict[str, Any] | None = None,
    **options: Any,
) -> PydanticAI:
    """An agent that runs a ``pydantic_ai.Agent``, or what a function without arguments makes.

    The function, plain or async, is called once per worker process, on its event loop. ``description`` is for
    the catalogue. ``deps`` are the run's dependencies, or a function of the RunContext that gives them, plain
    or async; use one for ``StateDeps``, whose state belongs to one run. ``run`` has further arguments of each
    run, such as ``usage_limits``; ``options`` go to ``AGUIAdapter``, such as ``conversation_store`` or
    ``include_usage``.
    Raises ImportError with the extra to install.
    """
    try:
        import pydantic_ai.ui.ag_ui  # noqa: F401 - a missing library is to be told at the worker's start
    except ImportError as error:
        raise ImportError(_MISSING.format(error), name=error.name) from error
    return PydanticAI(agent, description=description, deps=deps, run=run or {}, options=options)


class PydanticAI:
    """One agent of the library; an async generator of its events. See ``pydantic_ai``.

    The client's messages are the conversation, unless a ``conversation_store`` keeps it, then under a name
    that no two actors share. Tools that need approval pause the run, tools of the client are left to it.
    """

    def __init__(
        self,
        agent: Any,
        *,
        description: str | None,
        deps: Any,
        run: dict[str, Any],
        options: dict[str, Any],
    ) -> None:
        self.description = description or "A Pydantic AI agent."
        self._agent = agent
        self._deps = deps
        self._run = run
        self._options = options

    async def __call__(self, run_input: ag.RunAgentInput) -> AsyncGenerator[ag.Event, None]:
        """The agent's events; a failure is raised as it was, so that it gets its own code."""
        from pydantic_ai.ui.ag_ui import AGUIAdapter

        ctx = current_run()
        kept = self._options.get("conversation_store") is not None
        thread_id = private_thread(ctx) if kept else ctx.thread_id
        given = run_input.model_copy(update={"thread_id": thread_id, "state": copy.deepcopy(run_input.state)})
        options = {**({"conversation_scope": ctx.actor} if kept else {}), **self._options}
        agent = self._agent
        if inspect.isroutine(agent):
            agent = await ctx.resources.on_loop(self, agent)
        adapter: Any = AGUIAdapter(agent, given, **options)
        native = adapter.run_stream_native(deps=await self._deps_of(ctx), **self._run)
        failures: list[Exception] = []
        async with aclosing(adapter.transform_stream(_watched(native, failures))) as events:
            async for event in events:
                if isinstance(event, ag.RunErrorEvent) and failures:
                    raise failures[-1]
                yield event

    async def _deps_of(self, ctx: RunContext) -> Any:
        deps = self._deps
        if inspect.isroutine(deps):
            deps = deps(ctx)
        return await deps if inspect.isawaitable(deps) else deps


async def _watched(native: AsyncIterator[Any], failures: list[Exception]) -> AsyncGenerator[Any, None]:
    """The library's own events; what ends them is kept, before it is turned into text."""
    try:
        async for event in native:
            yield event
    except Exception as error:
        failures.append(error)
        raise
    finally:
        close = getattr(native, "aclose", None)
        if close is not None:
            await close()
