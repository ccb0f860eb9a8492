"""Open interrupts of a thread: reading them, and ending the run that leaves one unanswered."""

from __future__ import annotations

from shared.logs import get_logger
from shared.runs.identity import RunIdentity, short_digest
from shared.runs.interrupts import Question
from shared.runs.outcome import FailureCode
from shared.store import keys
from shared.store.connection import Client, ask
from shared.store.ending import end_from_outside
from shared.store.errors import StoreError
from shared.store.log import EventLog
from shared.store.runs import RunStore

log = get_logger(__name__)


def open_questions(client: Client, identity: RunIdentity) -> dict[str, Question]:
    """Interrupt id -> what is open in the thread of ``identity``; raises ``StoreError``."""
    name = keys.open_interrupts(identity.bucket, short_digest(identity.actor, identity.thread_id))
    stored: dict[bytes, bytes] = ask(lambda: client.hgetall(name))
    return {id_.decode(): Question.stored(id_, text) for id_, text in stored.items()}


def end_uncovered(runs: RunStore, event_log: EventLog, key: str) -> str | None:
    """Ends a run whose claim was refused because it leaves a question of its thread open.

    Gives the key of the thread's next run, which is to be enqueued. Harmless for every other run; the sweep
    does the same a moment later where Redis does not answer.
    """
    code = str(FailureCode.INTERRUPT_OPEN)
    try:
        finish = end_from_outside(runs, event_log, key, ending=code, guard="ending")
    except ValueError:
        return None
    except StoreError as error:
        log.warning("run.ending_left_to_sweep", run=key, error=type(error).__name__)
        return None
    if finish is None or not finish.recorded:
        return None
    log.warning("run.ended_uncovered", run=key, status=finish.status, code=code)
    return finish.successor
