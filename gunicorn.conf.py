"""gunicorn for Outlast: ``gunicorn`` at the project's root finds this file; elsewhere ``gunicorn -c FILE``.

Every stream is one greenlet, so one process holds some thousand of them. How many processes is left to
gunicorn: ``WEB_CONCURRENCY`` or one; the address is given by ``--bind`` or ``PORT``.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

wsgi_app = "web:create_app()"
worker_class = "gevent"
worker_connections = 10_000
# gevent must patch before redis is imported, so the application is loaded after the fork.
preload_app = False

timeout = 30
graceful_timeout = 5
keepalive = 5

# The control socket would lie at one fixed path for all gunicorns of a user.
control_socket_disable = True


def post_worker_init(worker: Any) -> None:
    """Start the sweep before the first request, and let TERM end the open streams at once.

    Their clients resume elsewhere instead of holding the worker.
    """
    from gevent import monkey, spawn

    def end(number: int, frame: FrameType | None) -> None:
        if monkey.is_module_patched("threading"):
            # The handler runs in gevent's event loop, where nothing may block; a greenlet may.
            spawn(_end_streams, worker)
        else:
            _end_streams(worker)
        worker.handle_exit(number, frame)

    worker.wsgi.extensions["outlast"].serving()
    signal.signal(signal.SIGTERM, end)
    signal.siginterrupt(signal.SIGTERM, False)


def worker_int(worker: Any) -> None:
    """The same for INT and QUIT."""
    _end_streams(worker)


def _end_streams(worker: Any) -> None:
    worker.wsgi.extensions["outlast"].close()
