"""Tells the records of this process's runs which call to a provider they have been waiting for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

from shared.store.calling import Calling
from shared.store.errors import StoreError
from worker.execution import Execution

SHOWN_AFTER_MS = 1000
"""A call shorter than this never costs a write."""

PAUSE_SECONDS = 1.0
"""How long nothing is tried again after Redis did not answer."""


class Waiting:
    """What was told last per execution; only differences are written. Used by the pulse's thread alone."""

    def __init__(self, calling: Calling) -> None:
        self._calling = calling
        self._told: dict[tuple[str, str], str] = {}
        self._try_at = 0.0

    def look(self, executions: Iterable[Execution], now: float) -> None:
        """Compares and writes; a Redis that does not answer is asked again later. ``now`` is monotonic."""
        if now < self._try_at:
            return
        due_ms = time.time_ns() // 1_000_000 - SHOWN_AFTER_MS
        calls = {
            (execution.key, execution.id): call
            for execution in executions
            if (call := _call_of(execution, due_ms)) is not None
        }
        changed: dict[tuple[str, str], str | None] = {
            who: call for who, call in calls.items() if self._told.get(who) != call
        }
        changed |= dict.fromkeys(self._told.keys() - calls.keys())
        if not changed:
            return
        try:
            self._calling.tell(changed)
        except StoreError:
            self._try_at = now + PAUSE_SECONDS
            return
        self._told = calls


def _call_of(execution: Execution, due_ms: int) -> str | None:
    """The call that has gone on since ``due_ms`` or longer, as JSON."""
    if execution.context is None or execution.abandoned or execution.recording:
        return None
    call = execution.context.provider_calls.current
    return json.dumps(call.document()) if call is not None and call.since <= due_ms else None
