"""Stops a process's runs: lets them go on for the drain time, stops them, ends those that do not stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from shared.logs import get_logger
from shared.runs.outcome import FailureCode, StopCause
from worker.execution import Execution
from worker.process import Process

AFTER_DRAIN_SECONDS = 2.0
"""From the end of the drain time to the certain end of the process."""

_TASK_CANCEL_SECONDS = 0.7
_ABANDON_SECONDS = 1.2
_POLL_SECONDS = 0.02

log = get_logger(__name__)


class Drain:
    """One shutdown; the pulse goes on meanwhile, so leases hold and cancels arrive.

    ``hurried`` is asked all the while; once it says yes the drain time is over.
    """

    def __init__(self, process: Process, seconds: float, hurried: Callable[[], bool] = lambda: False) -> None:
        self.process = process
        self.seconds = seconds
        self._hurried = hurried

    def start(self) -> None:
        """Drains in a thread of its own."""
        threading.Thread(target=self.run, name="outlast-drain", daemon=True).start()

    def run(self) -> bool:
        """True when every run came to its own end or stopped, False when one had to be ended from outside.

        Executions that were left behind before are not waited for.
        """
        began = time.monotonic()
        pulse = self.process.pulse
        self.process.draining = True
        log.info("worker.draining", runs=len(pulse.executions), seconds=self.seconds)
        _by(lambda: not pulse.busy or self._hurried(), began + self.seconds)
        if not pulse.busy:
            return True
        told = time.monotonic()
        for execution in self._in_hand():
            execution.stop(StopCause.SHUTDOWN)
        if self._idle_by(told + _TASK_CANCEL_SECONDS):
            return True
        for execution in self._in_hand():
            execution.cancel_task()
        if self._idle_by(told + _ABANDON_SECONDS):
            return True
        deaf = self._in_hand()
        for execution in deaf:
            pulse.abandon(execution, FailureCode.WORKER_SHUTDOWN)
        log.warning("worker.runs_abandoned", runs=len(deaf))
        return False

    def _in_hand(self) -> list[Execution]:
        executions = list(self.process.pulse.executions.values())
        return [execution for execution in executions if not execution.left_behind]

    def _idle_by(self, deadline: float) -> bool:
        return _by(lambda: not self.process.pulse.busy, deadline)


def _by(condition: Callable[[], bool], deadline: float) -> bool:
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
