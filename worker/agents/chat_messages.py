"""From a run's input to the body of a chat completions request: messages, tools, allowed options."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, assert_never

import orjson

from shared.protocol.events import (
    AssistantMessage,
    Context,
    DataSource,
    DeveloperMessage,
    FileSource,
    ImagePart,
    Message,
    PartSource,
    RunAgentInput,
    SystemMessage,
    TextPart,
    Tool,
    ToolCall,
    ToolMessage,
    UrlSource,
    UserMessage,
)
from worker.failures import AgentError

LONGEST_CALL_ID = 40
"""Longer tool call ids are refused by some endpoints; ours may hold a client's whole run id."""

OPTIONS: dict[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "max_tokens": (1, 10_000_000),
    "max_completion_tokens": (1, 10_000_000),
    "seed": (-(2**63), 2**63 - 1),
}
"""Members of ``forwardedProps`` that a client may decide, with their bounds; the model is not among them,
because whoever pays for the key chooses it."""

_WHOLE = frozenset({"max_tokens", "max_completion_tokens", "seed"})


EXTRA = "extra_content"
"""Member of a tool call that an endpoint wants to see again with it, such as a signature of its thinking."""

_SEAL = f"{EXTRA}:"


def sealed(extra: dict[str, Any]) -> str:
    """That member as the encrypted value of an AG-UI tool call, in which a client brings it back."""
    return _SEAL + orjson.dumps(extra).decode()


def request_body(
    run_input: RunAgentInput,
    model: str,
    *,
    messages: Sequence[Message] | None = None,
    tools: Sequence[Tool] | None = None,
    instructions: str = "",
    thoughts: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, Any]:
    """The JSON body of ``POST /chat/completions`` for one run, streaming and with usage asked for.

    ``messages`` and ``tools`` take the place of the input's, ``instructions`` stand before everything,
    ``thoughts`` are further members of assistant messages, by the message's id.
    Raises AgentError, in words for the client, when a content part or an option cannot be sent.
    """
    messages = run_input.messages if messages is None else messages
    tools = run_input.tools if tools is None else tools
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": conversation(messages, run_input.context or (), instructions, thoughts or {}),
    }
    if tools:
        body["tools"] = [_function(tool) for tool in tools]
    body.update(options(run_input.forwarded_props))
    return body


def options(forwarded_props: object) -> dict[str, float]:
    """Those of a client's forwarded properties that it may decide; unknown ones are left alone."""
    if not isinstance(forwarded_props, dict):
        return {}
    chosen: dict[str, float] = {}
    for name, (lowest, highest) in OPTIONS.items():
        value = forwarded_props.get(name)
        if value is None:
            continue
        kinds = int if name in _WHOLE else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not lowest <= value <= highest:
            kind = "a whole number" if name in _WHOLE else "a number"
            raise AgentError(f"forwardedProps.{name} must be {kind} from {lowest} to {highest}")
        chosen[name] = value
    return chosen


