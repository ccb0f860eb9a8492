"""A whole installation of real processes on one private Redis, and what a client does with it."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import httpx

from shared.local.server import EmbeddedServer
from shared.runs.identity import RunIdentity
from shared.settings import Settings
from shared.store.store import Store, open_store
from tests.conftest import wait_for
from tests.journeys.processes import Process, free_port
from tests.journeys.sse_stream import Stream

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent

SHORT_TIMES = {
    "OUTLAST_LEASE_SECONDS": "2",
    "OUTLAST_SWEEP_SECONDS": "0.3",
    "OUTLAST_DRAIN_SECONDS": "2",
    "OUTLAST_CANCEL_GRACE_SECONDS": "1",
    "OUTLAST_HEARTBEAT_SECONDS": "1",
}

LOST_WITHIN = 2 + 2 + 0.3 + 3
"""Seconds: the lease, the leader lock's hold or a patient lease, a sweep, and slack for a busy machine."""

_numbers = itertools.count(1)


@dataclass
class Run:
    """One run as its client knows it: its ids, its stream, and what the client did to it."""

    stack: Stack
    agent: str
    thread_id: str
    run_id: str
    actor: str
    body: dict[str, Any]
    token: str | None = None
    stream: Stream | None = None
    cancel_accepted: bool = False
    provider_timed_out: bool = False
    watched: list[Stream] = field(default_factory=list)

    @property
    def key(self) -> str:
        return RunIdentity(self.actor, self.thread_id, self.run_id).key

    @property
    def path(self) -> str:
        return f"/threads/{self.thread_id}/runs/{self.run_id}"

    @property
    def live(self) -> Stream:
        assert self.stream is not None
        return self.stream

    def record(self) -> dict[str, Any]:
        """The record over HTTP."""
        answer = self.stack.request("GET", self.path, token=self.token)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def recorded(self, seconds: float = 15.0) -> dict[str, Any]:
        """The record once the run has ended."""

        def ended() -> dict[str, Any] | None:
            found = self.record()
            return found if "finished_at" in found else None

        try:
            found = wait_for(ended, seconds, pause=0.03)
        except AssertionError:
            raise AssertionError(f"not ended within {seconds} s: {self.record()}") from None
        assert found is not None
        return found

    def running(self, seconds: float = 10.0) -> Run:
        """Waits until a worker has it."""
        wait_for(lambda: self.record()["status"] != "queued", seconds, pause=0.03)
        return self

    def cancel(self, *, wait: float | None = None, reason: str | None = None) -> httpx.Response:
        answer = self.stack.request(
            "POST",
            f"{self.path}/cancel" + (f"?wait={wait}" if wait else ""),
            token=self.token,
            body={"reason": reason} if reason else {},
        )
        if answer.status_code in {200, 202}:
            self.cancel_accepted = True
        return answer

    def watch(self, after: int | None = None, **headers: str) -> Stream:
        """A further reader of the log, after a cursor if one is given."""
        path = f"{self.path}/events" + (f"?after={after}" if after is not None else "")
        opened = self.stack.open("GET", path, token=self.token, headers=headers)
        self.watched.append(opened)
        return opened

    def effects(self) -> list[str]:
        """What the agent wrote of its executions: START, EFFECT, END."""
        return [line[3] for line in self.stack.effects() if line[0] == self.run_id]

    def pids(self) -> list[int]:
        return [int(line[2]) for line in self.stack.effects() if line[0] == self.run_id]


