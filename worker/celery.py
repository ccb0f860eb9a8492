"""The Celery side of a worker: the app, its one task, the signals of its life (`celery -A worker worker`)."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from billiard.exceptions import WorkerLostError
from celery import Celery, signals
from celery.apps.worker import _reload_current_worker  # type: ignore[attr-defined] # the stubs leave private names out
from celery.worker import state

_ROOT = str(Path(__file__).resolve().parent.parent)
if _ROOT not in sys.path:
    # Celery has the working folder on the path only while it loads the app; late imports need it longer.
    sys.path.insert(0, _ROOT)

from shared import logs, tracing  # noqa: E402
from shared.queue import TASK, make_app  # noqa: E402
from shared.settings import EXIT_MISCONFIGURED, load  # noqa: E402
from worker import process  # noqa: E402
from worker.agents.registry import RegistryError  # noqa: E402
from worker.driver import Driver  # noqa: E402
from worker.mainstay import Mainstay  # noqa: E402

CONCURRENCY = 64
"""Runs at once in one threads worker: they mostly wait for providers."""

CHILD_CHECK_SECONDS = 0.5
"""How often the parent looks after its pool's children: the run of a dead one is recorded within 5 s.

Celery itself looks every 5 s and then waits 10 s more for a result that may be under way.
"""

LAST_SPANS_SECONDS = 0.2
"""What a worker that has to exit gives a collector of traces."""

POOLS = {
    "threads": "threads",
    "thread": "threads",
    "prefork": "prefork",
    "processes": "prefork",
    "solo": "solo",
}

log = logs.get_logger(__name__)


def pool_asked_for(arguments: Sequence[str]) -> str | None:
    """The pool that the command line names, since Celery does not tell its default from ``-P prefork``."""
    words = list(arguments)
    for position, word in enumerate(words):
        if word in {"-P", "--pool"}:
            return words[position + 1] if position + 1 < len(words) else None
        if word.startswith("--pool="):
            return word.partition("=")[2]
        if word.startswith("-P") and len(word) > 2:
            return word[2:].removeprefix("=")
    return None


def _make_app() -> Celery:
    pool = pool_asked_for(sys.argv) or "threads"
    made = make_app(load())
    made.conf.update(
        worker_pool=POOLS.get(pool, "threads"),
        worker_concurrency=CONCURRENCY if POOLS.get(pool) == "threads" else os.cpu_count() or 1,
        worker_lost_wait=CHILD_CHECK_SECONDS,
        worker_enable_remote_control=False,
        worker_proc_alive_timeout=30.0,
    )
    return made


app = _make_app()
_mainstay: list[Mainstay] = []


@app.task(name=TASK, ignore_result=True)
def execute_run(key: str) -> None:
    """Takes the run to its ending; the message is only a hint, so one too many is dropped."""
    Driver(process.current()).execute(key)


def _pool_name(pool: Any) -> str:
    name = pool if isinstance(pool, str) else str(pool.__module__).rpartition(".")[2]
    return POOLS.get(name, name)


# --- the main process ---------------------------------------------------------------------------------------


@signals.celeryd_init.connect
def _refuse_green_pools(options: dict[str, Any], **_: Any) -> None:
    if _pool_name(options.get("pool") or app.conf.worker_pool) in {"gevent", "eventlet"}:
        raise SystemExit(
            "Outlast's worker does not run in Celery's gevent or eventlet pool, because asyncio agents do "
            "not live there. Leave -P out for threads, or use -P prefork or -P solo."
        )


@signals.setup_logging.connect
def _configure_logs(**_: Any) -> None:
    settings = load()
    logs.configure(settings.log_level, settings.log_format)
    root = logging.getLogger()
    root.handlers[:] = [_Structured()]
    root.setLevel(logging.WARNING)


class _Structured(logging.Handler):
    """Writes what libraries log as lines like ours."""

    def emit(self, record: logging.LogRecord) -> None:
        """One line; a record that does not format is dropped rather than raised."""
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - a library's bad format string must not fail a run
            text = str(record.msg)
        logs.get_logger(record.name).log(
            record.levelno, "library.logged", text=text, exc_info=record.exc_info
        )


@signals.worker_init.connect
def _before_the_pool(sender: Any, **_: Any) -> None:
    # Nobody reads these; without them a worker starts faster and sends nothing while idle.
    sender.options.update(without_gossip=True, without_mingle=True, without_heartbeat=True)
    settings = load()
    pool = _pool_name(sender.pool_cls)
    try:
        agents = process.agents(forks=pool == "prefork")
    except RegistryError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EXIT_MISCONFIGURED) from None
    tracing.serve_as("outlast-worker")
    slots = 1 if pool == "solo" else sender.concurrency
    _mainstay.append(Mainstay(settings, agents, pool=pool, slots=slots))


@signals.worker_ready.connect
def _ready(sender: Any, **_: Any) -> None:
    mainstay = _mainstay[0]
    if mainstay.forks:
        sender.hub.call_repeatedly(CHILD_CHECK_SECONDS, sender.pool.maintain_pool)
    else:
        process.current()
    # Celery's cold shutdown cancels tasks before it tells anybody; runs are stopped and recorded instead.
    sender.cancel_active_requests = partial(mainstay.drain, cold=True, last_resort=_last_resort)
    mainstay.start(_CeleryHands(sender))


class _CeleryHands:
    """Pool and consumer of the running Celery worker; what changes them happens in its own thread."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def busy(self) -> int:
        return len(state.active_requests)

    def take_runs(self, wanted: bool) -> None:
        self._consumer.call_soon(self._take_runs, wanted)

    def _take_runs(self, wanted: bool) -> None:
        taking, queue = self._consumer.task_consumer, app.conf.task_default_queue
        if taking is None or taking.consuming_from(queue) == wanted:
            return
        if wanted:
            taking.add_queue(app.amqp.queues[queue])
            taking.consume()
        else:
            taking.cancel_by_queue(queue)

    def kill_child(self, key: str, pid: int) -> None:
        self._consumer.call_soon(self._kill_child, key, pid)

    @staticmethod
    def _kill_child(key: str, pid: int) -> None:
        # Here no result is handled and no job handed out meanwhile: what is active is what the child has.
        if any(request.id == key and request.worker_pid == pid for request in state.active_requests):
            log.warning("worker.child_killed", run=key, pid=pid)
            os.kill(pid, signal.SIGKILL)

    def kill_children(self) -> None:
        _kill_children()

    def stop(self, code: int) -> None:
        consumer_state: Any = state  # typed as the None that the flag starts with
        consumer_state.should_stop = code