def conversation(
    messages: Sequence[Message],
    context: Iterable[Context] = (),
    instructions: str = "",
    thoughts: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """The messages as the endpoint demands them.

    The agent's ``instructions``, those that open the conversation and the application's context become
    one ``system`` message (many chat templates allow only one, and only in front; ``developer`` is
    unknown to most).
    Neighbouring assistant messages are joined and each answer follows its call. A call without an
    answer, as a stopped run leaves it, and an answer without a call are left out: endpoints refuse
    the whole conversation because of one. Reasoning of earlier runs and activities are not sent.
    """
    rest = list(messages)
    opening = [instructions]
    while rest and isinstance(first := rest[0], SystemMessage | DeveloperMessage):
        opening.append(first.content)
        del rest[0]
    opening += [f"{item.description}:\n{item.value}" for item in context]
    sent: list[dict[str, Any]] = []
    if text := "\n\n".join(part for part in opening if part):
        sent.append({"role": "system", "content": text})
    answers = {message.tool_call_id: message for message in rest if isinstance(message, ToolMessage)}
    for item in _joined(rest):
        if isinstance(item, UserMessage):
            sent.append({"role": "user", "content": _user_content(item)})
        elif isinstance(item, SystemMessage | DeveloperMessage):
            sent.append({"role": "system", "content": item.content})
        else:
            sent += _assistant(item, answers, thoughts)
    return sent


def _joined(
    messages: Iterable[Message],
) -> Iterator[UserMessage | SystemMessage | DeveloperMessage | list[AssistantMessage]]:
    """The messages that are sent, neighbouring assistant ones as one list."""
    spoken: list[AssistantMessage] = []
    answered = False
    for message in messages:
        match message:
            case AssistantMessage():
                if answered:
                    yield spoken
                    spoken, answered = [], False
                spoken.append(message)
            case ToolMessage():
                answered = bool(spoken)
            case UserMessage() | SystemMessage() | DeveloperMessage():
                if spoken:
                    yield spoken
                    spoken, answered = [], False
                yield message
            case _:
                continue
    if spoken:
        yield spoken


def _assistant(
    spoken: list[AssistantMessage],
    answers: dict[str, ToolMessage],
    thoughts: Mapping[str, Mapping[str, str]],
) -> Iterator[dict[str, Any]]:
    """One assistant message with its answered calls, then the answers in the order of the calls."""
    text = "\n\n".join(message.content for message in spoken if message.content)
    calls = {call.id: call for message in spoken for call in message.tool_calls or () if call.id in answers}
    if not text and not calls:
        return
    sent: dict[str, Any] = {"role": "assistant", "content": text or None}
    for message in spoken:
        sent |= thoughts.get(message.id, {})
    if calls:
        sent["tool_calls"] = [_call(call) for call in calls.values()]
    yield sent
    for call_id in calls:
        # Taken out, so that an id that is used again by a later call is not answered twice.
        answer = answers.pop(call_id)
        yield {"role": "tool", "tool_call_id": _call_id(call_id), "content": _answer(answer)}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": _arguments(call.function.arguments)}
    sent: dict[str, Any] = {"id": _call_id(call.id), "type": "function", "function": function}
    seal = call.encrypted_value or ""
    if seal.startswith(_SEAL):
        with suppress(orjson.JSONDecodeError):
            sent[EXTRA] = orjson.loads(seal.removeprefix(_SEAL))
    return sent


def _arguments(text: str) -> str:
    """The arguments, or an empty object for a model's slip: many endpoints parse what they get back."""
    try:
        return text if isinstance(orjson.loads(text), dict) else "{}"
    except orjson.JSONDecodeError:
        return "{}"


def _call_id(call_id: str) -> str:
    if len(call_id) <= LONGEST_CALL_ID:
        return call_id
    return "call_" + hashlib.sha256(call_id.encode(errors="surrogatepass")).hexdigest()[:32]


def _answer(message: ToolMessage) -> str:
    if isinstance(message.content, str):
        return message.content or message.error or ""
    texts = []
    for part in message.content:
        if not isinstance(part, TextPart):
            raise AgentError(f"the chat agent cannot send a tool result with a part of type {part.type}")
        texts.append(part.text)
    return "\n".join(texts) or message.error or ""


def _user_content(message: UserMessage) -> str | list[dict[str, Any]]:
    if isinstance(message.content, str):
        return message.content
    parts: list[dict[str, Any]] = []
    for part in message.content:
        if isinstance(part, TextPart):
            parts.append({"type": "text", "text": part.text})
        elif isinstance(part, ImagePart):
            parts.append({"type": "image_url", "image_url": {"url": _image_url(part.source)}})
        else:
            raise AgentError(f"the chat agent cannot send a message with a part of type {part.type}")
    return parts


def _image_url(source: PartSource) -> str:
    match source:
        case UrlSource():
            return source.value
        case DataSource():
            return f"data:{source.mime_type};base64,{source.value}"
        case FileSource():
            raise AgentError("the chat agent cannot send an image by a provider's file id")
        case _:
            assert_never(source)


def _function(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "description": tool.description}
    function["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": function}
