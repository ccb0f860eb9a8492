"""The same identity posted again by a client that has read how the run changed what was said before it."""

from __future__ import annotations

import json

import pytest

from shared.protocol import sse
from shared.store.log import Batch
from shared.store.store import Store
from tests.client_rules import Client
from tests.web.played_worker import (
    Body,
    Caller,
    PlayedWorker,
    ends,
    key_of,
    problem_of,
    run_input,
    says,
    starts,
)

CALLING = {
    "id": "a0",
    "role": "assistant",
    "toolCalls": [{"id": "c0", "type": "function", "function": {"name": "ask", "arguments": "{}"}}],
}
QUESTION = {"id": "u0", "role": "user", "content": "hello"}
FURTHER = {"id": "u1", "role": "user", "content": "well?"}

CHANGES: dict[str, list[Body]] = {
    "answers an earlier call": [
        {"type": "TOOL_CALL_RESULT", "messageId": "t0", "toolCallId": "c0", "content": "late"}
    ],
    "seals an earlier message": [
        {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": "u0", "encryptedValue": "s"}
    ],
    "seals an earlier call": [
        {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "tool-call", "entityId": "c0", "encryptedValue": "s"}
    ],
    "goes on with an earlier message": [starts("a0"), says("more", "a0"), ends("a0")],
    "goes on with an earlier message in chunks": [
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "a0", "delta": "mo"},
        {"type": "TEXT_MESSAGE_CHUNK", "delta": "re"},
    ],
    "calls in an earlier message": [
        {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "f", "parentMessageId": "a0"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": "{"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": "}"},
        {"type": "TOOL_CALL_END", "toolCallId": "c1"},
        {"type": "TOOL_CALL_RESULT", "messageId": "t1", "toolCallId": "c1", "content": "r"},
    ],
    "restates the conversation": [
        starts(),
        says("a"),
        {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "sum", "role": "user", "content": "in short"}]},
    ],
    "restates the conversation and goes on": [
        {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "sum", "role": "assistant", "content": "in "}]},
        starts("sum"),
        says("sh", "sum"),
        says("ort", "sum"),
        ends("sum"),
    ],
}


@pytest.fixture(params=sorted(CHANGES))
def changed(request: pytest.FixtureRequest, caller: Caller, worker: PlayedWorker, store: Store) -> list[Body]:
    """A run that changed its conversation; its events."""
    caller.start_in_background(run_input(messages=[QUESTION, CALLING, FURTHER]))
    claim = worker.claim(key_of("run"))
    events = [*CHANGES[request.param], starts("new"), says("after", "new")]
    frames = [sse.frame(seq, json.dumps(event).encode()) for seq, event in enumerate(events, 2)]
    assert store.log.append(Batch(claim.key, claim.execution, 2, tuple(frames))).state == "ok"
    return [{"type": "RUN_STARTED"}, *events]


def test_whatever_the_run_did_to_the_conversation_a_client_that_read_it_is_let_in(
    caller: Caller, changed: list[Body]
):
    for read in range(len(changed) + 1):
        client = Client([QUESTION, CALLING, FURTHER]).run(changed[:read])
        response = caller.start_in_background(run_input(messages=client.messages))
        assert response.status_code == 202, (read, client.messages)


@pytest.mark.parametrize("change", ["another question", "left out", "in another order", "in front"])
def test_a_client_that_read_something_else_is_not(caller: Caller, changed: list[Body], change: str):
    read = Client([QUESTION, CALLING, FURTHER]).run(changed).messages
    other = {
        "another question": [{**read[0], "content": "what?"}, *read[1:]],
        "left out": read[1:],
        "in another order": [*read[1:], read[0]],
        "in front": [{"id": "x", "role": "user", "content": "x"}, *read],
    }[change]
    problem_of(caller.start(run_input(messages=other)), 409, "RUN_CONFLICT")
