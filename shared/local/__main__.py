"""``python -m shared.local``: Redis, one worker and one web server on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from shared.local.child import Plan
from shared.local.console import Console
from shared.local.readiness import free_port, http_answers, live_runs, redis_listens, worker_is_seen
from shared.local.server import EmbeddedServer
from shared.local.supervisor import Supervisor
from shared.settings import EXIT_MISCONFIGURED, Settings, child_environment, describe, variable

ROOT = Path(__file__).parents[2]
DEFAULT_PORT = 8000
WEB_GRACE = 8.0
"""Seconds; gunicorn gives requests five, and then ends its workers."""
AFTER_DRAIN = 3.0
"""Seconds; a worker leaves for certain within two after its drain."""

PLACES = (("agents", "/agents"), ("dashboard", "/ops/"), ("API", "/openapi.json"))

TRY_IT = """\
  Try it:
  curl -N http://127.0.0.1:{port}/agents/echo -H 'Content-Type: application/json' \\
    -d '{{"threadId":"t1","runId":"'$(date +%s)'","messages":[{{"id":"m1","role":"user","content":"Hi"}}]}}'
"""


class CannotStartError(Exception):
    """The reason, as a sentence for the person at the terminal."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until stopped; the exit code is 0 after a stop that was asked for, 1 if the start failed."""
    parser = argparse.ArgumentParser(prog="python -m shared.local", description=__doc__)
    parser.add_argument(
        "--data", type=Path, default=ROOT / ".outlast", help="folder for the embedded Redis' data"
    )
    parser.add_argument(
        "--port", type=int, help="port of the web server (default: OUTLAST_PORT, PORT or 8000)"
    )
    options = parser.parse_args(arguments)
    console = Console(sys.stdout, colour=sys.stdout.isatty() and not variable("NO_COLOR"))
    try:
        with _only_one(options.data):
            return _serve(console, options.data, options.port)
    except CannotStartError as reason:
        print(reason, file=sys.stderr)
        return 1


def _serve(console: Console, data: Path, wanted_port: int | None) -> int:
    try:
        settings = Settings()
    except ValueError as error:
        raise CannotStartError(f"A setting does not fit: {error}") from None
    console.say("Starting Outlast")
    # A terminal that is closed tells its session's leader only, which may be make, and make tells nobody.
    on_terminal = sys.stdout.isatty()
    server = _server(console, settings, data)
    port = _port(console, wanted_port)
    environment = child_environment(
        OUTLAST_REDIS_URL=server.url if server else settings.redis_url,
        OUTLAST_AUTH=variable("OUTLAST_AUTH") or "none",
        OUTLAST_LOG_FORMAT=variable("OUTLAST_LOG_FORMAT") or "text",
        PYTHONUNBUFFERED="1",
    )
    worker = Plan(
        name="worker",
        command=[sys.executable, "-m", "celery", "-A", "worker", "worker", "--loglevel", "INFO"],
        environment=environment,
        folder=ROOT,
        grace=settings.drain_seconds + AFTER_DRAIN,
        ready=lambda: worker_is_seen(port),
        misconfigured=EXIT_MISCONFIGURED,
    )
    web = Plan(
        name="web",
        command=[sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py", "--bind", f"127.0.0.1:{port}"],
        environment=environment,
        folder=ROOT,
        grace=WEB_GRACE,
        ready=lambda: http_answers(port, "/health/live"),
    )
    return Supervisor(
        console,
        [worker, web],
        server,
        when_ready=lambda: _greet(console, port),
        wanted=lambda: not on_terminal or sys.stdout.isatty(),
        stopping=lambda: _stopping(live_runs(port), settings.drain_seconds),
    ).run()


def _stopping(runs: int | None, seconds: float) -> str:
    """What is said at the first Ctrl-C; ``runs`` is None where their number is not known."""
    if runs == 0:
        return "Stopping"
    who = "Runs" if runs is None else f"{runs} run{'s' if runs > 1 else ''}"
    return f"Stopping. {who} may go on for {seconds:g} s; Ctrl-C again ends at once"


def _greet(console: Console, port: int) -> None:
    console.say("\nOutlast is ready. Ctrl-C stops it.\n")
    for name, path in PLACES:
        if http_answers(port, path):
            console.say(f"  {name:<10} http://127.0.0.1:{port}{path}")
    console.say(f"  {'guide':<10} README.md and docs/\n")
    console.say(TRY_IT.format(port=port))


def _server(console: Console, settings: Settings, data: Path) -> EmbeddedServer | None:
    """The embedded server, unless the environment names a Redis; that one must be there already."""
    if not (variable("OUTLAST_REDIS_URL") or variable("REDIS_URL")):
        return EmbeddedServer(data)
    shown = describe(settings)["redis_url"]
    if not redis_listens(settings.redis_url):
        raise CannotStartError(
            f"Nothing listens at {shown}. Start that Redis, or unset OUTLAST_REDIS_URL and REDIS_URL "
            "to use the embedded one."
        )
    console.step("redis", f"given by the environment: {shown}")
    return None


def _port(console: Console, wanted: int | None) -> int:
    given = wanted or variable("OUTLAST_PORT") or variable("PORT") or DEFAULT_PORT
    try:
        first = int(given)
    except ValueError:
        raise CannotStartError(f"The port must be a number, not {given!r}.") from None
    port = free_port(first)
    if port is None:
        raise CannotStartError(
            f"Port {first} and the fifty after it are taken. Name another by OUTLAST_PORT."
        )
    if port != first:
        console.step("web", f"port {first} is taken by another program, using {port} instead")
    return port


@contextmanager
def _only_one(data: Path) -> Iterator[None]:
    """Two supervisors over one folder would double the worker and fight over the screen."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (data / "supervisor.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise CannotStartError(
                f"Outlast runs over {data}, as process {file.read().strip() or '?'}. Stop that one first."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


if __name__ == "__main__":
    sys.exit(main())
