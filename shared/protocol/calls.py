"""Tool calls of a run that have no result: whoever executes them may or may not have done so."""

from collections.abc import Collection, Iterable
from contextlib import suppress

import orjson

from shared.protocol.chunks import ChunkLanes, Wire
from shared.protocol.events import ACCEPTED_DEPTH, dump_input, parse_input
from shared.protocol.sse import data_of


def unknown_calls(
    run_input: bytes, frames: Iterable[bytes], answering: Collection[str] = ()
) -> list[dict[str, str]]:
    """Calls in these frames of a run's log without a result, as ``{id, name}`` in the order of their start.

    A tool that the request brings is the client's to execute, so its calls have no effect here. Calls that
    an earlier run left open count, too, if the request grants one of the interrupts in ``answering``: what
    was granted was being executed. What cannot be read is passed over.
    """
    document = _read(run_input)
    granted = any(
        entry.get("status") == "resolved" and entry.get("interruptId") in answering
        for entry in document.get("resume") or ()
    )
    calls: dict[str, str] = {}
    for message in document.get("messages", ()) if granted else ():
        calls |= {call["id"]: call["function"]["name"] for call in message.get("toolCalls") or ()}
        calls.pop(message.get("toolCallId"), None)
    lanes = ChunkLanes()
    for frame in frames:
        with suppress(ValueError, KeyError, TypeError):
            for event in lanes.expand(orjson.loads(data_of(frame))):
                _take(calls, event)
    brought = {tool["name"] for tool in document.get("tools") or ()}
    return [{"id": call, "name": name} for call, name in calls.items() if name not in brought]


def _read(run_input: bytes) -> Wire:
    try:
        document: Wire = orjson.loads(dump_input(parse_input(run_input, max_depth=ACCEPTED_DEPTH)))
    except ValueError:
        return {}
    return document


def _take(calls: dict[str, str], event: Wire) -> None:
    if event["type"] == "TOOL_CALL_START":
        calls[event["toolCallId"]] = event["toolCallName"]
    elif event["type"] == "TOOL_CALL_RESULT":
        calls.pop(event["toolCallId"], None)
