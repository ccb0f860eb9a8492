"""The record of a run as it is read: what is not known yet is absent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from shared.runs.identity import RunIdentity
from shared.runs.lifecycle import Status, is_terminal


def rfc3339(milliseconds: int) -> str:
    """Milliseconds since the epoch as RFC 3339 in UTC with milliseconds."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03d}Z"


_TIMES = (
    "created_at",
    "ready_at",
    "started_at",
    "finished_at",
    "cancel_requested_at",
    "deadline_at",
    "last_event_at",
    "terminated_at",
    "first_event_at",
)
_PUBLIC_TEXTS = ("code", "message", "cancel_reason", "worker", "incident", "answered_by")
_OPERATOR_TEXTS = (
    "parent_run_id",
    "detail",
    "cancel_by",
    "cancel_cause",
    "host",
    "policy",
    "terminated_by",
    "terminate_reason",
    "retry_of",
    "retried_as",
    "traceparent",
)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run's facts; times are milliseconds since the epoch by the clock of Redis.

    ``provider_calls`` are the ended calls of models (name?, at, ms, failed?); ``calling`` is the one that
    is under way (name?, since), kept once it lasts. ``answered_by`` names the run of the same thread that
    answered the interrupts of this one. ``unknown_calls`` are tool calls (id, name) of which nobody knows
    whether they took effect, because the run was ended from outside its worker. ``retries`` is how often the
    run may be executed again when its worker is lost, ``lost`` lists the attempts that were (attempt,
    execution, worker, host, pid, at). ``answering`` are the interrupts that it answers.
    """

    key: str
    identity: RunIdentity
    agent: str
    status: Status
    last_seq: int
    attempt: int
    execution: str | None
    outcome: dict[str, Any] | None
    times: Mapping[str, int]
    texts: Mapping[str, str]
    pid: int | None = None
    size: int = 0
    provider_calls: list[dict[str, Any]] | None = None
    calling: dict[str, Any] | None = None
    unknown_calls: list[dict[str, str]] | None = None
    retries: int = 0
    lost: list[dict[str, Any]] | None = None
    answering: tuple[str, ...] = ()

    @classmethod
    def from_fields(cls, key: str, fields: Mapping[bytes, bytes], last_seq: int) -> RunRecord:
        """Reads the stored hash."""
        texts = {name.decode(): value.decode("utf-8", "replace") for name, value in fields.items()}
        return cls(
            key=key,
            identity=RunIdentity(texts["actor"], texts["thread_id"], texts["run_id"]),
            agent=texts["agent"],
            status=Status(texts["status"]),
            last_seq=last_seq,
            attempt=int(texts.get("attempt", 0)),
            execution=texts.get("execution"),
            outcome=_json(texts, "outcome"),
            times={name: int(float(texts[name])) for name in _TIMES if name in texts},
            texts={name: texts[name] for name in (*_PUBLIC_TEXTS, *_OPERATOR_TEXTS) if name in texts},
            pid=int(texts["pid"]) if "pid" in texts else None,
            size=int(texts.get("bytes", 0)),
            provider_calls=_json(texts, "provider_calls"),
            calling=_json(texts, "calling"),
            unknown_calls=_json(texts, "unknown_calls"),
            retries=int(texts.get("retries", 0)),
            lost=_json(texts, "lost"),
            answering=tuple(_json(texts, "answering") or ()),
        )

    @property
    def first_event_at(self) -> int | None:
        """When the agent's first event was in the log."""
        return self.times.get("first_event_at")

    @property
    def traceparent(self) -> str | None:
        """The trace context of the request that started the run (W3C)."""
        return self.texts.get("traceparent")

    @property
    def ended(self) -> bool:
        """Whether the outcome is recorded."""
        return is_terminal(self.status)

    @property
    def cancel_by(self) -> str | None:
        """Who asked for the stop."""
        return self.texts.get("cancel_by")

    def public(self) -> dict[str, Any]:
        """The record as its owner reads it (JSON, snake_case, absent members left out)."""
        shown: dict[str, Any] = {
            "key": self.key,
            "actor": self.identity.actor,
            "thread_id": self.identity.thread_id,
            "run_id": self.identity.run_id,
            "agent": self.agent,
            "status": str(self.status),
            "last_seq": self.last_seq,
        }
        if self.outcome is not None:
            shown["outcome"] = self.outcome
        if self.attempt:
            shown["attempt"] = self.attempt
        if self.unknown_calls is not None:
            shown["unknown_calls"] = self.unknown_calls
        shown |= {name: self.texts[name] for name in _PUBLIC_TEXTS if name in self.texts}
        shown |= {name: rfc3339(moment) for name, moment in self.times.items() if name in _PUBLIC_TIMES}
        return shown

    def operator_view(self) -> dict[str, Any]:
        """The record with what only operators read: failure detail, host, pid, who asked for the stop."""
        shown = self.public()
        shown |= {name: self.texts[name] for name in _OPERATOR_TEXTS if name in self.texts}
        shown |= {name: rfc3339(moment) for name, moment in self.times.items()}
        if self.pid is not None:
            shown["pid"] = self.pid
        shown["bytes"] = self.size
        if self.provider_calls is not None:
            shown["provider_calls"] = self.provider_calls
        if self.calling is not None:
            shown["calling"] = self.calling
        if self.retries:
            shown["retries"] = self.retries
        if self.lost is not None:
            shown["lost"] = self.lost
        return shown


def _json(texts: Mapping[str, str], name: str) -> Any:
    return json.loads(texts[name]) if name in texts else None


_PUBLIC_TIMES = frozenset({"created_at", "started_at", "finished_at", "cancel_requested_at"})
