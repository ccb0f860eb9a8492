"""A client that costs next to nothing: raw sockets, bodies kept as they come and looked at afterwards."""

from __future__ import annotations

import itertools
import json
import re
import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

END = b"\r\n0\r\n\r\n"
"""How a chunked body ends."""

RECEIVE = 256 * 1024

_LENGTH = re.compile(rb"(?i)content-length: (\d+)")
_numbers = itertools.count(1)
_session = time.time_ns() % 10**10


@dataclass(frozen=True)
class Run:
    """One run's ids and its request."""

    thread_id: str
    run_id: str
    request: bytes

    @property
    def path(self) -> str:
        return f"/threads/{self.thread_id}/runs/{self.run_id}"


def run(agent: str, **props: Any) -> Run:
    """A run with ids of its own; ``props`` become its forwardedProps."""
    number = f"{_session}-{next(_numbers)}"
    body = {
        "threadId": f"thread-{number}",
        "runId": f"run-{number}",
        "messages": [{"id": "u1", "role": "user", "content": "hello"}],
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": props,
    }
    request = http("POST", f"/agents/{agent}", json.dumps(body).encode())
    return Run(f"thread-{number}", f"run-{number}", request)


def http(method: str, path: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Accept: text/event-stream, application/json"]
    if body:
        lines += ["Content-Type: application/json"]
    if method == "POST":
        lines += [f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Connection:
    """One kept-alive connection; requests one after the other."""

    def __init__(self, port: int, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.body = bytearray()
        self.arrivals: list[tuple[int, bytes]] = []

    def send(self, request: bytes) -> float:
        """Sends a request; the time just before."""
        self.body = bytearray()
        self.arrivals = []
        now = time.perf_counter()
        self.socket.sendall(request)
        return now

    def receive(self) -> bytes:
        data = self.socket.recv(RECEIVE)
        self.arrivals.append((time.monotonic_ns(), data))
        if not data:
            raise ConnectionError(f"closed after {bytes(self.body[-300:])!r}")
        self.body += data
        return data

    def until(self, marker: bytes) -> float:
        """Reads until the marker is there; the time when it was."""
        seen = 0
        while self.body.find(marker, seen) < 0:
            seen = max(0, len(self.body) - len(marker))
            self.receive()
        return time.perf_counter()

    def until_end(self) -> float:
        """Reads the rest of a chunked body; the time of its end."""
        while not self.body.endswith(END):
            self.receive()
        return time.perf_counter()

    @property
    def answered(self) -> bool:
        """Whether an answer with a Content-Length is there as a whole."""
        head, ended, rest = bytes(self.body).partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        return bool(ended and length) and len(rest) >= int(length[1] if length else 0)

    def close(self) -> None:
        self.socket.close()


def events_in(body: bytes | bytearray) -> int:
    """How many events a chunked answer carries."""
    _, _, chunked = bytes(body).partition(b"\r\n\r\n")
    return b"".join(_chunks(chunked)).count(b'data: {"type":')


def _chunks(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        end = data.index(b"\r\n", at)
        size = int(data[at:end], 16)
        yield data[end + 2 : end + 2 + size]
        at = end + 2 + size + 2


@dataclass
class _Lane:
    connection: Connection
    tail: bytes = b""
    body: list[bytes] = field(default_factory=list)


def load(port: int, requests: list[bytes], at_once: int, events_each: int) -> float:
    """Sends all requests, so many at once, each stream read to its end; seconds in all.

    Raises AssertionError when a stream lacks events.
    """
    queue = iter(requests)
    lanes = {}
    poll = select.epoll()
    for _ in range(at_once):
        lane = _Lane(Connection(port))
        lanes[lane.connection.socket.fileno()] = lane
        poll.register(lane.connection.socket.fileno(), select.EPOLLIN)
    bodies: list[bytes] = []
    began = time.perf_counter()
    for lane, request in zip(lanes.values(), queue, strict=False):
        lane.connection.socket.sendall(request)
    left = len(requests)
    while left:
        for number, _ in poll.poll(60):
            lane = lanes[number]
            data = lane.connection.socket.recv(RECEIVE)
            if not data:
                raise ConnectionError("closed in mid-stream")
            lane.body.append(data)
            lane.tail = (lane.tail + data)[-len(END) :]
            if lane.tail == END:
                bodies.append(b"".join(lane.body))
                lane.body, lane.tail = [], b""
                left -= 1
                request = next(queue, None)
                if request is not None:
                    lane.connection.socket.sendall(request)
    took = time.perf_counter() - began
    for lane in lanes.values():
        lane.connection.close()
    poll.close()
    for body in bodies:
        if events_in(body) != events_each:
            raise AssertionError(f"{events_in(body)} events instead of {events_each}: {body[:200]!r}")
    return took
