"""Asks one run to stop; a queued one is ended on the spot, because no worker would hear it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.logs import get_logger
from shared.queue import Queue
from shared.runs.identity import RunIdentity
from shared.runs.lifecycle import Status
from shared.runs.outcome import StopCause
from shared.store.ending import end_fenced
from shared.store.store import Store

log = get_logger(__name__)

Stopped = Literal["requested", "cancelled", "ended", "unknown"]

_UNFENCED: dict[str, Stopped] = {"requested": "requested", "ended": "ended", "unknown": "unknown"}


@dataclass(frozen=True, slots=True)
class Wish:
    """Who wants the stop and why."""

    by: str
    cause: StopCause
    reason: str | None = None


def stop_run(store: Store, queue: Queue, identity: RunIdentity, wish: Wish) -> Stopped:
    """Records the wish, and for a queued run its ending too.

    ``requested``: it runs and its worker was told; ``cancelled``: it was queued and this call ended it;
    ``ended``: another ending is recorded; ``unknown``: there is no such run. Raises ``StoreError``; asking
    again is safe.
    """
    key = identity.key
    answer = store.runs.request_cancel(key, by=wish.by, cause=wish.cause, reason=wish.reason)
    if answer.fence is None:
        if answer.state == "requested":
            log.info("run.cancel_requested", run=key, cause=str(wish.cause))
        return _UNFENCED[answer.state]
    finish = end_fenced(store.runs, store.log, answer.fence, identity)
    if finish.successor:
        queue.enqueue(finish.successor)
    if finish.state == "gone":
        return "unknown"
    if not finish.recorded or finish.status != Status.CANCELLED:
        return "ended"
    log.info("run.cancelled_in_queue", run=key, cause=str(wish.cause))
    return "cancelled"


def make_way(store: Store, queue: Queue, front: tuple[str, ...], by: str) -> None:
    """Stops every run in front of a new one (thread policy ``interrupt``), ``front``: the active one first.

    The waiting ones go first: were the active one ended before them, the next of them would get its turn.
    """
    records = {record.key: record for record in store.listing.records(list(front))}
    wish = Wish(by, StopCause.THREAD_POLICY, "A newer run of this thread took its place.")
    for key in reversed(front):
        if key in records and not records[key].ended:
            stop_run(store, queue, records[key].identity, wish)
