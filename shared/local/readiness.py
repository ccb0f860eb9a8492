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
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < http.client.BAD_REQUEST
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def worker_is_seen(port: int) -> bool:
    """Whether the web server is ready and does not complain that no worker shows a heartbeat."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", "/health/ready")
        answer = connection.getresponse()
        body = json.loads(answer.read())
        topics = [warning["topic"] for warning in body.get("warnings", [])]
        return answer.status == http.client.OK and "worker" not in topics
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError):
        return False
    finally:
        connection.close()


def live_runs(port: int) -> int | None:
    """How many runs workers have in their hands; ``None`` where that is not told."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", "/ops/api/workers", headers={"Accept": "application/json"})
        workers = json.loads(connection.getresponse().read())["workers"]
        return sum(int(worker["runs_total"]) for worker in workers)
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
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
