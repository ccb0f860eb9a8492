"""Ask whether something listens or answers; never raises."""

from __future__ import annotations

import http.client
import json
import socket
from urllib.parse import unquote, urlsplit

SECONDS = 2.0
REDIS_PORT = 6379


def http_answers(port: int, path: str) -> bool:
    """Whether a GET on loopback is answered, and not by a refusal (a redirect to a sign-in page is none)."""
    answer = _get(port, path)
    return answer is not None and answer[0] < http.client.BAD_REQUEST


def worker_is_seen(port: int) -> bool:
    """Whether the web server is ready and does not complain that no worker shows a heartbeat."""
    status, body = _get(port, "/health/ready") or (0, b"")
    try:
        topics = [warning["topic"] for warning in json.loads(body).get("warnings", [])]
    except (ValueError, LookupError, TypeError, AttributeError):
        return False
    return status == http.client.OK and "worker" not in topics


def live_runs(port: int) -> int | None:
    """How many runs workers have in their hands; ``None`` where that is not told."""
    _, body = _get(port, "/ops/api/workers") or (0, b"")
    try:
        return sum(int(worker["runs_total"]) for worker in json.loads(body)["workers"])
    except (ValueError, LookupError, TypeError):
        return None


def _get(port: int, path: str) -> tuple[int, bytes] | None:
    """Status and body of a GET on loopback; ``None`` when nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def redis_listens(url: str) -> bool:
    """Whether something takes connections at a ``redis://``, ``rediss://`` or ``unix://`` address."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "unix":
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(SECONDS)
                client.connect(unquote(parts.path))
        else:
            address = (parts.hostname or "127.0.0.1", parts.port or REDIS_PORT)
            socket.create_connection(address, timeout=SECONDS).close()
    except (OSError, ValueError):
        return False
    return True


def free_port(first: int) -> int | None:
    """The first port from ``first`` on that nobody on loopback has; ``None`` if fifty in a row are taken."""
    for port in range(first, min(first + 50, 65536)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    return None
