"""Server time of every page with many runs in Redis: ``python -m benchmarks.dashboard``.

Seeds ended and live runs through the store's own scripts, then asks an in-process application for each page
and each tick of its stream, in turns. The ended runs' retention is long and the sweep is not running.

On a busy machine the clock tells more of the neighbours than of the page. So beside it stand the processor
time that the page took here and in Redis, and how long a loop of fixed work took between the requests.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from shared.local.server import EmbeddedServer
from shared.protocol import sse
from shared.protocol.events import dump, run_started
from shared.runs.identity import RunIdentity
from shared.runs.outcome import FailureCode, Outcome, StopCause
from shared.settings import Settings
from shared.store.audit import Entry
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
    """What is asked for, with the filters that cost most."""
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
        "runs, a thread of one actor": "/ops/runs?actor=actor-2000&thread=thread-long",
        "runs, a thread of any actor": "/ops/runs?thread=thread-nowhere",
        "runs, failed or cancelled": "/ops/runs?status=failed&status=cancelled",
        "run": f"/ops/runs/{key}",
        "run, tick": f"/ops/poll?view=run&key={key}&tail=1",
        "bulk preview": "/ops/bulk/new?status=running",
        "workers": "/ops/workers",
        "queue": "/ops/queues",
        "audit": "/ops/audit",
        "system": "/ops/system",
        "metrics, 24 hours": "/ops/metrics",
    }


@dataclass
class Measured:
    """Of each request: milliseconds by the clock, of processor time here and in Redis; kB of the answer."""

    took: list[float] = field(default_factory=list)
    here: list[float] = field(default_factory=list)
    redis: list[float] = field(default_factory=list)
    size: float = 0.0

    def row(self, name: str, loop_ms: float) -> str:
        worked = [here + redis for here, redis in zip(self.here, self.redis, strict=True)]
        spread = sorted(self.took)
        p95 = spread[math.ceil(len(spread) * 0.95) - 1]
        met = "yes" if max(self.took) < GOAL_MS else f"no; {max(worked):.0f} ms of work"
        shown = (median(self.took), p95, spread[-1], median(self.here), median(self.redis), max(worked))
        numbers = " | ".join(f"{value:.0f}" for value in shown)
        return f"| {name} | {numbers} | {median(self.took) / loop_ms:.1f} | {self.size:.0f} | {met} |"


def loop() -> float:
    """Milliseconds that a fixed piece of work takes at the moment, about 10 on a quiet machine."""
    began, total = time.perf_counter(), 0
    for number in range(200_000):
        total += number & 7
    return (time.perf_counter() - began) * 1000


def measure(ask: Callable[[], bytes], redis_ms: Callable[[], float], into: Measured) -> None:
    before = redis_ms()
    began, busy = time.perf_counter(), time.process_time()
    body = ask()
    into.took.append((time.perf_counter() - began) * 1000)
    into.here.append((time.process_time() - busy) * 1000)
    into.redis.append(redis_ms() - before)
    into.size = len(body) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard")
    parser.add_argument("--ended", type=int, default=100_000)
    parser.add_argument("--live", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=20)
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


def busy_audit(store: Store, key: str, entries: int = 10_000) -> None:
    """An audit as a year would leave it, and a run that many had a look at."""
    for number in range(entries):
        run = key if number % 100 == 0 else None
        store.audit.write(Entry("cancel", f"operator-{number % 7}", "requested", run=run, reason="bench"))


def long_thread(store: Store, runs: int = 2_000) -> None:
    for number in range(runs):
        identity = RunIdentity("actor-2000", "thread-long", f"turn-{number}")
        start_one(store, identity, "chat")
        claim_one(store, identity, random.Random(number), live=False)


def report(url: str, ended: int, rounds: int, store: Store) -> None:
    app = create_app(settings(url))
    client = app.test_client()
    # The first request would start the sweep, which would end the seeded runs while they are looked at.
    app.extensions["outlast"].get().sweeper.start = lambda: None
    identity = RunIdentity(f"actor-{(ended + 1) % 200}", f"thread-{ended + 1}", f"run-{ended + 1}")
    busy_audit(store, identity.key)
    long_thread(store)

    def redis_ms() -> float:
        told = store.server_info("cpu")
        return (float(told["used_cpu_user"]) + float(told["used_cpu_sys"])) * 1000

    def ask(path: str) -> bytes:
        answer = client.get(path)
        if answer.status_code != 200:
            raise AssertionError(f"{path}: status {answer.status_code}")
        return answer.data

    found = {name: Measured() for name in pages(identity.key)}
    loops = []
    for number in range(rounds + 1):
        store.workers.beat("w@bench", {"pool": "threads", "slots": 2000, "busy": 1500}, {})
        for name, path in pages(identity.key).items():
            # The first round compiles templates and reads the minutes that are kept in memory afterwards.
            into = found[name] if number else Measured()
            measure(lambda path=path: ask(path), redis_ms, into)
        loops.append(loop())
    print(f"the fixed loop: {median(loops):.0f} ms, at best {min(loops):.0f}", file=sys.stderr)
    print("| page | p50 | p95 | max | Python | Redis | work, max | p50 / loop | kB | under 200 ms |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, measured in found.items():
        print(measured.row(name, median(loops)), flush=True)


if __name__ == "__main__":
    main()
