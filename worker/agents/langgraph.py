"""The ``langgraph`` adapter: a compiled LangGraph graph as an agent, by the package ``ag-ui-langgraph``.

How a cancel gets to the model call: the worker cancels the run's task, LangGraph cancels the tasks of its
running nodes, and an ``async def`` node that awaits its model (``ainvoke``, ``astream``) closes the
provider's connection at once. A plain ``def`` node runs in a thread that nothing can stop: what it blocks on
it must close itself, by ``current_run().on_cancel``, or the call goes on behind a run that has ended.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from importlib import import_module
from types import ModuleType
from typing import Any

from shared.protocol import events as ag
from worker.agents.threads import private_thread
from worker.context import RunContext, current_run

Graph = Any
"""A ``CompiledStateGraph``, or a ``LangGraphAgent`` over one; neither library need be there to name it."""

_MISSING = (
    "langgraph() cannot start: {}. Install what it needs: pip install 'outlast[langgraph]', "
    "in a checkout .venv/bin/pip install -e '.[langgraph]'"
)


def langgraph(
    graph: Graph | Callable[[], Graph | Awaitable[Graph]],
    *,
    description: str | None = None,
    config: dict[str, Any] | None = None,
    **options: Any,
) -> LangGraph:
    """An agent that runs a compiled graph, a ``LangGraphAgent``, or what a function without arguments makes.

    The function is called once per worker process, on its event loop, so that what a checkpointer keeps
    open never crosses a fork. ``description`` is for the catalogue, ``config`` is LangGraph's own, and
    ``options`` go to ``LangGraphAgent``, such as ``subagent_visibility="attributed"``. Raises ImportError
    with the extra to install, and TypeError for what is no graph.
    """
    _package()  # a missing one is to be told at the worker's start
    return LangGraph(graph, description=description, config=config or {}, options=options)


class LangGraph:
    """One graph; an async generator of its events. See ``langgraph``.

    Without a checkpointer of its own a graph remembers nothing: the client's messages are the conversation,
    and a run that pauses fails, since nobody could resume it. With one, threads are kept under a name that
    no two actors share (`worker.agents.threads`). A client does not steer the graph by
    ``forwardedProps.command``; it answers interrupts by ``resume``, which the executor has checked.
    """

    def __init__(
        self, graph: Any, *, description: str | None, config: dict[str, Any], options: dict[str, Any]
    ) -> None:
        self.description = description or "A LangGraph graph."
        self._made = not hasattr(graph, "astream_events") and not hasattr(graph, "clone")
        if self._made and (isinstance(graph, type) or not callable(graph)):
            hint = "; compile it first" if hasattr(graph, "compile") else ""
            raise TypeError(
                f"langgraph() was given a {type(graph).__name__}, which is no compiled graph{hint}"
            )
        self._graph = graph
        self._config = config
        self._options = {
            # Raw events repeat all others, with whatever the graph's state and prompts hold.
            "emit_raw_events": False,
            "emit_interrupt_outcome": True,
            "enable_legacy_on_interrupt_event": False,
            **options,
        }

    async def __call__(self, run_input: ag.RunAgentInput) -> AsyncGenerator[ag.Event, None]:
        """The graph's events; a failure is raised as the graph raised it, so that it gets its own code."""
        ctx = current_run()
        graph = await ctx.resources.on_loop(self, self._graph) if self._made else self._graph
        agent, keeps = self._agent(graph)
        failures = _watch(agent)
        async with aclosing(agent.run(self._input(ctx, run_input))) as events:
            async for event in events:
                if isinstance(event, ag.RunErrorEvent) and failures:
                    raise failures[-1]
                if not keeps and _pauses(event):
                    raise RuntimeError("the graph paused, but has no checkpointer to be resumed from")
                yield event

    def _agent(self, graph: Any) -> tuple[Any, bool]:
        """A ``LangGraphAgent`` for one run, and whether it remembers threads."""
        from langgraph.checkpoint.memory import InMemorySaver

        package = _package()
        if isinstance(graph, package.LangGraphAgent):
            agent: Any = graph.clone()
        else:
            agent = package.LangGraphAgent(
                name="graph", graph=graph, config=dict(self._config), **self._options
            )
        keeps = not isinstance(agent.graph.checkpointer, bool | None)
        if not keeps:
            # The package reads the state back after each step, so there must be one for the run.
            agent.graph = agent.graph.copy({"checkpointer": InMemorySaver()})
        return agent, keeps

    def _input(self, ctx: RunContext, run_input: ag.RunAgentInput) -> ag.RunAgentInput:
        props = run_input.forwarded_props
        if isinstance(props, dict):
            props = {name: value for name, value in props.items() if name != "command"}
        # The package writes into the state that it is given.
        state = copy.deepcopy(run_input.state)
        members = {"thread_id": private_thread(ctx), "state": state, "forwarded_props": props}
        return run_input.model_copy(update=members)


def _package() -> ModuleType:
    try:
        return import_module("ag_ui_langgraph")
    except ImportError as error:
        raise ImportError(_MISSING.format(error), name=error.name) from error


def _watch(agent: Any) -> list[BaseException]:
    """What the graph raises in the run; the package itself turns it into text."""
    from langchain_core.callbacks import AsyncCallbackHandler
    from langchain_core.runnables.config import merge_configs

    failures: list[BaseException] = []

    class Watching(AsyncCallbackHandler):
        run_inline = True

        async def on_chain_error(self, error: BaseException, *, parent_run_id: Any = None, **_: Any) -> None:
            if parent_run_id is None:
                failures.append(error)

    agent.config = merge_configs(agent.config, {"callbacks": [Watching()]})
    return failures


def _pauses(event: Any) -> bool:
    return isinstance(event, ag.RunFinishedEvent) and isinstance(
        event.outcome, ag.RunFinishedInterruptOutcome
    )
