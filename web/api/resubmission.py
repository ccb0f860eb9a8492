"""The same identity posted again: whether it is the same run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel

from shared.protocol import sse
from shared.protocol.events import Message, RunAgentInput
from shared.protocol.fold import Fold
from shared.runs.record import RunRecord
from web.problems import Code, Problem

_SNAPSHOT = "MESSAGES_SNAPSHOT"
_CHUNKS = frozenset({"TEXT_MESSAGE_CHUNK", "TOOL_CALL_CHUNK", "REASONING_MESSAGE_CHUNK"})
_NAMES = ("messageId", "toolCallId", "parentMessageId", "entityId")


def require_same_run(
    record: RunRecord, accepted: RunAgentInput, again: RunAgentInput, agent: str, log: Iterable[bytes]
) -> None:
    """Raises the 409 unless agent, conversation and answers are those of the accepted run.

    A client that comes back sends what it has read meanwhile too, so the accepted messages must be a prefix
    of the new ones, as they were accepted or as the run itself had changed them at some event. Activity
    messages, which clients leave out at will, do not count; neither does who of the subagents spoke.
    """
    if record.agent != agent:
        detail = f"This run belongs to the agent {record.agent!r}. Use a new run id."
        raise Problem(Code.RUN_CONFLICT, detail, field="runId")
    if _plain(accepted.resume or []) != _plain(again.resume or []):
        detail = "This run was accepted with other answers to interrupts. Use a new run id."
        raise Problem(Code.RUN_CONFLICT, detail, field="resume")
    sent = _conversation(again.messages)
    if _starts_with(sent, accepted.messages) or _was_read(sent, accepted, log):
        return
    detail = "This run was accepted with other messages. Use a new run id."
    raise Problem(Code.RUN_CONFLICT, detail, field="messages")


class _Head:
    """The messages that a client must have: the accepted ones, later those of the agent's last snapshot."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = {message.id for message in messages}
        self._ids = self._messages | {
            call.id for message in messages for call in getattr(message, "tool_calls", None) or ()
        }
        self._by_chunks = False

    def changes_by(self, event: dict[str, Any]) -> bool:
        """Whether the event, which is the next one, may change the head."""
        named = {event[name] for name in _NAMES if name in event}
        is_chunk = event["type"] in _CHUNKS
        if named & self._ids:
            self._ids |= named
            self._by_chunks = self._by_chunks or is_chunk
            return True
        return is_chunk and not named and self._by_chunks

    def of(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages up to the last one that belongs to it; others may stand between by now."""
        known = [at for at, message in enumerate(messages) if message.id in self._messages]
        return messages[: known[-1] + 1] if known else ()


def _was_read(sent: list[str], accepted: RunAgentInput, log: Iterable[bytes]) -> bool:
    """Whether some event left the conversation as ``sent`` begins: a run may change what was said before it.

    It restates the conversation, answers or encrypts an earlier call, or goes on with an earlier message.
    """
    folded, head = Fold(accepted), _Head(accepted.messages)
    for frame in log:
        data = sse.data_of(frame)
        folded.take_json(data)
        event = json.loads(data)
        if event["type"] == _SNAPSHOT:
            head = _Head(folded.messages)
        elif not head.changes_by(event):
            continue
        if _starts_with(sent, head.of(folded.messages)):
            return True
    return False


def _starts_with(sent: list[str], messages: Sequence[Message]) -> bool:
    original = [message for message in messages if message.role != "activity"]
    if len(sent) < len(original):
        return False
    # From the end, where a run changes something, if it does.
    pairs = zip(reversed(original), reversed(sent[: len(original)]), strict=True)
    return all(_canonical(message) == text for message, text in pairs)


def _conversation(messages: Sequence[Message]) -> list[str]:
    return [_canonical(message) for message in messages if message.role != "activity"]


def _plain(entries: Sequence[BaseModel]) -> list[str]:
    return sorted(_canonical(entry) for entry in entries)


def _canonical(value: BaseModel) -> str:
    members: dict[str, Any] = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    members.pop("subagentRunId", None)
    return json.dumps(members, sort_keys=True)
