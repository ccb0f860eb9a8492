"""Gives runs whose worker was lost another attempt, where their agent was declared safe to repeat."""

from __future__ import annotations

from shared.logs import get_logger
from shared.protocol import events, sse
from shared.protocol.attempt import starting_over
from shared.protocol.calls import unknown_calls
from shared.runs.identity import bucket_of_key
from shared.runs.lifecycle import Status, Step, before
from shared.runs.outcome import FailureCode
from shared.runs.record import RunRecord
from shared.store import keys
from shared.store.connection import ask
from shared.store.ending import observed
from shared.store.errors import StoreError, StoreFull
from shared.store.log import EventLog
from shared.store.runs import DOORBELL_BYTES, RunStore
from shared.store.scripts import Argument

_TRIES = 5

log = get_logger(__name__)


def retry_lost(
    runs: RunStore, event_log: EventLog, key: str, *, guard: str, value: str = "", value2: str = ""
) -> bool:
    """Puts a run back into the queue if ``guard`` (``late`` or ``child``, see ``fence.lua``) holds.

    False for a run that is not to be retried: its agent did not declare it, its attempts are used up,
    somebody asked for its stop, or its deadline has passed. The caller enqueues a run that is. Raises
    ``StoreError`` when Redis does not answer.
    """
    try:
        retried = _retried(runs, event_log, key, (guard, value, value2))
    except StoreFull:
        # A full Redis takes endings, but nothing that makes it fuller.
        return False
    except StoreError:
        raise
    except Exception:
        # Whatever cannot be read of input or log must not keep the run from its ending.
        log.exception("run.not_retried", run=key)
        return False
    if retried is None:
        return False
    log.warning("run.retried", run=key, attempt=retried.attempt + 1, worker=retried.texts.get("worker"))
    return True


def _retried(runs: RunStore, event_log: EventLog, key: str, guard: tuple[str, str, str]) -> RunRecord | None:
    """The record as it was before, or None for a run that stays as it is."""
    for _ in range(_TRIES):
        record = runs.get(key)
        if record is None or record.status is not Status.RUNNING or record.attempt > record.retries:
            return None
        frames = event_log.read_all(key)
        made = _starting_over(runs, record, frames)
        arguments: list[Argument] = [
            keys.prefix(bucket_of_key(key)),
            key,
            " ".join(before(Step.RETRY)),
            *guard,
            record.attempt,
            len(frames) + 1,
            sum(map(len, made)),
            DOORBELL_BYTES,
            keys.run_channel(key),
            *made,
        ]
        state = _ask(runs, key, arguments)
        if state != "gap":
            return record if state == "retried" else None
    return None


def _ask(runs: RunStore, key: str, arguments: list[Argument]) -> str:
    names = [keys.record(key), keys.log(key)]
    answer = ask(lambda: runs.scripts.retry.run(runs.client, names, arguments))
    return str(answer[0].decode())


def _starting_over(runs: RunStore, record: RunRecord, frames: list[bytes]) -> list[bytes]:
    run_input = runs.input_of(record.key) or b""
    reason = str(FailureCode.WORKER_LOST)
    following = starting_over(
        events.parse_input(run_input, max_depth=events.ACCEPTED_DEPTH),
        frames,
        observed(frames, run_input).closing_events(subagent_code=reason),
        attempt=record.attempt + 1,
        reason=reason,
        unknown_calls=unknown_calls(run_input, frames, record.answering),
    )
    return [sse.frame(len(frames) + 1 + index, events.dump(event)) for index, event in enumerate(following)]
