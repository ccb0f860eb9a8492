"""The chat completions wire: server-sent events as bytes to chunks, and an error body that may be kept."""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from dataclasses import dataclass
from typing import Any

import httpx2
import orjson

from shared.protocol.events import TokenUsage
from worker.agents.chat_messages import EXTRA
from worker.agents.connection import beginning_of
from worker.agents.event_source import EventSource
from worker.failures import ProtocolError, ProviderStreamBroken

MAX_EVENT_BYTES = 8 * 2**20
"""An event of the answer longer than this breaks the stream; it bounds what one provider can make us hold."""

MAX_BODY_CHARACTERS = 2000
"""How much of a provider's error answer an operator gets to see."""

LONGEST_PAUSE_SECONDS = 8.0
"""The pause before a repeat doubles from half a second up to this, unless the provider names one."""

_ERROR_BODY_BYTES = 65_536
_REASONING = ("reasoning_content", "reasoning")

_SECRETS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;]+"), r"\1 ***"),
    (
        re.compile(
            r"(?i)((?:api[_-]?key|token|secret|password|authorization)[\"']?\s*[:=]\s*[\"']?)[^\s\"',;}&]+"
        ),
        r"\1***",
    ),
    (re.compile(r"\b(?:sk|pk|rk|key|gsk|xai|hf|ghp|AIza)[-_][\w*-]{6,}"), "***"),
    (re.compile(r"(?<![\w-])eyJ[\w-]++\.[\w.-]++"), "***"),
    (re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{40,}"), "***"),
)


class ProviderStatusError(httpx2.HTTPStatusError):
    """The provider answered with an error: a status, an error inside the stream, or no stream at all.

    ``body`` is what it said, sanitised and bounded, for operators only; ``status_code`` is the HTTP status.
    """

    def __init__(self, body: str, response: httpx2.Response) -> None:
        self.body = body
        self.status_code = response.status_code
        message = f"the provider answered with status {self.status_code}: {body}"
        super().__init__(message, request=response.request, response=response)


@dataclass(frozen=True, slots=True)
class CallPart:
    """One fragment of a tool call; ``index`` tells parallel calls apart, where an endpoint gives it.

    ``extra`` is what the endpoint wants to see again with the call, such as a signature of its thinking.
    """

    index: int | None
    call_id: str | None
    name: str | None
    arguments: str
    extra: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one chunk of an answer says, each member absent or empty when it says nothing about it.

    ``reasoning_name`` is the member that the reasoning came in; endpoints do not agree on one.
    """

    text: str = ""
    reasoning: str = ""
    reasoning_name: str = ""
    calls: tuple[CallPart, ...] = ()
    finish_reason: str | None = None
    usage: TokenUsage | None = None
    error: str | None = None


async def data_of(body: AsyncIterable[bytes]) -> AsyncGenerator[list[bytes], None]:
    """The data of the events (WHATWG HTML, server-sent events), in the groups in which the bytes arrived.

    A group may be empty. An event without its closing blank line is dropped. Raises ProviderStreamBroken
    for an event over MAX_EVENT_BYTES.
    """
    source = EventSource(MAX_EVENT_BYTES)
    async for piece in body:
        try:
            ready = source.feed(piece)
        except ProtocolError as error:
            raise ProviderStreamBroken("the provider sent an event without end") from error
        yield ready


async def refuse_errors(response: httpx2.Response, secret: str) -> None:
    """Raises ProviderStatusError for anything but a stream, such as the page behind a wrong address."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.status_code == 200 and kind not in {"application/json", "text/html"}:
        return
    text = await beginning_of(response, _ERROR_BODY_BYTES)
    raise ProviderStatusError(sanitised(text, secret), response)


def pause_before_repeat(error: Exception, attempt: int) -> float | None:
    """Seconds to wait after the failed ``attempt``, None if a repeat would not help.

    Transport errors, 429 and 5xx are worth a repeat; a ``Retry-After`` in seconds is obeyed.
    """
    spread = random.uniform(0.75, 1)  # noqa: S311 - keeps workers from asking in step
    backoff: float = min(LONGEST_PAUSE_SECONDS, 0.5 * 2 ** (attempt - 1)) * spread
    if not isinstance(error, ProviderStatusError):
        return backoff
    if error.status_code != 429 and error.status_code < 500:
        return None
    named = error.response.headers.get("retry-after", "")
    return float(named) if named.isascii() and named.isdigit() else backoff


