"""Child processes with log files: started in a session of their own, ended with everything they started."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    """A free port below the range from which the kernel takes ports for outgoing connections."""
    for port in random.sample(range(20_000, 32_000), 200):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


class Process:
    """One process and its log; ``stop`` tells it to end, ``kill`` ends it and its children at once."""

    def __init__(self, name: str, command: list[str], *, folder: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as output:
            self.popen = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def children(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).children(recursive=True)
        return []

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def signal_group(self, number: signal.Signals) -> None:
        os.killpg(self.pid, number)

    def wait(self, seconds: float = 15.0) -> int:
        """The exit code; fails when the process outlives the time."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {seconds} s") from None

    def kill(self) -> None:
        """Ends it and everything it started."""
        family = self.children()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        for child in family:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        self.popen.wait()
        psutil.wait_procs(family, timeout=5)

    def tail(self, lines: int = 40) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])
