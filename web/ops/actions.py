"""What operators do: each action checks the role, acts and leaves an audit entry, refused ones too."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from shared.logs import get_logger
from shared.protocol import sse
from shared.protocol.events import dump, run_started
from shared.runs.access import Actor, Role
from shared.runs.identity import KEY_PATTERN, RunIdentity
from shared.runs.lifecycle import Status
from shared.runs.outcome import StopCause
from shared.runs.record import RunRecord
from shared.store.audit import Entry
from shared.store.bulk import MOST_RUNS, Bulk
from shared.store.ending import end_fenced
from shared.store.errors import StoreError
from shared.store.search import Filter
from web.ops.rights import require
from web.ops.rows import rows_of
from web.problems import Code, Problem
from web.services import Services
from web.stops import Wish, stop_run

MOST_MATCHED = 20_000
MOST_RETRIES = 100
EXAMPLES = 5
LONGEST_RUN_ID = 256
_RETRY = re.compile(r"(.+)-retry-[0-9]+", re.DOTALL)

T = TypeVar("T")

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """What an action came to: one word, a sentence for people, and the run as it stands afterwards."""

    action: str
    result: str
    detail: str
    record: RunRecord | None = None

    def document(self) -> dict[str, Any]:
        """As the API answers it."""
        shown: dict[str, Any] = {"action": self.action, "result": self.result, "detail": self.detail}
        return shown | ({"run": self.record.operator_view()} if self.record else {})


class Operator:
    """One actor's actions within one request. They raise ``Problem`` when refused, and ``StoreError``."""

    def __init__(self, services: Services, actor: Actor, request_id: str | None = None) -> None:
        self.services = services
        self.store = services.store
        self.actor = actor
        self.request_id = request_id

    # --- one run ------------------------------------------------------------------------------------------

    def cancel(self, key: str, reason: str | None = None) -> Done:
        """Asks a run to stop; ``requested``, or ``cancelled`` for one that was queued."""
        return self._audited(
            "cancel", Role.OPERATOR, lambda: self._cancel(key, reason), run=key, reason=reason
        )

    def _cancel(self, key: str, reason: str | None) -> Done:
        found = self._run(key)
        wish = Wish(self.actor.name, StopCause.OPERATOR, reason)
        answer = stop_run(self.store, self.services.queue, found.identity, wish)
        found = self.store.runs.get(key) or found
        if answer == "unknown":
            raise _unknown_run()
        if answer == "ended":
            raise _ended(found)
        if answer == "cancelled":
            return Done("cancel", answer, "The run was queued and is cancelled.", found)
        return Done("cancel", answer, "The run was asked to stop; its outcome is not recorded yet.", found)

    def terminate(self, key: str, reason: str | None = None, now: bool = False) -> Done:
        """Ends a run that does not stop by itself; ``now`` does not wait for the cancel's grace."""
        return self._audited(
            "terminate", Role.ADMIN, lambda: self._terminate(key, reason, now), run=key, reason=reason
        )

    def _terminate(self, key: str, reason: str | None, now: bool) -> Done:
        found = self._run(key)
        grace = None if now else self.store.settings.cancel_grace_seconds
        answer = self.store.runs.terminate(key, by=self.actor.name, reason=reason, grace_seconds=grace)
        if answer.state == "unknown":
            raise _unknown_run()
        if answer.state == "grace":
            raise _grace(found, answer.seconds_left)
        if answer.fence is not None:
            finish = end_fenced(self.store.runs, self.store.log, answer.fence, found.identity)
            if finish.successor:
                self.services.queue.enqueue(finish.successor)
        ended = self.store.runs.get(key) or found
        if answer.state == "ended" or (ended.ended and ended.status is not Status.CANCELLED):
            raise _ended(ended)
        log.warning("run.terminated", run=key, by=self.actor.name)
        if found.status is Status.QUEUED:
            return Done("terminate", "cancelled", "The run was queued and is cancelled.", ended)
        detail = "The run is ended as cancelled, and its worker was told to stop the agent."
        return Done("terminate", "terminated", detail, ended)

    def requeue(self, key: str) -> Done:
        """Sends a queued run's message again."""
        return self._audited("requeue", Role.OPERATOR, lambda: self._requeue(key), run=key)

    def _requeue(self, key: str) -> Done:
        found = self._run(key)
        if found.ended:
            raise _ended(found)
        if found.status is Status.RUNNING:
            raise Problem(Code.RUN_ACTIVE, "A worker has the run already.", run=found.public())
        if "ready_at" not in found.times:
            detail = "The run waits for its turn on its thread; it is sent when the run before it has ended."
            raise Problem(Code.THREAD_BUSY, detail, run=found.public())
        self.services.queue.enqueue(key)
        return Done("requeue", "enqueued", "The run's message was sent to the workers again.", found)

    def retry(self, key: str, reason: str | None = None) -> Done:
        """Accepts a new run of the same input for the same owner; ``record`` is the new one's."""
        return self._audited("retry", Role.OPERATOR, lambda: self._retry(key), run=key, reason=reason)

    def _retry(self, key: str) -> Done:
        found = self._run(key)
        if not found.ended:
            raise Problem(Code.RUN_ACTIVE, "Only a run that has ended is retried.", run=found.public())
        given = self.store.runs.input_of(key)
        if given is None:
            raise _unknown_run()
        for number in range(1, MOST_RETRIES + 1):
            identity = _retry_identity(found, number)
            answer = self._accept(found, identity, json.loads(given))
            if answer in {"ready", "waiting"}:
                self.store.runs.link_retry(key, identity.key)
                if answer == "ready":
                    self.services.queue.enqueue(identity.key)
                detail = f"A new run {identity.run_id!r} repeats it."
                return Done("retry", "accepted", detail, self.store.runs.get(identity.key))
            if answer in {"busy", "crowded"}:
                raise Problem(Code.THREAD_BUSY, "As many runs of this thread wait for their turn as may.")
        raise Problem(Code.RUN_CONFLICT, f"The run was retried {MOST_RETRIES} times already.")

    def _accept(self, found: RunRecord, identity: RunIdentity, document: dict[str, Any]) -> str:
        parent = found.texts.get("parent_run_id")
        document["runId"] = identity.run_id
        started = run_started(identity.thread_id, identity.run_id, parent)
        accepted = self.store.runs.accept(
            identity,
            agent=found.agent,
            run_input=json.dumps(document, ensure_ascii=False).encode(),
            started_frame=sse.frame(1, dump(started)),
            parent_run_id=parent,
        )
        return accepted.state

    # --- many runs ----------------------------------------------------------------------------------------

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
        bulk = self._audited(
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
        bulk = self.store.bulk.create(wanted, run_keys, matched=matched, by=self.actor.name, reason=reason)
        threading.Thread(
            target=_work, args=(self.services, bulk.bulk_id), name="outlast-bulk", daemon=True
        ).start()
        return bulk

    def stop_bulk(self, bulk_id: str) -> dict[str, Any]:
        """Asks no further runs of a bulk cancel to stop."""
        return self._audited(
            "stop_bulk", Role.OPERATOR, lambda: self._stop_bulk(bulk_id), bulk=bulk_id
        ).document()

    def _stop_bulk(self, bulk_id: str) -> Bulk:
        found = self.store.bulk.stop(bulk_id)
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
            "examples": rows_of(self.store, run_keys[:EXAMPLES]),
            "filter": wanted.document(),
            "words": wanted.words(),
        }

    # --- intake and workers -------------------------------------------------------------------------------

    def pause(self, reason: str | None = None) -> Done:
        """No worker takes a run until ``resume``; what is queued waits and does not time out."""

        def act() -> Done:
            self.store.controls.pause(by=self.actor.name, reason=reason)
            return Done("pause", "paused", "No worker takes a run until the intake is resumed.")

        return self._audited("pause", Role.ADMIN, act, reason=reason)

    def resume(self) -> Done:
        """Workers take runs again."""

        def act() -> Done:
            was_paused = self.store.controls.resume()
            detail = "Workers take runs again." if was_paused else "The intake was not paused."
            return Done("resume", "resumed" if was_paused else "unchanged", detail)

        return self._audited("resume", Role.ADMIN, act)

    def drain(self, worker: str, reason: str | None = None) -> Done:
        """The worker takes no more runs until ``undrain`` or its restart; those it has go on."""

        def act() -> Done:
            if worker not in {beat.name for beat in self.store.workers.alive()}:
                raise Problem(Code.UNKNOWN_WORKER, f"No worker named {worker!r} has a fresh heartbeat.")
            self.store.controls.drain(worker, by=self.actor.name, reason=reason)
            return Done("drain", "draining", "The worker takes no more runs from its next heartbeat on.")

        return self._audited("drain", Role.ADMIN, act, worker=worker, reason=reason)

    def undrain(self, worker: str) -> Done:
        """A drained worker takes runs again."""

        def act() -> Done:
            was_drained = self.store.controls.undrain(worker)
            detail = "The worker takes runs again." if was_drained else "The worker was not drained."
            return Done("undrain", "resumed" if was_drained else "unchanged", detail)

        return self._audited("undrain", Role.ADMIN, act, worker=worker)

    # --- audit --------------------------------------------------------------------------------------------

    def _audited(self, action: str, role: Role, act: Callable[[], T], **target: Any) -> T:
        """Carries out an action and writes down what came of it; a failed one is audited if Redis lets us."""
        try:
            require(self.actor, role)
            done = act()
        except Problem as problem:
            self._write(action, "refused", target | {"detail": f"{problem.code}: {problem.detail}"})
            raise
        except StoreError as error:
            try:
                self._write(action, "failed", target | {"detail": type(error).__name__})
            except StoreError:
                log.warning("audit.not_written", action=action, by=self.actor.name, **_logged(target))
            raise
        self._write(action, *_told(done, target))
        return done

    def _write(self, action: str, result: str, target: dict[str, Any]) -> None:
        log.info("operator.acted", action=action, by=self.actor.name, result=result, **_logged(target))
        roles = tuple(sorted(map(str, self.actor.roles)))
        self.store.audit.write(
            Entry(action, self.actor.name, result, request_id=self.request_id, roles=roles, **target)
        )

    def _run(self, key: str) -> RunRecord:
        found = self.store.runs.get(key) if KEY_PATTERN.fullmatch(key) else None
        if found is None:
            raise _unknown_run()
        return found


