"""The run store: one method per script, plus reading a record; every write is safe to ask again."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import RedisError

from shared.runs.identity import RunIdentity, bucket_of_key, short_digest
from shared.runs.interrupts import UNSEEN, Answer, questions_of
from shared.runs.lifecycle import Status, Step, before
from shared.runs.outcome import FailureCode, Outcome, StopCause
from shared.runs.record import RunRecord
from shared.settings import Settings
from shared.store import keys
from shared.store.answers import Accepted, CancelAnswer, Claim, Fence, Finish, Survey, TerminateAnswer
from shared.store.connection import Client, ask
from shared.store.scripts import run_pipelined, scripts

DOORBELL_BYTES = 64 * 1024
"""A batch above this many bytes is published as numbers only and read from the log."""

NOTHING: Mapping[str, str] = {}
NO_RETRIES: Mapping[str, int] = {}

FENCE_SECONDS = 5.0
"""How long an ender may take before the sweep completes its work."""


def new_execution() -> str:
    """A random token of one claim."""
    return secrets.token_hex(12)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def _texts(items: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(item.decode() for item in items)


def _with_answers(run_input: bytes, redeemed: bytes) -> bytes:
    """The input without entries of ``resume`` that answer nothing, or what another run has answered."""
    if b'"resume"' not in run_input:
        return run_input
    document = json.loads(run_input)
    mine = set(json.loads(redeemed or b"[]"))
    given = document.get("resume") or []
    kept = [entry for entry in given if entry.get("interruptId") in mine]
    if len(kept) == len(given):
        return run_input
    return json.dumps(document | {"resume": kept}).encode()


def _fence_of(key: str, answer: Sequence[bytes]) -> Fence | None:
    return Fence(key, answer[1].decode(), answer[2].decode()) if answer[0] == b"fenced" else None


class RunStore:
    """Records and their lifecycle. All methods raise ``StoreError`` when Redis does not answer."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.client = client
        self.settings = settings
        self.scripts = scripts()

    def accept(
        self,
        identity: RunIdentity,
        *,
        agent: str,
        run_input: bytes,
        started_frame: bytes,
        policy: str = "enqueue",
        parent_run_id: str | None = None,
        traceparent: str | None = None,
        hint: tuple[str, bytes] | None = None,
        answers: Sequence[Answer] = (),
    ) -> Accepted:
        """Reserves the identity and stores the run with RUN_STARTED as seq 1.

        ``policy`` says what to do on a busy thread: enqueue, reject or interrupt. ``traceparent`` is the
        trace context that the run belongs to; ``answers`` are those of the input's ``resume``. ``hint`` is a
        queue in this database and the message that a ready run puts there in the same step.
        """
        key = identity.key
        queue, message = hint or (None, b"")
        answer = self._run(
            "accept",
            [keys.record(key), *([queue] if queue else [])],
            [
                keys.prefix(identity.bucket),
                key,
                identity.actor,
                identity.thread_id,
                identity.run_id,
                short_digest(identity.actor),
                short_digest(identity.actor, identity.thread_id),
                agent,
                run_input,
                started_frame,
                policy,
                self.settings.max_waiting_per_thread,
                parent_run_id or "",
                new_execution(),
                traceparent or "",
                message,
                *(text for one in answers for text in (one.interrupt_id, one.status, one.asked_by or "")),
            ],
        )
        state = answer[0].decode()
        if state == "accepted":
            return Accepted(answer[1].decode(), _texts(answer[3]), _texts(answer[4]))
        return Accepted(state, _texts(answer[1:2]), _texts(answer[2:]))

    def claim(
        self,
        key: str,
        execution: str,
        *,
        worker: str,
        host: str,
        pid: int,
        again: bool = False,
        retries: Mapping[str, int] = NO_RETRIES,
    ) -> Claim | None:
        """Takes a queued run, or None when it is not to be had; asking again answers the same.

        A run that leaves a question of its thread open when its turn comes is fenced instead: end it with
        ``interrupts.end_uncovered``. The input holds the answers only that the claim redeemed.

        For one lease after a restart of the server, runs from before it are held, because it may have
        forgotten who executes them; ``again`` is for the one who does. ``retries`` says of agents how often a
        run is executed again after its worker was lost (``retrying.retry_lost``); the first claim counts.
        """
        answer = self._run(
            "claim",
            [keys.record(key)],
            [
                keys.prefix(bucket_of_key(key)),
                key,
                execution,
                " ".join(before(Step.CLAIM)),
                _ms(self.settings.lease_seconds),
                _ms(self.settings.run_deadline_seconds),
                worker,
                host,
                pid,
                "again" if again else "",
                str(FailureCode.INTERRUPT_OPEN),
                _ms(FENCE_SECONDS),
                json.dumps(dict(retries)) if retries else "",
            ],
        )
        if answer[0] != b"claimed":
            return None
        texts = [item.decode() for item in answer[4:8]]
        return Claim(
            key=key,
            execution=execution,
            identity=RunIdentity(texts[1], texts[2], texts[3]),
            agent=texts[0],
            attempt=int(answer[3]),
            input=_with_answers(answer[8], answer[11]),
            last_seq=int(answer[9]),
            seconds_left=(float(answer[2]) - float(answer[1])) / 1000,
            traceparent=answer[10].decode() or None,
            answered_calls=_texts(answer[12:]),
        )

    def release(self, key: str, execution: str, *, most: int, last_seq: int = 1) -> str:
        """Hands a run back untouched: ``released``, ``exhausted``, ``cancel``, ``lost`` or ``gone``.

        ``last_seq`` is the claim's: where the log ended when the run was taken.
        """
        answer = self._run(
            "release", [keys.record(key)], [keys.prefix(bucket_of_key(key)), key, execution, most, last_seq]
        )
        return str(answer[0].decode())

    def renew(self, executions: Mapping[str, str]) -> dict[str, str]:
        """Renews the leases of run key -> execution id in one round trip.

        Per run ``ok``, ``cancel CAUSE``, ``lost``, ``unclaimed`` or ``gone``; runs whose bucket did not
        answer are left out.
        """
        buckets: dict[str, list[str]] = {}
        for key in executions:
            buckets.setdefault(bucket_of_key(key), []).append(key)
        calls: list[tuple[Sequence[str], list[Any]]] = []
        for bucket, members in buckets.items():
            arguments: list[Any] = [keys.prefix(bucket), _ms(self.settings.lease_seconds)]
            for key in members:
                arguments += [key, executions[key]]
            calls.append(([keys.leases(bucket)], arguments))
        answers = ask(lambda: run_pipelined(self.client, self.scripts.renew, calls), tries=1)
        told: dict[str, str] = {}
        for members, answer in zip(buckets.values(), answers, strict=True):
            if not isinstance(answer, RedisError):
                told |= {key: word.decode() for key, word in zip(members, answer, strict=True)}
        return told

    def request_cancel(
        self, key: str, *, by: str, cause: StopCause = StopCause.CLIENT, reason: str | None = None
    ) -> CancelAnswer:
        """Records the wish to stop; end a ``fenced`` run with ``ending.end_fenced``."""
        wish = [by, reason or "", str(cause)]
        answer = self._stop("request_cancel", key, wish, [keys.WORKER_CHANNEL_PREFIX])
        return CancelAnswer(answer[0].decode(), _fence_of(key, answer))

    def terminate(
        self, key: str, *, by: str, reason: str | None = None, grace_seconds: float | None = None
    ) -> TerminateAnswer:
        """An operator's forced stop: fences the run and tells its worker; end it with ``ending.end_fenced``.

        A running run is left alone until ``grace_seconds`` after its cancel request, None means at once.
        """
        grace = "" if grace_seconds is None else str(_ms(grace_seconds))
        wish = [by, reason or "", str(StopCause.OPERATOR), grace]
        channels = [keys.WORKER_CHANNEL_PREFIX, keys.FAMILY_CHANNEL_PREFIX]
        answer = self._stop("terminate", key, wish, channels)
        if answer[0] == b"grace":
            return TerminateAnswer("grace", seconds_left=int(answer[1]) / 1000)
        return TerminateAnswer(answer[0].decode(), _fence_of(key, answer))

    def _stop(self, script: str, key: str, wish: Sequence[str], channels: Sequence[str]) -> Any:
        run = [keys.prefix(bucket_of_key(key)), key, new_execution()]
        holding = [_ms(FENCE_SECONDS), str(Status.CANCELLED)]
        return self._run(script, [keys.record(key)], [*run, *wish, *holding, *channels])

    def link_retry(self, ended: str, retry: str) -> bool:
        """Says in both records that ``retry`` repeats ``ended``; both are of one thread."""
        return bool(self._run("retried", [keys.record(ended), keys.record(retry)], [ended, retry]))

    def fence(self, key: str, *, ending: str, guard: str, value: str = "", value2: str = "") -> Fence | None:
        """Takes a run away from its execution when ``guard`` holds (see ``fence.lua``).

        ``ending`` is ``cancelled`` or a failure code and stands unless an earlier ender named another.
        """
        answer = self._run(
            "fence",
            [keys.record(key)],
            [
                keys.prefix(bucket_of_key(key)),
                key,
                new_execution(),
                _ms(FENCE_SECONDS),
                ending,
                guard,
                value,
                value2,
            ],
        )
        return _fence_of(key, answer)

    def finish(
        self,
        key: str,
        execution: str,
        *,
        first_seq: int,
        outcome: Outcome,
        frames: Sequence[bytes],
        extra: Mapping[str, str] = NOTHING,
    ) -> Finish:
        """Records the ending together with its frames (closing events, then the terminal one).

        ``extra`` are further fields of the record.
        """
        fields: list[Any] = []
        for name, value in (
            ("code", outcome.code),
            ("message", outcome.message),
            ("outcome", json.dumps(outcome.wire) if outcome.wire else None),
            ("detail", outcome.detail),
            ("incident", outcome.incident),
            *extra.items(),
        ):
            if value is not None:
                fields += [name, str(value).encode("utf-8", "replace")]
        asked = questions_of(outcome)
        answer = self._run(
            "finish",
            [keys.record(key), keys.log(key)],
            [
                keys.prefix(bucket_of_key(key)),
                key,
                execution,
                first_seq,
                " ".join(before(Step.FINISH)),
                str(outcome.status),
                _ms(self.settings.retention_seconds),
                sum(map(len, frames)),
                DOORBELL_BYTES,
                keys.run_channel(key),
                len(fields) // 2,
                len(asked),
                "unseen" if outcome.code in UNSEEN else "",
                *fields,
                *(
                    text
                    for id_, expires_at, call in asked
                    for text in (id_, "" if expires_at is None else expires_at, call or "")
                ),
                *frames,
            ],
        )
        state = answer[0].decode()
        if state == "finished":
            return Finish("finished", int(answer[1]), str(outcome.status), answer[2].decode() or None)
        if state == "repeated":
            return Finish("repeated", int(answer[1]), answer[2].decode())
        if state in {"ended", "lost"}:
            return Finish(state, status=answer[1].decode())
        return Finish(state, int(answer[1]) if len(answer) > 1 else 0)

    def get(self, key: str) -> RunRecord | None:
        """The record, or None when there is none (never accepted, or past its retention)."""

        def read() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            pipeline.hgetall(keys.record(key))
            pipeline.llen(keys.log(key))
            return list(pipeline.execute())

        fields, length = ask(read)
        return RunRecord.from_fields(key, fields, int(length)) if fields else None

    def expired(self, key: str) -> bool:
        """Whether the identity ran, ended and is past its retention."""
        return bool(ask(lambda: self.client.exists(keys.tombstone(key))))

    def input_of(self, key: str) -> bytes | None:
        """The RunAgentInput as it was accepted."""
        stored: bytes | None = ask(lambda: self.client.get(keys.run_input(key)))
        return stored

    def survey(self, bucket: str, *, hint_seconds: float, patience_seconds: float, most: int = 200) -> Survey:
        """What the sweep has to look at in one bucket.

        No lease is judged for ``patience_seconds`` after the server was restarted.
        """
        answer = self._run(
            "survey",
            [keys.leases(bucket), keys.ready(bucket), keys.ended(bucket)],
            [
                keys.prefix(bucket),
                most,
                _ms(hint_seconds),
                _ms(self.settings.queue_timeout_seconds),
                _ms(self.settings.retention_seconds),
                _ms(patience_seconds),
            ],
        )
        return Survey(*map(_texts, answer))

    def expire(self, key: str) -> bool:
        """Deletes an ended run past its retention, leaving a tombstone."""
        answer = self._run(
            "expire",
            [keys.record(key)],
            [
                keys.prefix(bucket_of_key(key)),
                key,
                _ms(self.settings.retention_seconds),
                _ms(self.settings.tombstone_seconds),
            ],
        )
        return bool(answer)

    def now_ms(self) -> int:
        """The clock of Redis in milliseconds since the epoch."""
        seconds, micros = ask(self.client.time)
        return int(seconds) * 1000 + int(micros) // 1000

    def _run(self, name: str, key_names: list[str], arguments: list[Any]) -> Any:
        script = getattr(self.scripts, name)
        return ask(lambda: script.run(self.client, key_names, arguments))
