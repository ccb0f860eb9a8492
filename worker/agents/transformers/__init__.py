"""Shipped transformers: each turns one event of a run into none, one or several, before it is verified.

Law: one transformer per file; it knows events and nothing else of the worker. An instance serves one run,
an agent registers what makes one, and a given event is never changed, only copied.
"""

from worker.agents.transformers.filter_tool_calls import FilterToolCalls
from worker.agents.transformers.subagent_visibility import SubagentVisibility
from worker.agents.transformers.timestamps import Timestamps
from worker.agents.transformers.tool_result_to_state import ToolResultToState

__all__ = ["FilterToolCalls", "SubagentVisibility", "Timestamps", "ToolResultToState"]