@signals.worker_shutting_down.connect
def _told_to_stop(how: str, **_: Any) -> None:
    # A worker told to start anew and then to stop is to stop; Celery would start it anew when it exits.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    atexit.unregister(_reload_current_worker)
    if _mainstay:
        _mainstay[0].stay_down()
        _mainstay[0].drain(cold=how == "Cold", last_resort=_last_resort)


@signals.worker_shutdown.connect
def _stopped(**_: Any) -> None:
    if _mainstay:
        _mainstay[0].leave()
    tracing.shutdown()


@signals.task_failure.connect
def _child_may_have_died(exception: BaseException, task_id: str, **_: Any) -> None:
    if isinstance(exception, WorkerLostError) and _mainstay:
        threading.Thread(
            target=_mainstay[0].child_died, args=(task_id,), name="outlast-child-died", daemon=True
        ).start()


def _last_resort() -> None:
    tracing.shutdown(LAST_SPANS_SECONDS)
    _kill_children()


def _kill_children() -> None:
    from billiard import active_children

    for child in active_children():
        if child.pid:
            os.kill(child.pid, signal.SIGKILL)


# --- pool children ------------------------------------------------------------------------------------------


@signals.worker_process_init.connect
def _child_started(**_: Any) -> None:
    if not _mainstay or os.getpid() == _mainstay[0].pid:
        return  # the solo pool announces itself in the main process
    # A TERM to the whole group is the parent's business: it tells its children when to stop.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _mainstay[0].in_child()


@signals.worker_process_shutdown.connect
def _child_stopped(**_: Any) -> None:
    found = process.started()
    if found is not None:
        found.close()
    tracing.shutdown()
