"""The audit: who did what to whose run, when and why, and what came of it; refused attempts too."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from shared.runs.record import rfc3339
from shared.store import keys
from shared.store.connection import Client, ask

_MEMBERS = ("run", "bulk", "worker", "filter", "reason", "detail", "counts", "request_id", "roles")
_CURSOR = re.compile(r"[0-9]{1,20}-[0-9]{1,20}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Entry:
    """One act. ``result`` is one word, such as ``requested`` or ``refused``; absent members are None."""

    action: str
    by: str
    result: str
    run: str | None = None
    bulk: str | None = None
    worker: str | None = None
    filter: dict[str, Any] | None = None
    reason: str | None = None
    detail: str | None = None
    counts: dict[str, int] | None = None
    request_id: str | None = None
    roles: tuple[str, ...] | None = None

    def document(self) -> dict[str, Any]:
        """As it is stored and shown, absent members left out."""
        shown: dict[str, Any] = {"by": self.by, "action": self.action, "result": self.result}
        for name in _MEMBERS:
            value = getattr(self, name)
            if value is not None:
                shown[name] = list(value) if isinstance(value, tuple) else value
        return shown


class Audit:
    """Append-only; entries past ``audit_seconds`` are dropped. Raises ``StoreError`` without Redis."""

    def __init__(self, client: Client, keep_seconds: float) -> None:
        self.client = client
        self.keep_ms = int(keep_seconds * 1000)

    def write(self, entry: Entry) -> None:
        """Adds an entry, to the run's own list as well when it is about a run.

        An answer that was lost is asked again and may double the entry, which is better than none.
        """
        now = self._now_ms()
        text = json.dumps({"at": rfc3339(now), **entry.document()})

        def append() -> None:
            pipeline = self.client.pipeline(transaction=False)
            pipeline.xadd(
                keys.AUDIT, {"entry": text}, minid=str(max(0, now - self.keep_ms)), approximate=True
            )
            if entry.run is not None:
                pipeline.rpush(keys.acts(entry.run), text)
                pipeline.pexpire(keys.acts(entry.run), self.keep_ms)
            pipeline.execute()

        ask(append)

    def write_to_run(self, entry: Entry) -> None:
        """Adds an entry to its run's own list alone: a bulk act has one entry in the common list."""
        text, name = (
            json.dumps({"at": rfc3339(self._now_ms()), **entry.document()}),
            keys.acts(entry.run or ""),
        )

        def append() -> None:
            pipeline = self.client.pipeline(transaction=False)
            pipeline.rpush(name, text)
            pipeline.pexpire(name, self.keep_ms)
            pipeline.execute()

        ask(append)

    def _now_ms(self) -> int:
        seconds, micros = ask(self.client.time)
        return int(seconds) * 1000 + int(micros) // 1000

    def page(self, *, limit: int = 50, cursor: str | None = None) -> tuple[list[dict[str, Any]], str | None]:
        """Entries, newest first, and the cursor of the next page; ValueError for a bad cursor."""
        until = f"({cursor}" if cursor else "+"
        if cursor and not _CURSOR.fullmatch(cursor):
            raise ValueError("not a cursor")
        rows: list[Any] = ask(lambda: self.client.xrevrange(keys.AUDIT, until, "-", count=limit + 1))
        shown = [_read(text[b"entry"], moment.decode()) for moment, text in rows[:limit]]
        return shown, (rows[limit - 1][0].decode() if len(rows) > limit else None)

    def of_run(self, key: str) -> list[dict[str, Any]]:
        """What was done to one run, oldest first."""
        texts: list[bytes] = ask(lambda: self.client.lrange(keys.acts(key), 0, -1))
        return [_read(text) for text in texts]


def _read(text: bytes, moment: str | None = None) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads(text)
    return ({"id": moment} if moment else {}) | entry
