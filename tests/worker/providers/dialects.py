"""What a provider of each make streams: found by the path that its client asks for."""

from __future__ import annotations

import binascii
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Dialect:
    """One answer in pieces: its first words, the rest, its regular end, and an error in mid-stream."""

    content_type: str
    first: bytes
    rest: tuple[bytes, ...]
    end: bytes
    failure: bytes


SECRET = "upstream-secret-detail"
"""What stands in every refusal's body, and must not reach a client."""

WORDS = ("Hello", " from", " the", " provider")


def _sse(data: Mapping[str, Any], name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def _openai(delta: dict[str, str], finish: str | None = None) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return _sse(
        {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    )


def _anthropic(kind: str, **members: Any) -> bytes:
    return _sse({"type": kind, **members}, kind)


def _anthropic_text(text: str) -> bytes:
    return _anthropic("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


def _genai(text: str, **members: Any) -> bytes:
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0, **members}
    return _sse({"candidates": [candidate]}).replace(b"\n", b"\r\n")


def _bedrock(payload: Mapping[str, Any], **headers: str) -> bytes:
    """One message of the AWS event stream: lengths, headers and payload, each guarded by a checksum."""
    named = {
        "content-type": "application/json",
        **{name.replace("_", "-"): headers[name] for name in headers},
    }
    packed = b""
    for name, value in named.items():
        packed += struct.pack("!B", len(name) + 1) + b":" + name.encode()
        packed += struct.pack("!BH", 7, len(value)) + value.encode()
    body = json.dumps(payload).encode()
    prelude = struct.pack("!II", 16 + len(packed) + len(body), len(packed))
    message = prelude + struct.pack("!I", binascii.crc32(prelude)) + packed + body
    return message + struct.pack("!I", binascii.crc32(message))


def _bedrock_event(kind: str, **payload: Any) -> bytes:
    return _bedrock(payload, event_type=kind, message_type="event")


def _bedrock_text(text: str) -> bytes:
    return _bedrock_event("contentBlockDelta", contentBlockIndex=0, delta={"text": text})


_USAGE = {"input_tokens": 1, "output_tokens": 1}
_EMPTY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": _USAGE,
}
PLAIN = Dialect("text/plain", b"first\n", (b"second\n",), b"", b"an error\n")
OPENAI = Dialect(
    "text/event-stream",
    _openai({"role": "assistant", "content": WORDS[0]}),
    (*(_openai({"content": word}) for word in WORDS[1:]), _openai({}, "stop")),
    b"data: [DONE]\n\n",
    _sse({"error": {"message": SECRET, "type": "server_error", "code": None}}),
)
ANTHROPIC = Dialect(
    "text/event-stream",
    _anthropic("message_start", message=_EMPTY)
    + _anthropic("content_block_start", index=0, content_block={"type": "text", "text": ""})
    + _anthropic_text(WORDS[0]),
    (
        *map(_anthropic_text, WORDS[1:]),
        _anthropic("content_block_stop", index=0),
        _anthropic("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=_USAGE),
    ),
    _anthropic("message_stop"),
    _anthropic("error", error={"type": "overloaded_error", "message": SECRET}),
)
GENAI = Dialect(
    "text/event-stream",
    _genai(WORDS[0]),
    tuple(map(_genai, WORDS[1:])),
    _genai("", finishReason="STOP"),
    json.dumps({"error": {"code": 503, "message": SECRET, "status": "UNAVAILABLE"}}).encode() + b"\r\n",
)
BEDROCK = Dialect(
    "application/vnd.amazon.eventstream",
    _bedrock_event("messageStart", role="assistant") + _bedrock_text(WORDS[0]),
    (*map(_bedrock_text, WORDS[1:]), _bedrock_event("contentBlockStop", contentBlockIndex=0)),
    _bedrock_event("messageStop", stopReason="end_turn"),
    _bedrock({"message": SECRET}, exception_type="throttlingException", message_type="exception"),
)
BEDROCK_WHOLE = Dialect(
    "application/json",
    b'{"output":{"message":{"role":"assistant","content":[{"text":"Hello from the provider"}]}},',
    (b'"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":1,"totalTokens":2},',),
    b'"metrics":{"latencyMs":1}}',
    b"no JSON",
)
_BY_ENDING = {
    "/chat/completions": OPENAI,
    "/v1/messages": ANTHROPIC,
    ":streamGenerateContent": GENAI,
    "/converse-stream": BEDROCK,
    "/converse": BEDROCK_WHOLE,
}


def dialect_of(path: str) -> Dialect:
    """The dialect that a request's path asks for."""
    path = path.partition("?")[0]
    return next((dialect for ending, dialect in _BY_ENDING.items() if path.endswith(ending)), PLAIN)
