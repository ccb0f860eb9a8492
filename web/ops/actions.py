"""What operators do to single runs, to the intake and to workers; refused attempts are audited too."""

from __future__ import annotations

import json
import re
from typing import Any

from shared.logs import get_logger
from shared.protocol import sse
from shared.protocol.events import dump, run_started
from shared.runs.access import Role, may_see_payloads
from shared.runs.identity import RunIdentity
from shared.runs.lifecycle import Status
from shared.runs.outcome import FailureCode, Outcome, StopCause
from shared.runs.record import RunRecord
from shared.runs.veil import asked, public_to, veiled
from shared.store.answers import Accepted, Fence
from shared.store.ending import end_fenced
from web.api import resumes
from web.ops.audited import Done, unknown_run
from web.ops.bulk_acts import BulkActs
from web.problems import Code, Problem
from web.stops import Wish, stop_run

__all__ = ["Done", "Operator"]

MOST_RETRIES = 100
LONGEST_RUN_ID = 256
_UNANSWERED = {"uncovered", "foreclosed", "taken"}
_RETRY = re.compile(r"(.+)-retry-[0-9]+", re.DOTALL)

log = get_logger(__name__)


class Operator(BulkActs):
    """Everything that operators do."""

    # --- one run ------------------------------------------------------------------------------------------

    def cancel(self, key: str, reason: str | None = None) -> Done:
        """Asks a run to stop; ``requested``, or ``cancelled`` for one that was queued."""
        return self.audited(
            "cancel", Role.OPERATOR, lambda: self._cancel(key, reason), run=key, reason=reason
        )

    def _cancel(self, key: str, reason: str | None) -> Done:
        found = self.run(key)
        wish = Wish(self.actor.name, StopCause.OPERATOR, reason)
        answer = stop_run(self.store, self.services.queue, found.identity, wish)
        found = self.store.runs.get(key) or found
        if answer == "unknown":
            raise unknown_run()
        if answer == "ended":
            raise self._ended(found)
        if answer == "cancelled":
            return Done("cancel", answer, "The run was queued and is cancelled.", found)
        return Done("cancel", answer, "The run was asked to stop; its outcome is not recorded yet.", found)

    def terminate(self, key: str, reason: str | None = None, now: bool = False) -> Done:
        """Ends a run that does not stop by itself; ``now`` does not wait for the cancel's grace."""
        return self.audited(
            "terminate", Role.ADMIN, lambda: self._terminate(key, reason, now), run=key, reason=reason
        )

    def _terminate(self, key: str, reason: str | None, now: bool) -> Done:
        found = self.run(key)
        grace = None if now else self.store.settings.cancel_grace_seconds
        answer = self.store.runs.terminate(key, by=self.actor.name, reason=reason, grace_seconds=grace)
        if answer.state == "unknown":
            raise unknown_run()
        if answer.state == "grace":
            raise self._grace(found, answer.seconds_left)
        if answer.fence is not None:
            finish = end_fenced(self.store.runs, self.store.log, answer.fence, found.identity)
            if finish.successor:
                self.services.queue.enqueue(finish.successor)
        ended = self.store.runs.get(key) or found
        if answer.state == "ended" or (ended.ended and ended.status is not Status.CANCELLED):
            raise self._ended(ended)
        log.warning("run.terminated", run=key, by=self.actor.name)
        if found.status is Status.QUEUED:
            return Done("terminate", "cancelled", "The run was queued and is cancelled.", ended)
        detail = "The run is ended as cancelled, and its worker was told to stop the agent."
        return Done("terminate", "terminated", detail, ended)

    def mark_lost(self, key: str, reason: str | None = None) -> Done:
        """Ends an orphaned run as ``worker_lost`` without touching its worker; later writes are refused."""
        return self.audited(
            "mark_lost", Role.ADMIN, lambda: self._mark_lost(key, reason), run=key, reason=reason
        )

    def _mark_lost(self, key: str, reason: str | None) -> Done:
        found = self.run(key)
        if found.ended:
            raise self._ended(found)
        fence = self._fence_orphan(found)
        if fence is None:
            raise self._not_lost(self.store.runs.get(key) or found)
        by = f"Marked lost by {self.actor.name}" + (f": {reason}" if reason else ".")
        # An ender that died in between named its own ending, which stands.
        lost = (
            Outcome.failed(FailureCode.WORKER_LOST, detail=by)
            if fence.ending == FailureCode.WORKER_LOST
            else None
        )
        finish = end_fenced(self.store.runs, self.store.log, fence, found.identity, lost)
        if finish.successor:
            self.services.queue.enqueue(finish.successor)
        ended = self.store.runs.get(key) or found
        if not finish.recorded:
            raise self._ended(ended)
        log.warning("run.marked_lost", run=key, by=self.actor.name)
        return Done("mark_lost", "marked_lost", "The run is ended as worker_lost.", ended)

    def _fence_orphan(self, found: RunRecord) -> Fence | None:
        if found.status is not Status.RUNNING:
            return None
        ending = str(FailureCode.WORKER_LOST)
        if self.store.live.lease_of(found.key) is None and found.execution:
            return self.store.runs.fence(found.key, ending=ending, guard="execution", value=found.execution)
        return self.store.runs.fence(found.key, ending=ending, guard="late")

    def requeue(self, key: str) -> Done:
        """Sends a queued run's message again."""
        return self.audited("requeue", Role.OPERATOR, lambda: self._requeue(key), run=key)

    def _requeue(self, key: str) -> Done:
        found = self.run(key)
        if found.ended:
            raise self._ended(found)
        if found.status is Status.RUNNING:
            raise Problem(Code.RUN_ACTIVE, "A worker has the run already.", run=public_to(self.actor, found))
        if "ready_at" not in found.times:
            detail = "The run waits for its turn on its thread; it is sent when the run before it has ended."
            raise Problem(Code.THREAD_BUSY, detail, run=public_to(self.actor, found))
        self.services.queue.enqueue(key)
        return Done("requeue", "enqueued", "The run's message was sent to the workers again.", found)

    def retry(self, key: str, reason: str | None = None) -> Done:
        """Accepts a new run of the same input for the same owner; ``record`` is the new one's."""
        return self.audited("retry", Role.OPERATOR, lambda: self._retry(key), run=key, reason=reason)

    def _retry(self, key: str) -> Done:
        found = self.run(key)
        if not found.ended:
            raise Problem(
                Code.RUN_ACTIVE, "Only a run that has ended is retried.", run=public_to(self.actor, found)
            )
        given = self.store.runs.input_of(key)
        if given is None:
            raise unknown_run()
        for number in range(1, MOST_RETRIES + 1):
            identity = _retry_identity(found, number)
            accepted = self._accept(found, identity, json.loads(given))
            answer = accepted.state
            if answer in {"ready", "waiting"}:
                self.store.runs.link_retry(key, identity.key)
                if answer == "ready":
                    self.services.queue.enqueue(identity.key)
                detail = f"A new run {identity.run_id!r} repeats it."
                return Done("retry", "accepted", detail, self.store.runs.get(identity.key))
            if answer in _UNANSWERED:
                raise self._unanswered(accepted)
            if answer in {"busy", "crowded"}:
                raise Problem(Code.THREAD_BUSY, "As many runs of this thread wait for their turn as may.")
        raise Problem(Code.RUN_CONFLICT, f"The run was retried {MOST_RETRIES} times already.")

    def _accept(self, found: RunRecord, identity: RunIdentity, document: dict[str, Any]) -> Accepted:
        parent = found.texts.get("parent_run_id")
        document["runId"] = identity.run_id
        started = run_started(identity.thread_id, identity.run_id, parent)
        return self.store.runs.accept(
            identity,
            agent=found.agent,
            run_input=json.dumps(document, ensure_ascii=False).encode(),
            started_frame=sse.frame(1, dump(started)),
            parent_run_id=parent,
        )

    # --- refusals ------------------------------------------------------------------------------------------

    def _unanswered(self, accepted: Accepted) -> Problem:
        """The thread waits for people's answers, which a retry does not bring."""
        problem = resumes.refusal(accepted)
        if "run" in problem.members and not may_see_payloads(self.actor, problem.members["run"]["actor"]):
            problem.members["run"] = veiled(problem.members["run"])
            problem.members["interrupts"] = asked(problem.members["interrupts"])
        return problem

    def _ended(self, found: RunRecord) -> Problem:
        return Problem(
            Code.RUN_ENDED, f"The run had ended: {found.status}.", run=public_to(self.actor, found)
        )

    def _grace(self, found: RunRecord, seconds_left: float) -> Problem:
        if "cancel_requested_at" not in found.times:
            detail = "Cancel the run first: its agent has a grace to stop by itself."
        else:
            detail = f"The agent may still stop by itself for {seconds_left:.1f} s."
        return Problem(
            Code.GRACE, detail, seconds_left=round(seconds_left, 3), run=public_to(self.actor, found)
        )

    def _not_lost(self, found: RunRecord) -> Problem:
        if found.status is Status.QUEUED:
            return Problem(
                Code.RUN_ACTIVE, "No worker has taken the run yet.", run=public_to(self.actor, found)
            )
        return Problem(
            Code.RUN_ACTIVE,
            "A worker still renews its lease: it is not lost.",
            run=public_to(self.actor, found),
        )

    # --- intake and workers -------------------------------------------------------------------------------

    def pause(self, reason: str | None = None) -> Done:
        """No worker takes a run until ``resume``; what is queued waits and does not time out."""

        def act() -> Done:
            self.store.controls.pause(by=self.actor.name, reason=reason)
            return Done("pause", "paused", "No worker takes a run until the intake is resumed.")

        return self.audited("pause", Role.ADMIN, act, reason=reason)

    def resume(self) -> Done:
        """Workers take runs again."""

        def act() -> Done:
            was_paused = self.store.controls.resume()
            detail = "Workers take runs again." if was_paused else "The intake was not paused."
            return Done("resume", "resumed" if was_paused else "unchanged", detail)

        return self.audited("resume", Role.ADMIN, act)

    def drain(self, worker: str, reason: str | None = None) -> Done:
        """The worker takes no more runs until ``undrain`` or its restart; those it has go on."""

        def act() -> Done:
            if worker not in {beat.name for beat in self.store.workers.alive()}:
                raise Problem(Code.UNKNOWN_WORKER, f"No worker named {worker!r} has a fresh heartbeat.")
            self.store.controls.drain(worker, by=self.actor.name, reason=reason)
            return Done("drain", "draining", "The worker takes no more runs from its next heartbeat on.")

        return self.audited("drain", Role.ADMIN, act, worker=worker, reason=reason)

    def shut_down(self, worker: str, reason: str | None = None) -> Done:
        """The worker drains and its process ends, as after SIGTERM."""

        def act() -> Done:
            if worker not in {beat.name for beat in self.store.workers.alive()}:
                raise Problem(Code.UNKNOWN_WORKER, f"No worker named {worker!r} has a fresh heartbeat.")
            self.store.controls.shut_down(worker, by=self.actor.name, reason=reason)
            seconds = self.store.settings.drain_seconds
            detail = f"The worker shuts down at its next heartbeat; its runs get {seconds:g} s to end."
            return Done("shutdown", "shutting_down", detail)

        return self.audited("shutdown", Role.ADMIN, act, worker=worker, reason=reason)

    def undrain(self, worker: str) -> Done:
        """A drained worker takes runs again."""

        def act() -> Done:
            was_drained = self.store.controls.undrain(worker)
            detail = "The worker takes runs again." if was_drained else "The worker was not drained."
            return Done("undrain", "resumed" if was_drained else "unchanged", detail)

        return self.audited("undrain", Role.ADMIN, act, worker=worker)


def _retry_identity(found: RunRecord, number: int) -> RunIdentity:
    """The run id of the first run, so that a retry's retry does not grow longer."""
    own = found.identity
    base = _RETRY.fullmatch(own.run_id) if "retry_of" in found.texts else None
    run_id = f"{base[1] if base else own.run_id}-retry-{number}"
    if len(run_id) > LONGEST_RUN_ID:
        raise Problem(Code.INVALID_INPUT, "The run id is too long to be retried.", field="run_id")
    return RunIdentity(own.actor, own.thread_id, run_id)
