"""What operators see, as plain values: the pages and the operator API show the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from shared.protocol import sse
from shared.protocol.events import RunAgentInput
from shared.protocol.fold import Fold
from shared.protocol.parsing import ACCEPTED_DEPTH, parse_input
from shared.runs.access import Actor, Role, may_see_payloads
from shared.runs.attention import Kind, attention, by_harm
from shared.runs.identity import KEY_PATTERN
from shared.runs.lifecycle import Status
from shared.runs.record import RunRecord
from shared.runs.veil import operator_view_to
from shared.store.live import LiveView, thresholds
from shared.store.search import Filter
from shared.store.workers import WorkerBeat
from web.ops import plant, rule_check
from web.ops.rights import require
from web.ops.rows import Row, row_of, rows_of, shown, waiting_for
from web.problems import Code, Problem
from web.services import Services

AUDIT_PAGE = 500

ON_OVERVIEW = 25
"""Runs in trouble that the first page lists; the others are a click away."""

NEIGHBOURS = 20
"""Runs of the same thread that the page of a run lists."""


class Board:
    """One actor's view; raises ``Problem`` for who is no viewer, and ``StoreError``."""

    def __init__(self, services: Services, actor: Actor) -> None:
        require(actor, Role.VIEWER)
        self.services = services
        self.store = services.store
        self.actor = actor

    # --- all runs -----------------------------------------------------------------------------------------

    def overview(self, minutes: int = 60) -> dict[str, Any]:
        """Everything of the first page in a few round trips."""
        view, beats = self.store.live.view(), self.store.workers.alive()
        numbers = self.store.stats.overview(plant.bounded_minutes(minutes))
        hour = self.store.stats.overview(60).total if minutes != 60 else numbers.total
        endings = plant.tallied(hour)
        ended = sum(endings[name] for name in plant.ENDINGS if name != plant.TIMEOUT)
        return {
            "live": view.counts() | ({"partial": True} if view.total > len(view.runs) else {}),
            "attention": self._attention(view, ON_OVERVIEW),
            "stats": plant.stats(numbers),
            "queue": plant.queues(self.services, view, numbers, beats),
            "workers": self._workers(view, beats),
            "last_hour": {"ended": ended} | endings,
            "banner": self.banner(beats),
        }

    def attention(self, limit: int = 50) -> dict[str, Any]:
        """The live runs that need a person's look, the worst first."""
        return self._attention(self.store.live.view(), limit)

    def _attention(self, view: LiveView, limit: int) -> dict[str, Any]:
        found = [(run, view.attention(run)) for run in view.runs]
        counts = {str(kind): 0 for kind in Kind} | {"cancel_pending": 0}
        for _, troubles in found:
            for one in troubles:
                counts[str(one.kind) if one.late else "cancel_pending"] += 1
        late = by_harm(found)
        records = {
            record.key: record for record in self.store.listing.records([run.key for run, _ in late[:limit]])
        }
        rows = [
            row_of(self.actor, records[run.key], view.now_ms, troubles)
            for run, troubles in late[:limit]
            if run.key in records and not records[run.key].ended
        ]
        return {"rows": rows, "counts": counts, "total": len(late)}

    def runs(self, wanted: Filter, limit: int = 50, cursor: str | None = None) -> dict[str, Any]:
        """One page of the runs that fit, newest first; raises the 400 for a cursor that is none."""
        try:
            found = self.store.search.find(wanted, limit=limit, cursor=cursor)
        except ValueError:
            raise Problem(
                Code.INVALID_INPUT, "cursor is not one that this server gave.", field="cursor"
            ) from None
        page: dict[str, Any] = {"runs": self._rows(found.keys)}
        if found.cursor is not None:
            page["next"] = found.cursor
        return page | ({"partial": True} if found.partial else {})

    # --- one run ------------------------------------------------------------------------------------------

    def run(self, key: str) -> dict[str, Any]:
        """One run with its troubles, neighbours, links, audit, and what may be done with it."""
        record, now = self._record(key), self.store.runs.now_ms()
        lease = None if record.ended else self.store.live.lease_of(key)
        found = attention(record, now, lease, thresholds(self.store.settings))
        row = row_of(self.actor, record, now, found)
        row |= waiting_for(self.store.listing.left_open([record]), key)
        if "detail" in record.texts:
            row["detail"] = operator_view_to(self.actor, record)["detail"]
        orphaned = any(one.kind is Kind.ORPHANED for one in found)
        beat = plant.beat_of(self.store.workers.alive(), record.texts.get("worker"))
        given = self.store.runs.input_of(key)
        page: dict[str, Any] = {
            "run": row,
            "attention": [shown(one) for one in found],
            "actions": self._actions(record, now, plant.effect_of(beat), orphaned=orphaned),
            "thread": self._neighbours(record),
            "retried_as": row.get("retried_as", []),
            "audit": self.store.audit.of_run(key),
            "input_bytes": len(given or b""),
            "events": record.last_seq,
            "payloads": may_see_payloads(self.actor, record.identity.actor),
        }
        if "retry_of" in row:
            page["retry_of"] = row["retry_of"]
        if beat is not None:
            page["worker_facts"] = {"name": beat.name, **beat.facts}
        if record.status is Status.QUEUED and "ready_at" in record.times:
            page["queue_position"] = self._position(record)
        return page

    def events(self, key: str, after: int = 0, limit: int = 500) -> dict[str, Any]:
        """Events after a seq; raises the 403 without the payload right."""
        record = self._readable(key)
        frames = self.store.log.read(key, after, limit)
        listed = [
            {"seq": after + number, "event": json.loads(sse.data_of(frame))}
            for number, frame in enumerate(frames, 1)
        ]
        last = after + len(frames)
        return {"events": listed} | ({} if record.ended and last >= record.last_seq else {"next": last})

    def event_sizes(self, key: str, after: int = 0, limit: int = 500) -> list[Row]:
        """Number, type and size of events, for those who may not read them."""
        self._record(key)
        return [
            {"seq": after + number, "type": _type_of(frame), "bytes": len(sse.data_of(frame))}
            for number, frame in enumerate(self.store.log.read(key, after, limit), 1)
        ]

    def rule_breaks(self, key: str, items: list[dict[str, Any]] | None = None) -> dict[int, str]:
        """Seq -> the ordering rule that the event breaks: among ``items`` (the first events), or in all."""
        record = self._readable(key)
        if items is None:
            frames = self.store.log.read(key, 0, rule_check.MOST_CHECKED)
            items = [
                {"seq": seq, "event": json.loads(sse.data_of(frame))} for seq, frame in enumerate(frames, 1)
            ]
        return rule_check.breaks(items, record.identity, self.store.runs.input_of(key))

    def conversation(self, key: str) -> dict[str, Any]:
        """Messages and state as the run left them, from its log; raises the 403 without the payload right."""
        folded = Fold(self._given(self._readable(key)))
        for frame in self.store.log.read(key, 0, rule_check.MOST_CHECKED):
            folded.take_json(sse.data_of(frame))
        messages = [
            each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in folded.messages
        ]
        return {"state": folded.state, "messages": messages}

    def _given(self, record: RunRecord) -> RunAgentInput:
        """What the run was given, nothing said where that is gone."""
        stored, own = self.store.runs.input_of(record.key), record.identity
        if stored is None:
            return RunAgentInput(thread_id=own.thread_id, run_id=own.run_id, messages=[])
        return parse_input(stored, max_depth=ACCEPTED_DEPTH)

    def input(self, key: str) -> dict[str, Any]:
        """What the run was given; raises the 403 without the payload right."""
        self._readable(key)
        document: dict[str, Any] = json.loads(self.store.runs.input_of(key) or b"{}")
        return document

    def _actions(self, record: RunRecord, now: int, effect: str, *, orphaned: bool) -> dict[str, Any]:
        ended = {"allowed": False, "why": f"The run has ended: {record.status}."}
        active = {"allowed": False, "why": "The run has not ended."}
        if record.ended:
            refused = dict.fromkeys(("cancel", "terminate", "requeue", "mark_lost"), ended)
            return refused | {"retry": {"allowed": True}}
        running = record.status is Status.RUNNING
        lost: dict[str, Any] = {"allowed": orphaned}
        if not orphaned:
            lost["why"] = "A worker renews its lease." if running else "No worker has taken it yet."
        requeue: dict[str, Any] = {"allowed": not running and "ready_at" in record.times}
        if not requeue["allowed"]:
            requeue["why"] = "A worker has it." if running else "It waits for its turn on its thread."
        return {
            "cancel": {"allowed": True},
            "terminate": self._terminate(record, now) | {"effect": effect},
            "requeue": requeue,
            "mark_lost": lost,
            "retry": active,
        }

    def _terminate(self, record: RunRecord, now: int) -> dict[str, Any]:
        asked = record.times.get("cancel_requested_at")
        if record.status is Status.QUEUED:
            return {"allowed": True}
        if asked is None:
            return {"allowed": False, "why": "Cancel it first."}
        left = self.store.settings.cancel_grace_seconds - (now - asked) / 1000
        if left <= 0:
            return {"allowed": True}
        why = f"The agent may still stop by itself for {left:.0f} s."
        return {"allowed": False, "why": why, "seconds_left": round(left, 1)}

    def _neighbours(self, record: RunRecord) -> list[Row]:
        own = record.identity
        page = self.store.listing.of_thread(own.actor, own.thread_id, limit=NEIGHBOURS)
        return self._rows([found.key for found in page.records])

    def _position(self, record: RunRecord) -> int:
        ready = [
            (run.times["ready_at"], run.key)
            for run in self.store.live.view().runs
            if run.status is Status.QUEUED and "ready_at" in run.times
        ]
        return 1 + sum(one < (record.times["ready_at"], record.key) for one in ready)

    # --- what they run on ---------------------------------------------------------------------------------

    def workers(self) -> list[Row]:
        """The workers, with the runs of each."""
        return self._workers(self.store.live.view(), self.store.workers.alive())

    def _workers(self, view: LiveView, beats: list[WorkerBeat]) -> list[Row]:
        rows = plant.workers(self.store, view, beats)
        keys = [run["key"] for row in rows for run in row["runs"]]
        names = {record.key: record.identity.run_id for record in self.store.listing.records(keys)}
        for row in rows:
            for run in row["runs"]:
                run["run_id"] = names.get(run["key"], run["key"])
        return rows

    def queues(self) -> dict[str, Any]:
        """The queue and its last hour."""
        numbers, beats = self.store.stats.overview(60), self.store.workers.alive()
        return plant.queues(self.services, self.store.live.view(), numbers, beats)

    def stats(self, minutes: int = 60) -> dict[str, Any]:
        """The numbers of the last minutes."""
        return plant.stats(self.store.stats.overview(plant.bounded_minutes(minutes)))

    def history(self, minutes: int) -> dict[str, Any]:
        """The same minute by minute, with percentiles of each."""
        return {"series": plant.history(self.store.stats.overview(plant.bounded_minutes(minutes)))}

    def system(self) -> dict[str, Any]:
        """Redis, settings with secrets masked, versions."""
        return plant.system(self.services)

    def banner(self, beats: list[WorkerBeat] | None = None) -> dict[str, Any]:
        """What every page says on top: a paused intake, drained workers, no worker at all."""
        beats = self.store.workers.alive() if beats is None else beats
        shown_: dict[str, Any] = {
            "draining": [beat.name for beat in beats if beat.facts.get("draining")],
        }
        paused = self.store.controls.paused()
        if paused is not None:
            shown_["paused"] = paused.document()
        return shown_ | ({} if beats else {"no_worker": True})

    # --- what was done ------------------------------------------------------------------------------------

    def audit(self, limit: int = 50, cursor: str | None = None, run: str | None = None) -> dict[str, Any]:
        """What operators did, newest first; of one run, everything."""
        if run is not None:
            self._key(run)
            return {"entries": list(reversed(self.store.audit.of_run(run)))[:limit]}
        try:
            entries, following = self.store.audit.page(limit=limit, cursor=cursor)
        except ValueError:
            raise Problem(
                Code.INVALID_INPUT, "cursor is not one that this server gave.", field="cursor"
            ) from None
        return {"entries": entries} | ({"next": following} if following else {})

    def whole_audit(self) -> Iterator[dict[str, Any]]:
        """Every entry, newest first, a page of the store at a time."""
        cursor: str | None = None
        while True:
            entries, cursor = self.store.audit.page(limit=AUDIT_PAGE, cursor=cursor)
            yield from entries
            if cursor is None:
                return

    def bulks(self, limit: int = 20) -> list[dict[str, Any]]:
        """Bulk cancels, the newest first."""
        return [bulk.document() for bulk in self.store.bulk.recent(limit)]

    def bulk(self, bulk_id: str) -> dict[str, Any]:
        """One bulk cancel with what became of each run."""
        found = self.store.bulk.get(bulk_id)
        if found is None:
            raise Problem(Code.UNKNOWN_BULK, "There is no such bulk cancel; they are kept for a week.")
        results = self.store.bulk.results(bulk_id)
        return found.document() | {
            "results": [{"key": key, "result": result} for key, result in results.items()]
        }

    def _rows(self, run_keys: Iterable[str]) -> list[Row]:
        return rows_of(self.store, self.actor, run_keys)

    # --- lookup -------------------------------------------------------------------------------------------

    @staticmethod
    def _key(key: str) -> str:
        if not KEY_PATTERN.fullmatch(key):
            raise Problem(Code.UNKNOWN_RUN, "There is no such run.")
        return key

    def _record(self, key: str) -> RunRecord:
        record = self.store.runs.get(self._key(key))
        if record is None:
            raise Problem(
                Code.UNKNOWN_RUN, "There is no such run; ended ones are kept for the retention time."
            )
        return record

    def _readable(self, key: str) -> RunRecord:
        record = self._record(key)
        if not may_see_payloads(self.actor, record.identity.actor):
            raise Problem(Code.FORBIDDEN, "Reading inputs and events needs the right payloads.")
        return record


def _type_of(frame: bytes) -> str:
    return str(json.loads(sse.data_of(frame)).get("type"))
