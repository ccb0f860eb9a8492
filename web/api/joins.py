"""The same identity posted again: whether it is the same run, and what its client gets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from shared.protocol.events import Message, parse_input
from shared.runs.record import RunRecord
from web.problems import Code, Problem
from web.services import RunReader


def require_same_run(record: RunRecord, accepted: bytes, agent: str, messages: Sequence[Message]) -> None:
    """Raises the 409 unless agent and conversation are those of the accepted run.

    A client that comes back sends what it has read meanwhile too, so the accepted messages must be a prefix
    of the new ones; activity messages, which clients leave out at will, do not count.
    """
    if record.agent != agent:
        detail = f"This run belongs to the agent {record.agent!r}. Use a new run id."
        raise Problem(Code.RUN_CONFLICT, detail, field="runId")
    original = _conversation(parse_input(accepted, max_depth=255).messages)
    if _conversation(messages)[: len(original)] != original:
        detail = "This run was accepted with other messages. Use a new run id."
        raise Problem(Code.RUN_CONFLICT, detail, field="messages")


def joined(reader: RunReader) -> RunReader:
    """What a client that joins gets: the run's log from its start."""
    return reader


def _conversation(messages: Sequence[Message]) -> list[str]:
    return [_canonical(message) for message in messages if message.role != "activity"]


def _canonical(message: Message) -> str:
    members: dict[str, Any] = message.model_dump(mode="json", by_alias=True, exclude_none=True)
    return json.dumps(members, sort_keys=True)
