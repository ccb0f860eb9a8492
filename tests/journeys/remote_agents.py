"""Agents that are agents of an installation somewhere else, by HTTP; the test says where."""

from __future__ import annotations

import os

from worker.agents import remote

UPSTREAM = os.environ["UPSTREAM"]

AGENTS = {
    "far": remote(
        f"{UPSTREAM}/agents/waits", cancel_url=f"{UPSTREAM}/threads/{{threadId}}/runs/{{runId}}/cancel"
    ),
    "far_demo": remote(f"{UPSTREAM}/agents/demo"),
    "far_nowhere": remote(f"{UPSTREAM}/agents/nobody-has-this"),
}
