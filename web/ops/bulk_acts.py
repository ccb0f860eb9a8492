"""Cancelling many runs at once: all that match a filter, those that were ticked, those that failed before."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from shared.logs import get_logger
from shared.runs.access import Role
from shared.runs.identity import KEY_PATTERN
from shared.store.bulk import MOST_RUNS, Bulk
from shared.store.errors import StoreError
from shared.store.search import Filter
from web.ops.audited import Audited
from web.ops.rights import require
from web.ops.rows import rows_of
from web.problems import Code, Problem
from web.services import Services

MOST_MATCHED = 20_000
EXAMPLES = 5

log = get_logger(__name__)


class BulkActs(Audited):
    """Each is an object with a page of its own: frozen, in the background, with a result for each run."""

    def preview_bulk(self, wanted: Filter) -> dict[str, Any]:
        """How many live runs a bulk cancel would take, with examples."""
        require(self.actor, Role.OPERATOR)
        run_keys, matched = self._matching(wanted)
        return self._preview(wanted, run_keys, matched)

    def bulk_cancel(
        self, wanted: Filter, reason: str | None = None, confirm_count: int | None = None
    ) -> dict[str, Any]:
        """Freezes the matching runs and asks them to stop, in the background.

        ``confirm_count`` is the count that the operator saw: when more match by now, nothing is done.
        """
        bulk = self.audited(
            "bulk_cancel",
            Role.OPERATOR,
            lambda: self._bulk_cancel(wanted, reason, confirm_count),
            filter=wanted.document(),
            reason=reason,
        )
        return bulk.document()

    def _bulk_cancel(self, wanted: Filter, reason: str | None, confirm_count: int | None) -> Bulk:
        run_keys, matched = self._matching(wanted)
        if not run_keys:
            raise Problem(Code.NOTHING_MATCHES, f"No live run matches: {wanted.words()}.")
        if confirm_count is None or len(run_keys) > confirm_count:
            preview = self._preview(wanted, run_keys, matched)
            detail = f"{len(run_keys)} runs match by now. Confirm this count."
            raise Problem(Code.COUNT_CHANGED, detail, field="confirm_count", preview=preview)
        return self._begin(run_keys, reason, wanted=wanted, matched=matched)

    def cancel_ticked(self, run_keys: Sequence[str], reason: str | None = None) -> dict[str, Any]:
        """Asks just these runs to stop; ended ones and keys of nothing are told apart in the results."""
        listed = list(dict.fromkeys(run_keys))
        count = f"{len(listed)} ticked run" + ("" if len(listed) == 1 else "s")

        def act() -> Bulk:
            if not listed:
                raise Problem(Code.NOTHING_MATCHES, "No run was named.", field="keys")
            if len(listed) > MOST_RUNS or not all(KEY_PATTERN.fullmatch(key) for key in listed):
                raise Problem(Code.INVALID_INPUT, f"keys must be at most {MOST_RUNS} run keys.", field="keys")
            return self._begin(listed, reason, words=count)

        return self.audited("bulk_cancel", Role.OPERATOR, act, reason=reason, detail=count).document()

    def retry_bulk(self, bulk_id: str, reason: str | None = None) -> dict[str, Any]:
        """Asks those runs of a bulk cancel again that could not be asked: a new bulk cancel."""

        def act() -> Bulk:
            found = self._bulk(bulk_id)
            failed = [key for key, result in self.store.bulk.results(bulk_id).items() if result == "failed"]
            if not failed:
                raise Problem(Code.NOTHING_MATCHES, "No run of this bulk cancel failed to be asked.")
            words = f"what failed of: {found.said}"
            return self._begin(failed, reason or found.reason, words=words, retry_of=bulk_id)

        return self.audited(
            "retry_bulk", Role.OPERATOR, act, reason=reason, detail=f"of {bulk_id}"
        ).document()

    def _begin(
        self,
        run_keys: list[str],
        reason: str | None,
        *,
        wanted: Filter | None = None,
        matched: int | None = None,
        **said: str,
    ) -> Bulk:
        made = self.store.bulk.create(
            wanted or Filter(),
            run_keys,
            matched=len(run_keys) if matched is None else matched,
            by=self.actor.name,
            reason=reason,
            **said,
        )
        threading.Thread(
            target=_work, args=(self.services, made.bulk_id), name="outlast-bulk", daemon=True
        ).start()
        return made

    def stop_bulk(self, bulk_id: str) -> dict[str, Any]:
        """Asks no further runs of a bulk cancel to stop."""
        return self.audited(
            "stop_bulk", Role.OPERATOR, lambda: self._stop_bulk(bulk_id), bulk=bulk_id
        ).document()

    def _stop_bulk(self, bulk_id: str) -> Bulk:
        self._bulk(bulk_id)
        return self.store.bulk.stop(bulk_id) or self._bulk(bulk_id)

    def _bulk(self, bulk_id: str) -> Bulk:
        found = self.store.bulk.get(bulk_id)
        if found is None:
            raise Problem(Code.UNKNOWN_BULK, "There is no such bulk cancel; they are kept for a week.")
        return found

    def _matching(self, wanted: Filter) -> tuple[list[str], int]:
        """The runs to take, the oldest first, and how many there are."""
        if wanted.empty:
            raise Problem(Code.EMPTY_FILTER, "Say which runs: an empty filter is refused.", field="filter")
        found = self.store.search.live_matches(wanted, MOST_MATCHED)
        return list(reversed(found.keys))[:MOST_RUNS], len(found.keys)

    def _preview(self, wanted: Filter, run_keys: list[str], matched: int) -> dict[str, Any]:
        return {
            "count": len(run_keys),
            "matched": matched,
            "capped": matched > len(run_keys),
            "examples": rows_of(self.store, self.actor, run_keys[:EXAMPLES]),
            "filter": wanted.document(),
            "words": wanted.words(),
        }


def _work(services: Services, bulk_id: str) -> None:
    try:
        services.store.bulk.work(bulk_id, services.queue.enqueue)
    except StoreError as error:
        # The sweep's leader goes on with it.
        log.warning("bulk.interrupted", bulk=bulk_id, error=type(error).__name__)
