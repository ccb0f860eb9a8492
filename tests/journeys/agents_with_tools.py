"""Agents of the real-server journeys: a model with Python tools."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from worker.agents import RunContext
from worker.agents.chat_agent import chat
from worker.agents.tools import tool


@tool
async def get_weather(city: str) -> dict[str, Any]:
    """Tells the weather of a city."""
    return {"city": city, "degrees": 21}


@tool
def get_time(zone: int) -> str:
    """Tells the time in a zone, in hours east of Greenwich."""
    return f"{12 + zone}:00"


@tool(needs_approval=True)
def delete_file(path: str, ctx: RunContext) -> str:
    """Deletes a file."""
    line = json.dumps([ctx.run_id, ctx.attempt, os.getpid(), f"deleted {path}"])
    with Path(os.environ["EFFECTS_FILE"]).open("a") as file:
        file.write(line + "\n")
    return f"deleted {path}"


AGENTS = {"helper": chat(tools=[get_weather, get_time, delete_file], instructions="Help with the weather.")}