def parse_chunk(data: bytes, model: str) -> Chunk:
    """One chunk of an answer. Raises ProviderStreamBroken if it is no JSON object."""
    try:
        chunk = _read(data)
    except (ValueError, RecursionError) as error:
        raise ProviderStreamBroken("the provider sent a chunk that is not JSON") from error
    if not isinstance(chunk, dict):
        raise ProviderStreamBroken("the provider sent a chunk that is not an object")
    if chunk.get("error"):
        return Chunk(error=data.decode(errors="replace"))
    usage = _usage(chunk.get("usage"), _text(chunk.get("model")) or model)
    choices = [choice for choice in _objects(chunk.get("choices")) if not choice.get("index")]
    if not choices:
        return Chunk(usage=usage)
    delta = choices[0].get("delta")
    if not isinstance(delta, dict):
        delta = {}
    thinking = next((name for name in _REASONING if _text(delta.get(name))), "")
    return Chunk(
        text=_text(delta.get("content")) + _text(delta.get("refusal")),
        reasoning=_text(delta.get(thinking)),
        reasoning_name=thinking,
        calls=tuple(_call_part(part) for part in _objects(delta.get("tool_calls"))),
        finish_reason=_text(choices[0].get("finish_reason")) or None,
        usage=usage,
    )


def joined(pieces: Iterable[str]) -> str:
    """The text of all pieces; a character that was cut in two between them is whole again."""
    text = "".join(pieces)
    # Through UTF-16, where two halves that follow each other are one character.
    return (
        text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    )


def _read(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        # Half of a character, as providers do send it, is refused there and read here.
        return json.loads(data)


def sanitised(body: str, *secrets: str) -> str:
    """An error answer fit for an operator's eyes: bounded, and what looks like a credential replaced."""
    for secret in secrets:
        if secret:
            body = body.replace(secret, "***")
    # The patterns look at a bounded text only: it is a stranger's, and this runs on the event loop.
    body = body[: 2 * MAX_BODY_CHARACTERS]
    for pattern, instead in _SECRETS:
        body = pattern.sub(instead, body)
    body = "".join(character if character.isprintable() else " " for character in body)
    return body if len(body) <= MAX_BODY_CHARACTERS else body[:MAX_BODY_CHARACTERS] + " ..."


def _call_part(part: dict[str, Any]) -> CallPart:
    function = part.get("function")
    if not isinstance(function, dict):
        function = {}
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        # Some endpoints send the finished object in place of its text.
        arguments = orjson.dumps(arguments).decode()
    index = part.get("index")
    return CallPart(
        index=index if isinstance(index, int) else None,
        call_id=_text(part.get("id")) or None,
        name=_text(function.get("name")) or None,
        arguments=_text(arguments),
        extra=extra if isinstance(extra := part.get(EXTRA), dict) else None,
    )


def _usage(usage: object, model: str) -> TokenUsage | None:
    if not isinstance(usage, dict):
        return None
    counts = {
        "inputTokens": usage.get("prompt_tokens"),
        "outputTokens": usage.get("completion_tokens"),
        "totalTokens": usage.get("total_tokens"),
        "cachedInputTokens": _member(usage.get("prompt_tokens_details"), "cached_tokens"),
        "reasoningTokens": _member(usage.get("completion_tokens_details"), "reasoning_tokens"),
    }
    known = {
        name: count
        for name, count in counts.items()
        if isinstance(count, int) and not isinstance(count, bool) and count >= 0
    }
    return TokenUsage.model_validate({"model": model, **known}) if known else None


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    if isinstance(value, list):
        # Some endpoints send the text in parts.
        return "".join(_text(part.get("text")) for part in _objects(value))
    return value if isinstance(value, str) else ""
