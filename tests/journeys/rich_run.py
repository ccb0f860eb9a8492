"""Runs for the agent ``plays`` that show everything a client can be told, and what they begin with."""

from __future__ import annotations

from collections.abc import Iterator

from tests.journeys.sse_stream import Event
from tests.unit.rich_runs import HISTORY, MADE, QUIET, event, made, text, thought

__all__ = ["BODIES", "HISTORY", "QUIET", "STATE", "event", "rich"]

STATE = {"given": 1}


def rich(name: str = "x") -> Iterator[Event]:
    """Reasoning, steps, parallel calls, state, a subagent, an activity, chunks; ids begin with ``name``."""
    tag = {"subagentRunId": f"{name}-s"}
    patch = [{"op": "add", "path": "/done", "value": [name]}]
    yield event("STEP_STARTED", stepName=f"{name}-plan")
    yield from thought(f"{name}-r", "let me", " think")
    yield event("REASONING_ENCRYPTED_VALUE", subtype="message", entityId=f"{name}-r", encryptedValue="sealed")
    yield event("STATE_SNAPSHOT", snapshot={"by": name, "list": []})
    yield event("STEP_FINISHED", stepName=f"{name}-plan")
    yield from text(f"{name}-m1", "I ", "search")
    for number in (1, 2):
        call = {"toolCallName": "search", "parentMessageId": f"{name}-m1"}
        yield event("TOOL_CALL_START", toolCallId=f"{name}-c{number}", **call)
    for number in (1, 2):
        yield event("TOOL_CALL_ARGS", toolCallId=f"{name}-c{number}", delta='{"q":')
        yield event("TOOL_CALL_ARGS", toolCallId=f"{name}-c{number}", delta=f"{number}}}")
    yield event("TOOL_CALL_END", toolCallId=f"{name}-c2")
    yield event("TOOL_CALL_RESULT", messageId=f"{name}-t2", toolCallId=f"{name}-c2", content="two")
    yield event("STATE_DELTA", delta=[{"op": "add", "path": "/list/-", "value": 2}])
    yield event("SUBAGENT_STARTED", name="helper", parentToolCallId=f"{name}-c1", **tag)
    yield event("STEP_STARTED", stepName="inside", **tag)
    yield event("ACTIVITY_SNAPSHOT", messageId=f"{name}-a", activityType="PLAN", content={"done": []}, **tag)
    yield from text(f"{name}-sm", "sub", "agent", **tag)
    yield event("ACTIVITY_DELTA", messageId=f"{name}-a", activityType="PLAN", patch=patch, **tag)
    yield event("CUSTOM", name="progress", value={"half": True})
    yield event("STEP_FINISHED", stepName="inside", **tag)
    yield event("SUBAGENT_FINISHED", result={"n": 1}, **tag)
    yield event("TOOL_CALL_END", toolCallId=f"{name}-c1")
    yield event("TOOL_CALL_CHUNK", toolCallId=f"{name}-c3", toolCallName="ask", delta="{")
    yield event("TOOL_CALL_CHUNK", delta="}")
    yield event("TEXT_MESSAGE_CHUNK", messageId=f"{name}-k", delta="in ")
    yield event("TEXT_MESSAGE_CHUNK", delta="chunks")
    yield event("STATE_DELTA", delta=[{"op": "replace", "path": "/list/0", "value": {"three": 3}}])
    yield from text(f"{name}-m2", "the", " end")


BODIES: dict[str, list[Event]] = {"rich": list(rich()), **{name: made(name)[1:-1] for name in MADE}}
"""What the agent emits, by the name of the script; the first event and the terminal one are Outlast's."""
