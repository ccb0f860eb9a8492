"""The run store: one method per script, plus reading a record; every write is safe to ask again."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import RedisError

from shared.runs.identity import RunIdentity, bucket_of_key, short_digest
from shared.runs.lifecycle import Status, Step, before
from shared.runs.outcome import Outcome, StopCause
from shared.runs.record import RunRecord
from shared.settings import Settings
from shared.store import keys
from shared.store.answers import Accepted, CancelAnswer, Claim, Fence, Finish, Survey, TerminateAnswer
from shared.store.connection import Client, ask
from shared.store.scripts import run_pipelined, scripts

DOORBELL_BYTES = 64 * 1024
"""A batch above this many bytes is published as numbers only and read from the log."""

FENCE_SECONDS = 5.0
"""How long an ender may take before the sweep completes its work."""


def new_execution() -> str:
    """A random token of one claim."""
    return secrets.token_hex(12)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


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
    ) -> Accepted:
        """Reserves the identity and stores the run with RUN_STARTED as seq 1.

        ``policy`` says what to do on a busy thread: enqueue, reject or interrupt.
        """
        key = identity.key
        answer = self._run(
            "accept",
            [keys.record(key)],
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
            ],
        )
        state = answer[0].decode()
        if state == "accepted":
            return Accepted(answer[1].decode(), tuple(item.decode() for item in answer[3]))
        return Accepted(state, tuple(item.decode() for item in answer[1:]))

    def claim(
        self, key: str, execution: str, *, worker: str, host: str, pid: int, again: bool = False
    ) -> Claim | None:
        """Takes a queued run, or None when it is not to be had; asking again answers the same.

        For one lease after a restart of the server, runs from before it are held, because it may have
        forgotten who executes them; ``again`` is for the one who does.
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
            input=answer[8],
            last_seq=int(answer[9]),
            seconds_left=(float(answer[2]) - float(answer[1])) / 1000,
        )

    def release(self, key: str, execution: str, *, most: int) -> str:
        """Hands a run back untouched: ``released``, ``exhausted``, ``cancel``, ``lost`` or ``gone``."""
        answer = self._run(
            "release", [keys.record(key)], [keys.prefix(bucket_of_key(key)), key, execution, most]
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
        answer = self._run(
            "request_cancel",
            [keys.record(key)],
            [
                keys.prefix(bucket_of_key(key)),
                key,
                new_execution(),
                by,
                reason or "",
                str(cause),
                _ms(FENCE_SECONDS),
                str(Status.CANCELLED),
                keys.WORKER_CHANNEL_PREFIX,
            ],
        )
        state = answer[0].decode()
        fenced = state == "fenced"
        return CancelAnswer(state, Fence(key, answer[1].decode(), answer[2].decode()) if fenced else None)

    def terminate(
        self, key: str, *, by: str, reason: str | None = None, grace_seconds: float | None = None
    ) -> TerminateAnswer:
        """An operator's forced stop: fences the run and tells its worker; end it with ``ending.end_fenced``.

        A running run is left alone until ``grace_seconds`` after its cancel request, None means at once.
        """
        answer = self._run(
            "terminate",
            [keys.record(key)],
            [
                keys.prefix(bucket_of_key(key)),
                key,
                new_execution(),
                by,
                reason or "",
                str(StopCause.OPERATOR),
                "" if grace_seconds is None else _ms(grace_seconds),
                _ms(FENCE_SECONDS),
                str(Status.CANCELLED),
                keys.WORKER_CHANNEL_PREFIX,
                keys.FAMILY_CHANNEL_PREFIX,
            ],
        )
        state = answer[0].decode()
        if state == "grace":
            return TerminateAnswer("grace", seconds_left=int(answer[1]) / 1000)
        fenced = state == "fenced"
        return TerminateAnswer(state, Fence(key, answer[1].decode(), answer[2].decode()) if fenced else None)

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
        if answer[0] != b"fenced":
            return None
        return Fence(key, answer[1].decode(), answer[2].decode())

    def finish(
        self, key: str, execution: str, *, first_seq: int, outcome: Outcome, frames: Sequence[bytes]
    ) -> Finish:
        """Records the ending together with its frames (closing events, then the terminal one)."""
        fields: list[Any] = []
        for name, value in (
            ("code", outcome.code),
            ("message", outcome.message),
            ("outcome", json.dumps(outcome.wire) if outcome.wire else None),
            ("detail", outcome.detail),
            ("incident", outcome.incident),
        ):
            if value is not None:
                fields += [name, str(value).encode("utf-8", "replace")]
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
                *fields,
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
        return Survey(*(tuple(item.decode() for item in part) for part in answer))

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
