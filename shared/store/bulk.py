"""Bulk cancels: a frozen list of runs, worked off in the background by whichever process is there.

Progress and per-run results live in Redis, so a process that dies leaves nothing undone: the sweep's leader
goes on. Asking a run twice is harmless.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from shared.logs import get_logger
from shared.runs.identity import KEY_PATTERN
from shared.runs.lifecycle import Status
from shared.runs.outcome import StopCause
from shared.runs.record import rfc3339
from shared.store import keys
from shared.store.audit import Audit, Entry
from shared.store.connection import Client, ask
from shared.store.ending import end_fenced
from shared.store.errors import StoreError
from shared.store.log import EventLog
from shared.store.runs import RunStore
from shared.store.search import Filter, filter_of

MOST_RUNS = 500
"""How many runs one bulk cancel takes."""

KEEP_SECONDS = 604_800
LOCK_SECONDS = 10

Result = Literal["asked", "cancelled", "already_finished", "refused", "failed"]
RESULTS: tuple[Result, ...] = ("asked", "cancelled", "already_finished", "refused", "failed")

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Bulk:
    """One bulk cancel; ``matched`` runs fitted, ``total`` of them were taken."""

    bulk_id: str
    state: str
    by: str
    filter: Filter
    created_at: int
    matched: int
    total: int
    counts: dict[str, int]
    reason: str | None = None
    finished_at: int | None = None
    words: str | None = None
    retry_of: str | None = None

    @property
    def said(self) -> str:
        """Which runs, for people: the filter, unless the runs were named one by one."""
        return self.words or self.filter.words()

    def document(self) -> dict[str, Any]:
        """As it is shown, absent members left out."""
        shown: dict[str, Any] = {
            "id": self.bulk_id,
            "state": self.state,
            "by": self.by,
            "words": self.said,
            "created_at": rfc3339(self.created_at),
            "matched": self.matched,
            "total": self.total,
            "done": sum(self.counts.values()),
            "counts": self.counts,
        }
        if self.words is None:
            shown["filter"] = self.filter.document()
        if self.reason:
            shown["reason"] = self.reason
        if self.retry_of:
            shown["retry_of"] = self.retry_of
        if self.finished_at is not None:
            shown["finished_at"] = rfc3339(self.finished_at)
        return shown


class BulkCancels:
    """Creates, works off and reads bulk cancels. Raises ``StoreError`` when Redis does not answer."""

    def __init__(self, client: Client, runs: RunStore, event_log: EventLog) -> None:
        self.client = client
        self.runs = runs
        self.event_log = event_log
        self.audit = Audit(client, runs.settings.audit_seconds)

    def create(
        self,
        wanted: Filter,
        run_keys: list[str],
        *,
        matched: int,
        by: str,
        reason: str | None = None,
        words: str | None = None,
        retry_of: str | None = None,
    ) -> Bulk:
        """Freezes the list; ``work`` carries it out. ``words`` stand for a list that no filter made."""
        bulk_id, now = secrets.token_hex(8), self.runs.now_ms()
        facts: dict[Any, Any] = {
            "state": "running",
            "by": by,
            "filter": json.dumps(wanted.document()),
            "created_at": now,
            "matched": matched,
            "total": len(run_keys),
        }
        said = {"reason": reason, "words": words, "retry_of": retry_of}
        facts |= {name: text for name, text in said.items() if text}

        def write() -> None:
            # In one transaction: asked again after a lost answer it must not double the list.
            pipeline = self.client.pipeline(transaction=True)
            pipeline.hset(keys.bulk(bulk_id), mapping=facts)
            pipeline.delete(keys.bulk_todo(bulk_id))
            pipeline.rpush(keys.bulk_todo(bulk_id), *run_keys)
            for name in (keys.bulk(bulk_id), keys.bulk_todo(bulk_id)):
                pipeline.expire(name, KEEP_SECONDS)
            pipeline.zadd(keys.BULKS, {bulk_id: now})
            pipeline.zremrangebyscore(keys.BULKS, "-inf", now - KEEP_SECONDS * 1000)
            pipeline.execute()

        ask(write)
        found = self.get(bulk_id)
        if found is None:
            raise StoreError("the bulk cancel was not stored")
        return found

    def get(self, bulk_id: str) -> Bulk | None:
        """One bulk cancel as it stands, or None."""

        def read() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            pipeline.hgetall(keys.bulk(bulk_id))
            pipeline.hvals(keys.bulk_results(bulk_id))
            return list(pipeline.execute())

        stored, results = ask(read)
        if not stored:
            return None
        facts = {name.decode(): value.decode("utf-8", "replace") for name, value in stored.items()}
        counted = Counter(result.decode() for result in results)
        return Bulk(
            bulk_id=bulk_id,
            state=facts["state"],
            by=facts["by"],
            filter=filter_of(json.loads(facts["filter"])),
            created_at=int(facts["created_at"]),
            matched=int(facts["matched"]),
            total=int(facts["total"]),
            counts={str(result): counted[result] for result in RESULTS},
            reason=facts.get("reason"),
            words=facts.get("words"),
            retry_of=facts.get("retry_of"),
            finished_at=int(facts["finished_at"]) if "finished_at" in facts else None,
        )

    def results(self, bulk_id: str) -> dict[str, str]:
        """Run key -> what became of it, for those asked so far."""
        stored: dict[bytes, bytes] = ask(lambda: self.client.hgetall(keys.bulk_results(bulk_id)))
        return {key.decode(): result.decode() for key, result in sorted(stored.items())}

    def recent(self, limit: int = 20) -> list[Bulk]:
        """The newest first."""
        names = ask(lambda: self.client.zrange(keys.BULKS, 0, limit - 1, desc=True))
        found = [self.get(name.decode()) for name in names]
        return [bulk for bulk in found if bulk is not None]

    def stop(self, bulk_id: str) -> Bulk | None:
        """Asks no further runs; those asked stay asked."""
        found = self.get(bulk_id)
        if found is not None and found.state == "running":
            self._close(bulk_id, "stopped")
            return self.get(bulk_id)
        return found

    # --- working it off -----------------------------------------------------------------------------------

    def work(self, bulk_id: str, enqueue: Callable[[str], None], most: int | None = None) -> int:
        """Asks the runs that are left, at most ``most`` of them; 0 while another process is at work.

        ``enqueue`` takes the runs whose turn the endings brought.
        """
        facts, token, done = self.get(bulk_id), secrets.token_hex(8), 0
        if facts is None or not self._lock(bulk_id, token):
            return 0
        try:
            while (most is None or done < most) and self._lock(bulk_id, token):
                state, head = self._head(bulk_id)
                if state != b"running":
                    break
                if head is None:
                    self._close(bulk_id, "done")
                    break
                self._note(facts, head.decode(), self._cancel(head.decode(), facts.by, facts.reason, enqueue))
                done += 1
        finally:
            self._unlock(bulk_id, token)
        return done

    def go_on(self, enqueue: Callable[[str], None], most: int = 50) -> int:
        """Continues what another process left behind; called by the sweep's leader."""
        done = 0
        for name in ask(lambda: self.client.zrange(keys.BULKS, 0, 19, desc=True)):
            if self._head(name.decode())[0] == b"running":
                done += self.work(name.decode(), enqueue, most - done)
            if done >= most:
                break
        return done

    def _cancel(self, key: str, by: str, reason: str | None, enqueue: Callable[[str], None]) -> Result:
        try:
            record = self.runs.get(key)
            if record is None:
                return "refused"
            answer = self.runs.request_cancel(key, by=by, cause=StopCause.OPERATOR, reason=reason)
            if answer.fence is None:
                known: dict[str, Result] = {"requested": "asked", "ended": "already_finished"}
                return known.get(answer.state, "refused")
            finish = end_fenced(self.runs, self.event_log, answer.fence, record.identity)
            if finish.successor:
                enqueue(finish.successor)
            cancelled = finish.recorded and finish.status == Status.CANCELLED
            return "cancelled" if cancelled else "already_finished"
        except (StoreError, ValueError) as error:
            # A text that is no run key must not hold up the others.
            log.warning("bulk.run_failed", run=key, error=type(error).__name__)
            return "failed"

    def _head(self, bulk_id: str) -> tuple[bytes | None, bytes | None]:
        def read() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            pipeline.hget(keys.bulk(bulk_id), "state")
            pipeline.lindex(keys.bulk_todo(bulk_id), 0)
            return list(pipeline.execute())

        state, head = ask(read)
        return state, head

    def _note(self, bulk: Bulk, key: str, result: Result) -> None:
        results, todo = keys.bulk_results(bulk.bulk_id), keys.bulk_todo(bulk.bulk_id)

        def write() -> None:
            pipeline = self.client.pipeline(transaction=True)
            # The first answer stands: a run asked again would look as if it had been finished before.
            pipeline.hsetnx(results, key, result)
            pipeline.expire(results, KEEP_SECONDS)
            pipeline.lrem(todo, 1, key)
            pipeline.execute()

        # Told before it is noted: a process that ends in between doubles the entry, better than none.
        if (
            result != "refused"
            and KEY_PATTERN.fullmatch(key)
            and not ask(lambda: self.client.hexists(results, key))
        ):
            self.audit.write_to_run(
                Entry("bulk_cancel", bulk.by, result, run=key, bulk=bulk.bulk_id, reason=bulk.reason)
            )
        ask(write)

    def _close(self, bulk_id: str, state: str) -> None:
        now = self.runs.now_ms()
        ask(lambda: self.client.hset(keys.bulk(bulk_id), mapping={"state": state, "finished_at": now}))

    def _lock(self, bulk_id: str, token: str) -> bool:
        name = keys.bulk_lock(bulk_id)
        if ask(lambda: self.client.set(name, token, nx=True, ex=LOCK_SECONDS)):
            return True
        if ask(lambda: self.client.get(name)) != token.encode():
            return False
        return bool(ask(lambda: self.client.expire(name, LOCK_SECONDS)))

    def _unlock(self, bulk_id: str, token: str) -> None:
        name = keys.bulk_lock(bulk_id)
        if ask(lambda: self.client.get(name)) == token.encode():
            ask(lambda: self.client.delete(name))
