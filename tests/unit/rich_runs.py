"""Runs that show everything a stream can hold, for tests of joins: name -> (input, events as dicts).

All of them are streams that the official client takes without failing.
"""

from __future__ import annotations

import orjson

from shared.protocol import events as ag
from worker.agents.scripted import demo
from worker.agents.testing import record, run_input

HISTORY = [
    {"id": "u1", "role": "user", "content": [{"type": "text", "text": "look at this"}]},
    {"id": "r0", "role": "reasoning", "content": "long ago", "encryptedValue": "sealed"},
    {
        "id": "a1",
        "role": "assistant",
        "toolCalls": [{"id": "old", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"id": "u2", "role": "user", "content": "go on", "name": "Ada", "metadata": {"seen": None}},
]


def event(kind, **members):
    return {"type": kind, **members}


def text(message_id, *deltas, end=True, **members):
    tag = {key: members[key] for key in members if key == "subagentRunId"}
    yield event("TEXT_MESSAGE_START", messageId=message_id, **members)
    for delta in deltas:
        yield event("TEXT_MESSAGE_CONTENT", messageId=message_id, delta=delta, **tag)
    if end:
        yield event("TEXT_MESSAGE_END", messageId=message_id)


def thought(message_id, *deltas, **members):
    yield event("REASONING_START", messageId=message_id, **members)
    yield event("REASONING_MESSAGE_START", messageId=message_id, role="reasoning", **members)
    for delta in deltas:
        yield event("REASONING_MESSAGE_CONTENT", messageId=message_id, delta=delta, **members)
    yield event("REASONING_MESSAGE_END", messageId=message_id)
    yield event("REASONING_END", messageId=message_id)


def parallel_tools():
    """Calls side by side, each in a message of its own, whose results arrive out of turn."""
    for number in (1, 2, 3):
        yield event("TOOL_CALL_START", toolCallId=f"c{number}", toolCallName="search")
    for piece in ('{"q":', '"x"', "}"):
        for number in (1, 2, 3):
            yield event("TOOL_CALL_ARGS", toolCallId=f"c{number}", delta=piece)
    yield event("TOOL_CALL_END", toolCallId="c2")
    yield from thought("t1", "while ", "waiting")
    yield event("TOOL_CALL_RESULT", messageId="tr2", toolCallId="c2", content="two")
    yield event("TOOL_CALL_END", toolCallId="c1", metadata={"took": 3})
    yield event(
        "ACTIVITY_SNAPSHOT", messageId="p", activityType="PLAN", content={"done": []}, metadata={"a": 1}
    )
    yield event("TOOL_CALL_END", toolCallId="c3")
    yield event("REASONING_ENCRYPTED_VALUE", subtype="tool-call", entityId="c3", encryptedValue="E")
    yield from text("m1", "some", "thing")
    yield event("TOOL_CALL_RESULT", messageId="tr3", toolCallId="c3", content=[{"type": "text", "text": "3"}])
    yield event("TOOL_CALL_RESULT", messageId="tr1", toolCallId="c1", content="one", role="tool")
    patch = [{"op": "add", "path": "/done/-", "value": 1}]
    yield event("ACTIVITY_DELTA", messageId="p", activityType="PLAN", patch=patch)
    for number in (4, 5):
        yield event("TOOL_CALL_START", toolCallId=f"c{number}", toolCallName="f", parentMessageId="pair")
        yield event("TOOL_CALL_END", toolCallId=f"c{number}")
    plan = {"activityType": "PLAN", "content": {"done": [1, 2]}, "metadata": {"b": 2}}
    yield event("ACTIVITY_SNAPSHOT", messageId="p", **plan)
    yield event("TOOL_CALL_RESULT", messageId="tr5", toolCallId="c5", content="5")
    yield event("TOOL_CALL_RESULT", messageId="tr4", toolCallId="c4", content="4")
    yield event("TOOL_CALL_RESULT", messageId="tr0", toolCallId="old", content="late")
    yield from text("m2", "the", " end")


def subagents():
    """Two subagents inside each other and one after them, with everything tagged."""
    yield event("STEP_STARTED", stepName="work")
    yield event("TOOL_CALL_START", toolCallId="d", toolCallName="delegate", parentMessageId="m0")
    yield event("SUBAGENT_STARTED", subagentRunId="s1", name="outer", parentToolCallId="d")
    yield event("STEP_STARTED", stepName="work", subagentRunId="s1")
    yield from thought("st", "hm", subagentRunId="s1")
    yield event("SUBAGENT_STARTED", subagentRunId="s2", name="inner", parentSubagentRunId="s1")
    yield event("TEXT_MESSAGE_START", messageId="sm", subagentRunId="s2", metadata={"a": 1})
    yield event("TEXT_MESSAGE_CONTENT", messageId="sm", delta="in", subagentRunId="s2", metadata={"a": 2})
    yield event("TOOL_CALL_START", toolCallId="sc", toolCallName="f", parentMessageId="sm")
    yield event("TOOL_CALL_ARGS", toolCallId="sc", delta="{}", subagentRunId="s2")
    yield event("TEXT_MESSAGE_END", messageId="sm", metadata={"a": 3, "b": {"c": [None]}})
    yield event("TOOL_CALL_END", toolCallId="sc", subagentRunId="s2")
    yield event("TOOL_CALL_RESULT", messageId="sr", toolCallId="sc", content="r", subagentRunId="s2")
    yield event("SUBAGENT_FINISHED", subagentRunId="s2", result={"n": 1}, outcome={"type": "success"})
    yield event(
        "REASONING_ENCRYPTED_VALUE", subtype="message", entityId="sm", encryptedValue="x", subagentRunId="s2"
    )
    yield event("TOOL_CALL_ARGS", toolCallId="d", delta="{}")
    yield event("STEP_FINISHED", stepName="work", subagentRunId="s1")
    yield event("SUBAGENT_ERROR", subagentRunId="s1", message="no", code="X")
    yield event("TOOL_CALL_END", toolCallId="d")
    yield event("SUBAGENT_STARTED", subagentRunId="s3", name="late", parentSubagentRunId="s2")
    yield event("ACTIVITY_SNAPSHOT", messageId="sa", activityType="A", content={}, subagentRunId="s3")
    add = [{"op": "add", "path": "/x", "value": {"y": []}}]
    yield event("ACTIVITY_DELTA", messageId="sa", activityType="B", patch=add, subagentRunId="s3")
    yield event("STATE_DELTA", delta=[{"op": "add", "path": "/by", "value": "s3"}], subagentRunId="s3")
    # An item may be opened again by whoever owns it.
    yield event("TEXT_MESSAGE_START", messageId="sm")
    yield event("TEXT_MESSAGE_CONTENT", messageId="sm", delta=" again", subagentRunId="s2")
    yield event("TEXT_MESSAGE_END", messageId="sm")
    yield event("SUBAGENT_FINISHED", subagentRunId="s3", outcome={"type": "suspended", "interruptIds": ["i"]})
    yield event("STEP_FINISHED", stepName="work")


def chunks():
    """Chunk streams in several lanes, with and without ids, cut by everything that cuts them."""
    tag = {"subagentRunId": "s1"}
    yield event("TEXT_MESSAGE_CHUNK", messageId="k1", delta="one ", name="Bot", metadata={"first": True})
    yield event("TEXT_MESSAGE_CHUNK", delta="two ", role="assistant")
    yield event("RAW", event={"provider": [1]}, source="x")
    yield event("TEXT_MESSAGE_CHUNK", rawEvent={"stop": 1}, metadata={"usage": 5})
    yield event("SUBAGENT_STARTED", name="s", **tag)
    yield event("TOOL_CALL_CHUNK", toolCallId="kc", toolCallName="f", parentMessageId="kp", delta="{", **tag)
    yield event("TEXT_MESSAGE_CHUNK", delta="three")
    yield event("REASONING_ENCRYPTED_VALUE", subtype="tool-call", entityId="kc", encryptedValue="v")
    yield event("TOOL_CALL_CHUNK", delta='"a":')
    yield event("TOOL_CALL_CHUNK", toolCallId="kc", parentMessageId="kp", toolCallName="f", delta="1")
    yield event("TOOL_CALL_CHUNK", metadata={"done": 1}, **tag)
    yield event("TOOL_CALL_CHUNK", delta="}", **tag)
    yield event("REASONING_MESSAGE_CHUNK", messageId="kr", delta="so ")
    yield event("REASONING_MESSAGE_CHUNK", delta="what")
    yield event("REASONING_MESSAGE_CHUNK", messageId="kr2", delta="two", **tag)
    yield event("REASONING_MESSAGE_CHUNK", delta=" more")
    yield event("REASONING_MESSAGE_CHUNK", delta=" lanes", **tag)
    yield event("CUSTOM", name="n", value=None)
    yield event("TEXT_MESSAGE_CHUNK", messageId="k3", role="user", delta="new")
    yield event("TOOL_CALL_RESULT", messageId="kt", toolCallId="kc", content="r", **tag)
    yield event("TEXT_MESSAGE_CHUNK", messageId="k3", delta="er")
    yield event("TEXT_MESSAGE_CHUNK", messageId="k4")
    yield event("TEXT_MESSAGE_CHUNK", delta="")
    yield event("STATE_SNAPSHOT", snapshot={"a": [1, 2]})
    yield event("TEXT_MESSAGE_CHUNK", messageId="k5", delta="x", **tag)
    yield event("SUBAGENT_FINISHED", **tag)
    yield event("TEXT_MESSAGE_CHUNK", messageId="k6", delta="y", **tag)
    yield event("TEXT_MESSAGE_CHUNK", delta="z")


def restated():
    """Snapshots of the agent inside the run: reasoning and activities get new ids, messages go and come."""
    yield from thought("t1", "streamed")
    yield event("ACTIVITY_SNAPSHOT", messageId="p1", activityType="PLAN", content={"n": 1}, metadata={"m": 1})
    yield event("ACTIVITY_SNAPSHOT", messageId="p2", activityType="MAP", content={})
    yield from text("m1", "first")
    yield from text("m2", "open", end=False)
    yield event("ACTIVITY_SNAPSHOT", messageId="p1", activityType="PLAN", content={"n": 2}, replace=True)
    yield event("ACTIVITY_SNAPSHOT", messageId="p1", activityType="PLAN", content={"n": 3}, replace=False)
    kept = [HISTORY[0], HISTORY[3]]
    m2 = {"id": "m2", "role": "assistant", "content": "opened"}
    canonical = {"id": "t1x", "role": "reasoning", "content": "streamed"}
    yield event("MESSAGES_SNAPSHOT", messages=[*kept, canonical, m2])
    yield event("TEXT_MESSAGE_CONTENT", messageId="m2", delta=" still")
    yield event("TEXT_MESSAGE_END", messageId="m2")
    plan = {"id": "p3", "role": "activity", "activityType": "PLAN", "content": {}}
    only_plans = {"@ag-ui/client": {"authoritativeActivityTypes": ["PLAN"]}}
    yield event("MESSAGES_SNAPSHOT", messages=[*kept, m2, plan], metadata=only_plans)
    yield from text("m1", "came back")
    yield event("MESSAGES_SNAPSHOT", messages=[m2, HISTORY[3], plan])
    yield from text("m4", "after")
    yield event("ACTIVITY_SNAPSHOT", messageId="m4", activityType="TURNED", content={"was": "text"})
    everything = {"@ag-ui/client": {"authoritativeActivityTypes": None}}
    yield event("MESSAGES_SNAPSHOT", messages=[m2, HISTORY[3]], metadata=everything)
    yield from text("m5", "last")
    yield from text("m1", "for good")


def state():
    """State by snapshots and patches, some of which do not apply."""
    yield event("STATE_DELTA", delta=[{"op": "add", "path": "/list", "value": [1]}])
    yield event("STATE_DELTA", delta=[{"op": "replace", "path": "/nowhere", "value": 1}])
    yield event(
        "STATE_DELTA",
        delta=[
            {"op": "add", "path": "/list/-", "value": {"a~b/c": None}},
            {"op": "replace", "path": "/list/1/a~0b~1c", "value": True},
            {"op": "copy", "from": "/list", "path": "/copy"},
            {"op": "move", "from": "/list/0", "path": "/copy/0"},
            {"op": "test", "path": "/copy/0", "value": 1},
        ],
    )
    yield event(
        "STATE_DELTA", delta=[{"op": "remove", "path": "/list"}, {"op": "test", "path": "", "value": 0}]
    )
    yield event("STATE_SNAPSHOT", snapshot=None)
    yield event("STATE_SNAPSHOT", snapshot=[])
    yield event("STATE_DELTA", delta=[{"op": "add", "path": "/0", "value": False}])
    yield event("STATE_DELTA", delta=[{"op": "add", "path": "", "value": {"whole": 1}}])


def vanished():
    """A snapshot of the agent drops what is open; what goes on then is heard by nobody."""
    yield event("REASONING_START", messageId="v1")
    yield event("REASONING_MESSAGE_START", messageId="v1", role="reasoning")
    yield event("REASONING_MESSAGE_CONTENT", messageId="v1", delta="a")
    yield from text("v2", "b", end=False)
    yield event("TOOL_CALL_START", toolCallId="v3", toolCallName="f")
    yield event("TOOL_CALL_ARGS", toolCallId="v3", delta="{")
    yield event("MESSAGES_SNAPSHOT", messages=[HISTORY[0], {"id": "v1", "role": "user", "content": "?"}])
    yield event("REASONING_MESSAGE_CONTENT", messageId="v1", delta="c")
    yield event("MESSAGES_SNAPSHOT", messages=[HISTORY[0]])
    yield event("REASONING_MESSAGE_CONTENT", messageId="v1", delta="d")
    yield event("TEXT_MESSAGE_CONTENT", messageId="v2", delta="e")
    yield event("TOOL_CALL_ARGS", toolCallId="v3", delta="}")
    yield event("REASONING_MESSAGE_END", messageId="v1")
    yield event("REASONING_END", messageId="v1")
    yield event("TEXT_MESSAGE_END", messageId="v2")
    yield event("TOOL_CALL_END", toolCallId="v3")


FINISHED = event("RUN_FINISHED", threadId="thread", runId="run", outcome={"type": "success"})
INTERRUPTED = FINISHED | {"outcome": {"type": "interrupt", "interrupts": [{"id": "i", "reason": "ask"}]}}
FAILED = event("RUN_ERROR", message="no", code="AGENT_ERROR")
MADE = {
    "parallel tools": (parallel_tools, FINISHED),
    "subagents": (subagents, INTERRUPTED),
    "chunks": (chunks, FINISHED),
    "restated": (restated, FINISHED),
    "state": (state, FINISHED),
    "vanished": (vanished, FINISHED),
    "failed": (lambda: text("m", "half", end=False), FAILED),
}
QUIET = ["parallel tools", "subagents", "chunks", "restated", "demo", "demo interrupt=true"]


def made(name):
    body, terminal = MADE[name]
    started = event("RUN_STARTED", threadId="thread", runId="run", protocolVersion="1.0")
    return [started, *body(), terminal]


def documents(events):
    return [orjson.loads(ag.dump(one)) for one in events]


def all_runs():
    runs = {name: (run_input(messages=HISTORY, state={"given": 1}), made(name)) for name in MADE}
    for script in ("", "interrupt=true", "fail=crash"):
        given = run_input(f"words=3 delay=0 {script}", messages=HISTORY)
        runs[f"demo {script}".strip()] = (given, documents(record(demo, given)))
    return runs
