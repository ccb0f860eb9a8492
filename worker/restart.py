"""A worker told to start anew in place (HUP): it drains, then executes its program again."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any


def on_restart(told: Callable[[], None]) -> None:
    """Calls ``told`` before Celery's own handler of HUP; does nothing where Celery leaves HUP alone.

    Celery alone would wait for the running tasks as long as they like. For the main thread.
    """
    celerys = signal.getsignal(signal.SIGHUP)
    if not callable(celerys):
        return

    def handle(number: int, frame: Any) -> None:
        told()
        celerys(number, frame)

    signal.signal(signal.SIGHUP, handle)


def execute_again() -> None:
    """Replaces this process, whatever its threads do, by a new worker with the same pid and arguments."""
    os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - our own command line
