"""One supervised process: started in a session of its own, its lines forwarded, ended without a remainder."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
STEADY_SECONDS = 60.0
"""A child that lived this long is started again without the pauses that its earlier deaths had earned."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run one child.

    ``ready`` says whether it serves; ``grace`` is the seconds it gets between TERM and KILL; with exit code
    ``misconfigured`` it says that a new start does not help.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    grace: float
    ready: Callable[[], bool]
    misconfigured: int | None = None


class Child:
    """A process that is started again, after a growing pause, whenever it ends by itself."""

    def __init__(self, plan: Plan, on_line: Callable[[str, str], None]) -> None:
        self.plan = plan
        self._on_line = on_line
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._pause = FIRST_PAUSE
        self._started_at = 0.0
        self._start_again_at = 0.0

    @property
    def is_misconfigured(self) -> bool:
        """Whether it ended and said that a new start does not help."""
        code = self._process.poll() if self._process is not None else None
        return code is not None and code == self.plan.misconfigured

    @property
    def pid(self) -> int | None:
        """The process, or ``None`` between an end and the next start."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start it as leader of a session: no terminal signal reaches it, its group can be ended whole."""
        self._process = subprocess.Popen(
            self.plan.command,
            env=dict(self.plan.environment),
            cwd=self.plan.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._started_at = time.monotonic()
        self._reader = threading.Thread(target=self._forward, args=(self._process,), daemon=True)
        self._reader.start()

    def watch(self) -> str | None:
        """Notice an end, start again after the pause; half a sentence if either happened just now."""
        if self._process is None:
            if time.monotonic() < self._start_again_at:
                return None
            self.start()
            return "was started again"
        code = self._process.poll()
        if code is None:
            return None
        self.end_now()
        if time.monotonic() - self._started_at >= STEADY_SECONDS:
            self._pause = FIRST_PAUSE
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        self._start_again_at = time.monotonic() + pause
        return f"{ending(code)}; it is started again in {pause:g} s"

    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def ask_to_end(self) -> None:
        """Send TERM to the process alone: it ends its own children in its own order."""
        if self._process is not None:
            self._process.terminate()

    def end_now(self) -> None:
        """Kill what is left of the process and of its group, and wait for it."""
        if self._process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._reader is not None:
            self._reader.join(timeout=1)
        self._process = None

    def _forward(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is not None:
            with process.stdout as lines:
                for line in lines:
                    self._on_line(self.plan.name, line.decode(errors="replace").rstrip())


def ending(code: int) -> str:
    """How a process ended, as half a sentence."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
