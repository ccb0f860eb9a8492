"""The agents that runs may be started of, and the refusals where there are none."""

from __future__ import annotations

from typing import Any

from web.problems import Code, Problem
from web.services import services

NO_WORKER_YET = "No worker has been seen yet. Start one with: celery -A worker worker"


def offered() -> dict[str, dict[str, Any]]:
    """Name to facts; empty when no worker was ever seen.

    While no worker is up these are all agents that were ever offered, for runs may wait for a worker. Beside
    live workers those of workers long gone are left out. Raises ``StoreError``.
    """
    known = services().agents()
    if not is_served(known):
        return known
    return {name: facts for name, facts in known.items() if facts["offered"] != "once"}


def is_served(known: dict[str, dict[str, Any]]) -> bool:
    """Whether a live worker offers any of these agents."""
    return any(facts["offered"] == "now" for facts in known.values())


def unknown_agent(name: str, there: dict[str, dict[str, Any]]) -> Problem:
    """The refusal for an agent that is not among ``there``, which it names."""
    if not is_served(there):
        detail = f"No worker is up. Known from workers that are gone: {', '.join(there)}."
    else:
        detail = f"No worker offers the agent {name!r}. There are: {', '.join(there)}."
        if name in services().agents():
            detail += f" {name!r} is known from a worker that is gone."
    return Problem(Code.UNKNOWN_AGENT, detail, field="agent")
