"""Agents, and everything that an agent's author imports.

Law: provider libraries are imported here and nowhere else, each only by the agent that needs it.
The names below are the public ones; nothing else of the worker is meant for agents.
"""

from worker.agents.base import Agent, AgentEntry, AgentError, Interrupt, ProtocolError, UpstreamError
from worker.agents.stream import of_async_generator, of_generator
from worker.blocks import Message, Reasoning, Step, Subagent, ToolCall
from worker.cancellation import Cancelled, Disconnected
from worker.context import RunContext, Transformer, current_run
from worker.failures import ProviderStreamBroken
from worker.sink import EventBufferFull

__all__ = [
    "Agent",
    "AgentEntry",
    "AgentError",
    "Cancelled",
    "Disconnected",
    "EventBufferFull",
    "Interrupt",
    "Message",
    "ProtocolError",
    "ProviderStreamBroken",
    "Reasoning",
    "RunContext",
    "Step",
    "Subagent",
    "ToolCall",
    "Transformer",
    "UpstreamError",
    "current_run",
    "of_async_generator",
    "of_generator",
]
