"""Start Redis and the children, keep them alive, stop them in order: worker, web, Redis."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from types import FrameType

from shared.local.child import Child, Plan
from shared.local.console import Console
from shared.local.program import NoServerProgramError
from shared.local.server import EmbeddedServer, ServerStartError

TICK_SECONDS = 0.1
SERVER_CHECK_SECONDS = 1.0
READY_SECONDS = 60.0
ONE_PRESS_SECONDS = 0.5
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Supervisor:
    """Runs ``plans`` over ``server`` (``None``: Redis is somebody else's) until told to stop.

    Children are started and stopped in the given order: what runs still say while the worker stops is seen by
    whoever follows them. The first INT, TERM or HUP stops gracefully, and so does ``wanted`` when it turns
    false; a second signal kills the children at once. Either way no process remains. ``stopping`` gives a
    sentence about what the stop waits for.

    A child that says it is misconfigured before everything was ready once ends the start.
    """

    def __init__(
        self,
        console: Console,
        plans: Sequence[Plan],
        server: EmbeddedServer | None,
        *,
        when_ready: Callable[[], None] = lambda: None,
        wanted: Callable[[], bool] = lambda: True,
        stopping: Callable[[], str] = lambda: "Stopping",
    ) -> None:
        self._console = console
        self._children = [Child(plan, console.line) for plan in plans]
        self._server = server
        self._when_ready = when_ready
        self._wanted = wanted
        self._stopping = stopping
        self._hopeless = False
        self._was_ready = False
        self._signals = 0
        self._signalled_at = 0.0
        self._server_checked_at = 0.0
        self._server_pause = SERVER_CHECK_SECONDS

    def run(self) -> int:
        """Serve until told to stop; the exit code is 1 if something could not be started at all, else 0."""
        heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._count) for number in heard}
        try:
            if not self._start_server():
                return 1
            for child in self._children:
                child.start()
            self._await_ready()
            while self._goes_on():
                self._tick()
            return 1 if self._hopeless else 0
        finally:
            self._stop()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _goes_on(self) -> bool:
        return not self._signals and not self._hopeless and self._wanted()

    def _count(self, number: int, frame: FrameType | None) -> None:
        # Nothing but a count: a handler may run in the middle of anything. A terminal and make may both
        # tell of one Ctrl-C, so what comes close together counts once.
        now = time.monotonic()
        if not self._signals or now - self._signalled_at > ONE_PRESS_SECONDS:
            self._signals += 1
            self._signalled_at = now

    # --- start --------------------------------------------------------------------------------------------

    def _start_server(self) -> bool:
        if self._server is None:
            return True
        begin = time.monotonic()
        try:
            self._server.start()
        except (NoServerProgramError, ServerStartError) as error:
            self._console.warn("redis", str(error))
            return False
        self._console.step("redis", f"ready in {time.monotonic() - begin:.1f} s: {self._server.description}")
        return True

    def _await_ready(self) -> None:
        begin = time.monotonic()
        waiting = list(self._children)
        for child in waiting:
            self._console.step(child.plan.name, "starting")
        told = False
        while waiting and self._goes_on():
            self._tick()
            for child in [child for child in waiting if child.is_running() and child.plan.ready()]:
                waiting.remove(child)
                self._console.step(child.plan.name, f"ready in {time.monotonic() - begin:.1f} s")
            if waiting and not told and time.monotonic() - begin > READY_SECONDS:
                told = True
                for child in waiting:
                    self._console.warn(child.plan.name, "is not ready yet; what it said so far stands above")
        if self._goes_on():
            self._was_ready = True
            self._console.open()
            self._when_ready()

    # --- watch --------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        time.sleep(TICK_SECONDS)
        self._watch_server()
        for child in self._children:
            if child.is_misconfigured and not self._was_ready:
                # Ended first, because that brings its last lines.
                child.end_now()
                self._console.warn(child.plan.name, "cannot start like this; what is wrong stands above")
                self._hopeless = True
                return
            happened = child.watch()
            if happened is not None:
                self._console.warn(child.plan.name, happened)

    def _watch_server(self) -> None:
        now = time.monotonic()
        if self._server is None or now - self._server_checked_at < self._server_pause:
            return
        self._server_checked_at = now
        if not self._server.is_gone():
            self._server_pause = SERVER_CHECK_SECONDS
            return
        self._console.warn("redis", "has ended; it is started again with its data")
        try:
            self._server.start()
        except (NoServerProgramError, ServerStartError) as error:
            self._server_pause = min(self._server_pause * 2, READY_SECONDS)
            self._console.warn("redis", f"{error}\n  Next try in {self._server_pause:g} s.")

    # --- stop ---------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        self._console.open()
        if any(child.is_running() for child in self._children):
            self._console.say(self._stopping())
        for child in self._children:
            child.ask_to_end()
            deadline = time.monotonic() + child.plan.grace
            while child.is_running() and time.monotonic() < deadline and self._signals < 2:
                time.sleep(TICK_SECONDS / 2)
            if child.is_running():
                self._console.warn(child.plan.name, "was ended by force")
            child.end_now()
        if self._server is not None:
            self._server.stop()
        self._console.say("Stopped")
