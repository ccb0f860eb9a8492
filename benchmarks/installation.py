"""Everything that is measured, running side by side on one private Redis."""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from shared.local.server import EmbeddedServer
from shared.settings import Settings, child_environment
from shared.store.store import open_store

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
CONCURRENCY = "128"


class Installation:
    """Web (gunicorn, gevent), worker (Celery, threads) and Redis; beside them the yardsticks."""

    def __init__(self, folder: Path, plain_python: Path, **environment: str) -> None:
        self.folder = folder
        self.server = EmbeddedServer(folder / "redis", port=0)
        self.server.start()
        self.url = self.server.url
        self.bare_broker = self.url.removesuffix("/0") + "/1"
        self._children: list[subprocess.Popen[bytes]] = []
        self._environment = child_environment(
            OUTLAST_REDIS_URL=self.url,
            OUTLAST_AUTH="none",
            OUTLAST_AGENTS="benchmarks.agents:AGENTS",
            **{"PYTHONPATH": str(ROOT), **environment},
        )
        self.port, self.plain_port = free_port(), free_port()
        celery = [str(BIN / "celery"), "-A"]
        threads = ["worker", "--pool", "threads", "--concurrency", CONCURRENCY]
        self.worker = self.start("worker", [*celery, "worker", *threads])
        self.web = self.start(
            "web", [str(BIN / "gunicorn"), "-c", "gunicorn.conf.py", "-b", f"127.0.0.1:{self.port}"]
        )
        bare = [*celery, "benchmarks.bare_celery", "-b", self.bare_broker, *threads, "-n", "bare@%h"]
        self.bare = self.start("bare", bare)
        uvicorn = ["-m", "uvicorn", "benchmarks.plain_server:app", "--port", str(self.plain_port)]
        self.plain = self.start(
            "plain", [str(plain_python), *uvicorn, "--log-level", "warning", "--no-access-log"]
        )
        await_true(lambda: listens(self.port) and listens(self.plain_port))
        store = open_store(Settings(redis_url=self.url))
        await_true(lambda: bool(store.workers.agents()))
        store.close()

    def start(self, name: str, command: list[str]) -> psutil.Process:
        with (self.folder / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children.append(child)
        return psutil.Process(child.pid)

    def redis(self) -> psutil.Process:
        return psutil.Process(self.server.pid)

    def close(self) -> None:
        for child in self._children:
            with suppress(psutil.NoSuchProcess):
                for one in [*psutil.Process(child.pid).children(recursive=True), psutil.Process(child.pid)]:
                    with suppress(psutil.NoSuchProcess):
                        one.kill()
            child.wait()
        self.server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def cpu_seconds(process: psutil.Process) -> float:
    """What the process and its children used so far."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        times = one.cpu_times()
        total += times.user + times.system
    return total


def unique_memory(process: psutil.Process) -> int:
    """Bytes that would be free if the process and its children ended."""
    return sum(one.memory_full_info().uss for one in [process, *process.children(recursive=True)])


def free_port() -> int:
    for port in random.sample(range(20_000, 32_000), 200):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def await_true(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the installation did not come up; see the logs in its folder")
        time.sleep(0.05)
