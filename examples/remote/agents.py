"""An agent that runs elsewhere, made durable by one line."""

import os

from worker.agents import remote

URL = os.environ.get("FAR_AGENT", "http://127.0.0.1:8700/")

AGENTS = {"far": remote(URL, description="Says back what it hears, word by word.", timeout=30)}