def _told(done: object, target: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(done, Bulk):
        counts = {"matched": done.matched, "total": done.total} | done.counts
        return done.state, target | {"bulk": done.bulk_id, "counts": counts}
    if isinstance(done, Done):
        retry = done.record.key if done.action == "retry" and done.record else None
        return done.result, target | {"detail": f"{done.detail} {retry}" if retry else done.detail}
    return "done", target


def _logged(target: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in target.items() if name in {"run", "bulk", "worker", "filter"}}


def _retry_identity(found: RunRecord, number: int) -> RunIdentity:
    """The run id of the first run, so that a retry's retry does not grow longer."""
    own = found.identity
    base = _RETRY.fullmatch(own.run_id) if "retry_of" in found.texts else None
    run_id = f"{base[1] if base else own.run_id}-retry-{number}"
    if len(run_id) > LONGEST_RUN_ID:
        raise Problem(Code.INVALID_INPUT, "The run id is too long to be retried.", field="run_id")
    return RunIdentity(own.actor, own.thread_id, run_id)


def _work(services: Services, bulk_id: str) -> None:
    try:
        services.store.bulk.work(bulk_id, services.queue.enqueue)
    except StoreError as error:
        # The sweep's leader goes on with it.
        log.warning("bulk.interrupted", bulk=bulk_id, error=type(error).__name__)


def _unknown_run() -> Problem:
    return Problem(Code.UNKNOWN_RUN, "There is no such run; ended ones are kept for the retention time.")


def _ended(found: RunRecord) -> Problem:
    return Problem(Code.RUN_ENDED, f"The run had ended: {found.status}.", run=found.public())


def _grace(found: RunRecord, seconds_left: float) -> Problem:
    if "cancel_requested_at" not in found.times:
        detail = "Cancel the run first: its agent has a grace to stop by itself."
    else:
        detail = f"The agent may still stop by itself for {seconds_left:.1f} s."
    return Problem(Code.GRACE, detail, seconds_left=round(seconds_left, 3), run=found.public())
