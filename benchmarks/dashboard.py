"""Server time of every page with many runs in Redis: ``python -m benchmarks.dashboard``.

Seeds ended and live runs through the store's own scripts, then asks an in-process application for each page
and each tick of its stream. The ended runs' retention is long and the sweep is not running.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

from shared.local.server import EmbeddedServer
from shared.protocol import sse
from shared.protocol.events import dump, run_started
from shared.runs.identity import RunIdentity
from shared.runs.outcome import FailureCode, Outcome, StopCause
from shared.settings import Settings
from shared.store.ending import terminal_event
from shared.store.runs import new_execution
from shared.store.store import Store, open_store
from web import create_app

GOAL_MS = 200.0
AGENTS = ("chat", "research", "report", "echo")
ENDINGS = (
    *[Outcome.succeeded()] * 16,
    Outcome.cancelled(),
    Outcome.failed(FailureCode.AGENT_ERROR),
    Outcome.failed(FailureCode.TRANSPORT_TIMEOUT),
    Outcome.failed(FailureCode.WORKER_LOST),
)


def settings(url: str) -> Settings:
    return Settings(redis_url=url, auth="none", stalled_seconds=5, lease_seconds=86_400, log_level="error")


def seed_part(url: str, first: int, count: int, live: bool) -> None:
    """Runs of 200 actors over 4,000 threads; two processes must not meet on one."""
    store, chance = open_store(settings(url)), random.Random(first)
    for number in range(first, first + count):
        actor = f"actor-{number % 200}"
        identity = RunIdentity(
            actor, f"thread-{number}" if live else f"thread-{first}-{number % 500}", f"run-{number}"
        )
        start_one(store, identity, AGENTS[number % 4])
        if live and number % 4 == 0:
            continue
        claim_one(store, identity, chance, live=live)
    store.close()


def start_one(store: Store, identity: RunIdentity, agent: str) -> None:
    given = b'{"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "hello"}]}'
    started = sse.frame(1, dump(run_started(identity.thread_id, identity.run_id, None)))
    store.runs.accept(identity, agent=agent, run_input=given, started_frame=started)


def claim_one(store: Store, identity: RunIdentity, chance: random.Random, *, live: bool) -> None:
    claim = store.runs.claim(identity.key, new_execution(), worker="w@bench", host="bench", pid=1)
    if claim is None:
        raise AssertionError(f"{identity} was not claimed")
    if live:
        if chance.random() < 0.1:
            store.runs.request_cancel(identity.key, by="operator", cause=StopCause.OPERATOR, reason="bench")
        return
    outcome = chance.choice(ENDINGS)
    first = claim.last_seq + 1
    frames = [sse.frame(first, dump(terminal_event(identity, outcome)))]
    store.runs.finish(identity.key, claim.execution, first_seq=first, outcome=outcome, frames=frames)


def seed(url: str, ended: int, live: int) -> None:
    part = max(1, ended // 8)
    with ProcessPoolExecutor(max_workers=2) as pool:
        parts = [
            pool.submit(seed_part, url, first, min(part, ended - first), False)
            for first in range(0, ended, part)
        ]
        for done in parts:
            done.result()
    seed_part(url, ended, live, True)


def pages(key: str) -> dict[str, str]:
    return {
        "overview": "/ops/",
        "overview, tick": "/ops/poll?view=overview",
        "runs": "/ops/runs",
        "runs, running": "/ops/runs?status=running",
        "runs, failed": "/ops/runs?status=failed&code=transport_timeout",
        "runs, agent and actor": "/ops/runs?agent=chat&actor=actor-8",
        "runs, stalled": "/ops/runs?attention=stalled",
        "runs, text found nowhere": "/ops/runs?q=nowhere-to-be-found",
        "runs, one run id": "/ops/runs?q=run-4711",
        "run": f"/ops/runs/{key}",
        "run, tick": f"/ops/poll?view=run&key={key}&tail=1",
        "bulk preview": "/ops/bulk/new?status=running",
        "workers": "/ops/workers",
        "queue": "/ops/queues",
        "audit": "/ops/audit",
        "system": "/ops/system",
    }


def measured(ask: Callable[[], int], rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each request, and of this process's processor time: on a busy machine they differ."""
    took, worked = [], []
    for _ in range(rounds):
        began, busy = time.perf_counter(), time.process_time()
        status = ask()
        took.append((time.perf_counter() - began) * 1000)
        worked.append((time.process_time() - busy) * 1000)
        if status != 200:
            raise AssertionError(f"status {status}")
        # Longer than a tick, so that nothing is answered from the memory of the one before.
        time.sleep(0.85)
    return took, worked


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard")
    parser.add_argument("--ended", type=int, default=100_000)
    parser.add_argument("--live", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="outlast-dashboard-") as folder:
        server = EmbeddedServer(Path(folder))
        server.start()
        try:
            store = open_store(settings(server.url))
            empty = int(store.server_info("memory")["used_memory"])
            began = time.monotonic()
            seed(server.url, options.ended, options.live)
            used = int(store.server_info("memory")["used_memory"]) - empty
            each, took = used / (options.ended + options.live), time.monotonic() - began
            print(f"seeded in {took:.0f} s, {each:.0f} bytes a run", file=sys.stderr)
            store.workers.beat(
                "w@bench", {"pool": "threads", "slots": 2000, "busy": 1500}, {a: {} for a in AGENTS}
            )
            report(server.url, options.ended, options.rounds, store)
        finally:
            server.stop()


def report(url: str, ended: int, rounds: int, store: Store) -> None:
    app = create_app(settings(url))
    client = app.test_client()
    # The first request would start the sweep, which would end the seeded runs while they are looked at.
    app.extensions["outlast"].get().sweeper.start = lambda: None
    identity = RunIdentity(f"actor-{(ended + 1) % 200}", f"thread-{ended + 1}", f"run-{ended + 1}")
    print("| page | p50 ms | worst ms | of it Python, p50 ms | kB | goal met |\n|---|---|---|---|---|---|")
    for name, path in pages(identity.key).items():
        store.workers.beat("w@bench", {"pool": "threads", "slots": 2000, "busy": 1500}, {})
        size = len(client.get(path).data) / 1000
        took, worked = measured(lambda path=path: client.get(path).status_code, rounds)
        met = "yes" if max(took) < GOAL_MS else "NO"
        print(
            f"| {name} | {median(took):.0f} | {max(took):.0f} | {median(worked):.0f} | {size:.0f} | {met} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
