"""A worker process's services inside the test, and runs accepted for it."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shared.protocol import events, sse
from shared.runs.identity import RunIdentity
from shared.runs.interrupts import Answer
from shared.runs.record import RunRecord
from shared.settings import Settings
from shared.store.store import Store
from worker.agents.registry import Registry
from worker.driver import Driver
from worker.process import Process

_numbers = itertools.count(1)


def accept(
    store: Store,
    agent: str,
    answers: Sequence[Answer] = (),
    *,
    thread: str | None = None,
    policy: str = "enqueue",
    **members: Any,
) -> str:
    """Accepts a run as a web process does, without a queue message; its key."""
    number = next(_numbers)
    identity = RunIdentity("alice", thread or f"thread-{number}", f"run-{number}")
    document = {"threadId": identity.thread_id, "runId": identity.run_id, "messages": [], **members}
    started = events.run_started(identity.thread_id, identity.run_id)
    accepted = store.runs.accept(
        identity,
        agent=agent,
        run_input=json.dumps(document).encode(),
        started_frame=sse.frame(1, events.dump(started)),
        policy=policy,
        answers=answers,
    )
    assert accepted.state in {"ready", "waiting"}
    return identity.key


@contextmanager
def process_with(settings: Settings, **agents: Callable[..., Any]) -> Iterator[Process]:
    """A started process that has these agents."""
    registry = Registry()
    for name, agent in agents.items():
        registry.add(name, agent, "a test")
    process = Process(settings, registry)
    process.start()
    try:
        yield process
    finally:
        process.close()


def in_thread(process: Process, key: str) -> threading.Thread:
    """The driver in a thread of its own, as a pool's slot runs it."""
    thread = threading.Thread(target=Driver(process).execute, args=(key,), daemon=True)
    thread.start()
    return thread


def record_of(store: Store, key: str) -> RunRecord:
    """The run's record, which must be there."""
    record = store.runs.get(key)
    assert record is not None
    return record


def log_of(store: Store, key: str) -> list[dict[str, Any]]:
    """The run's events as JSON; fails when the numbering has a hole or the terminal event is not the last."""
    frames = store.log.read_all(key)
    assert [sse.seq_of(frame) for frame in frames] == list(range(1, len(frames) + 1))
    told = [json.loads(sse.data_of(frame)) for frame in frames]
    terminal = [event["type"] in {"RUN_FINISHED", "RUN_ERROR"} for event in told]
    assert not any(terminal[:-1])
    return told


def types_of(store: Store, key: str) -> list[str]:
    """The types of the run's events."""
    return [event["type"] for event in log_of(store, key)]