class Stack:
    """Redis, workers and web processes of one installation; everything it started ends with ``close``."""

    open_stacks: ClassVar[list[Stack]] = []

    def __init__(self, folder: Path, server: EmbeddedServer, **environment: str) -> None:
        self.folder = folder
        self.server = server
        self.effects_file = folder / "effects"
        self.effects_file.touch()
        self.environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("OUTLAST_", "FLASK_"))
            },
            "OUTLAST_REDIS_URL": server.url,
            "OUTLAST_AUTH": "none",
            "OUTLAST_AGENTS": "agents_under_test:AGENTS",
            "PYTHONPATH": str(HERE),
            "PYTHONUNBUFFERED": "1",
            "EFFECTS_FILE": str(self.effects_file),
            **SHORT_TIMES,
            **environment,
        }
        self.processes: list[Process] = []
        self.streams: list[Stream] = []
        self.store: Store = open_store(Settings(redis_url=server.url))
        self.http = httpx.Client(timeout=20, limits=httpx.Limits(max_keepalive_connections=0))
        self.web: Process | None = None
        self.port = 0
        Stack.open_stacks.append(self)

    # --- processes --------------------------------------------------------------------------------------

    def start_worker(
        self, *, pool: str | None = None, concurrency: int | None = None, wait: bool = True
    ) -> Process:
        """One `celery -A worker worker`, ready when its heartbeat is seen."""
        name = f"worker{next(_numbers)}"
        command = [str(BIN / "celery"), "-A", "worker", "worker", "-n", f"{name}@%h", "--loglevel", "INFO"]
        command += ["--pool", pool] if pool else []
        command += ["--concurrency", str(concurrency)] if concurrency else []
        worker = self._start(name, command)
        if wait:
            self.await_worker(worker)
        return worker

    def start(self, web: str = "flask", **worker: Any) -> Process:
        """A worker and a web process, side by side; gives the worker."""
        started = self.start_worker(wait=False, **worker)
        self.start_web(web)
        self.await_worker(started)
        return started

    def announce(self, *agents: str) -> None:
        """Lists agents as a worker that is gone would have left them, so that runs for them are accepted."""
        self.store.workers.beat("gone", {}, {name: {} for name in agents})
        self.store.workers.leave("gone")

    def await_worker(self, worker: Process, seconds: float = 30.0) -> None:
        def seen() -> bool:
            assert worker.alive, worker.tail()
            return any(beat.facts.get("pid") == worker.pid for beat in self.store.workers.alive())

        wait_for(seen, seconds, pause=0.05)

    def start_web(self, kind: str = "flask", *, port: int | None = None, **environment: str) -> Process:
        """One web process, ready when it answers; the stack's verbs talk to the newest."""
        self.port = port or free_port()
        name = f"web{next(_numbers)}"
        commands = {
            "flask": ["flask", "run", "--port", str(self.port)],
            "gunicorn": [
                "gunicorn",
                "-c",
                "gunicorn.conf.py",
                "-b",
                f"127.0.0.1:{self.port}",
                "web:create_app()",
            ],
        }
        program, *arguments = commands[kind]
        web = self._start(name, [str(BIN / program), *arguments], **environment)

        def answers() -> bool:
            assert web.alive, web.tail()
            try:
                return (
                    self.http.get(f"http://127.0.0.1:{self.port}/health/live", timeout=2).status_code == 200
                )
            except httpx.TransportError:
                return False

        wait_for(answers, 30, pause=0.05)
        self.web = web
        return web

    def _start(self, name: str, command: list[str], **environment: str) -> Process:
        process = Process(name, command, folder=self.folder, environment={**self.environment, **environment})
        self.processes.append(process)
        return process

    # --- what a client does -----------------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        sent = {**_bearer(token), **(headers or {})}
        return self.http.request(method, f"http://127.0.0.1:{self.port}{path}", json=body, headers=sent)

    def open(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> Stream:
        stream = Stream(self.port, method, path, body=body, headers={**_bearer(token), **(headers or {})})
        self.streams.append(stream)
        return stream

    def prepare(
        self,
        agent: str,
        *,
        thread_id: str | None = None,
        run_id: str | None = None,
        text: str = "hello",
        actor: str | None = None,
        token: str | None = None,
        **props: Any,
    ) -> Run:
        """A run that is not sent yet; ``props`` become its forwardedProps."""
        number = next(_numbers)
        thread_id, run_id = thread_id or f"thread-{number}", run_id or f"run-{number}"
        body = {
            "threadId": thread_id,
            "runId": run_id,
            "messages": [{"id": "u1", "role": "user", "content": text}],
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": props,
        }
        return Run(self, agent, thread_id, run_id, actor or self.local_actor, body, token)

    def submit(self, agent: str, *, on_busy: str | None = None, **options: Any) -> Run:
        """Posts a run and opens its stream."""
        return self.send(self.prepare(agent, **options), on_busy=on_busy)

    def send(self, run: Run, *, on_busy: str | None = None) -> Run:
        run.stream = self.post(run, on_busy=on_busy)
        return run

    def post(self, run: Run, *, on_busy: str | None = None) -> Stream:
        path = f"/agents/{run.agent}" + (f"?on_busy={on_busy}" if on_busy else "")
        return self.open("POST", path, token=run.token, body=run.body)

    @property
    def local_actor(self) -> str:
        """Whose runs they are when nobody needs to say who asks."""
        return "local"

    # --- what the agents did ----------------------------------------------------------------------------

    def effects(self) -> list[list[str]]:
        """Lines ``run id, attempt, pid, word`` that the agents appended."""
        return [json.loads(line) for line in self.effects_file.read_text().splitlines()]

    # --- the end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        for process in reversed(self.processes):
            process.kill()
        for stream in self.streams:
            stream.close()
        self.http.close()
        self.store.close()
        Stack.open_stacks.remove(self)

    def report(self) -> str:
        """The ends of all logs, for a failure."""
        parts = [
            f"--- {process.name} (exit {process.popen.poll()})\n{process.tail()}"
            for process in self.processes
        ]
        return "\n".join(parts)


def _bearer(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def milliseconds_between(earlier: str, later: str) -> float:
    """Between two times of a record."""
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds() * 1000


def elapsed(since: float) -> float:
    return time.monotonic() - since
