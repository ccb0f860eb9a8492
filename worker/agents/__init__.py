"""Agents, and everything that an agent's author imports.

Law: provider libraries are imported here and nowhere else, each only by the agent that needs it.
The names below are the public ones; nothing else of the worker is meant for agents.
"""

from worker.activity import Activity
from worker.agents.base import Agent, AgentEntry, AgentError, Interrupt, ProtocolError, UpstreamError
from worker.agents.chat_agent import chat
from worker.agents.entries import agent
from worker.agents.langgraph import langgraph
from worker.agents.pydantic_ai import pydantic_ai
from worker.agents.remote import remote
from worker.agents.stream import of_async_generator, of_generator
from worker.agents.tools import Tool, ToolError, tool
from worker.agents.transformers import FilterToolCalls, SubagentVisibility, Timestamps, ToolResultToState
from worker.blocks import Message, Reasoning, Step, ToolCall
from worker.cancellation import Cancelled, Disconnected
from worker.context import RunContext, Transformer, current_run
from worker.failures import ProviderStreamBroken
from worker.sink import EventBufferFull
from worker.subagent import Subagent
from worker.transformation import TransformerFailed

__all__ = [
    "Activity",
    "Agent",
    "AgentEntry",
    "AgentError",
    "Cancelled",
    "Disconnected",
    "EventBufferFull",
    "FilterToolCalls",
    "Interrupt",
    "Message",
    "ProtocolError",
    "ProviderStreamBroken",
    "Reasoning",
    "RunContext",
    "Step",
    "Subagent",
    "SubagentVisibility",
    "Timestamps",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolResultToState",
    "Transformer",
    "TransformerFailed",
    "UpstreamError",
    "agent",
    "chat",
    "current_run",
    "langgraph",
    "of_async_generator",
    "of_generator",
    "pydantic_ai",
    "remote",
    "tool",
]
