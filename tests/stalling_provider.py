"""A local provider that fails on purpose: one port per fault, opened when it is first asked for."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Self

from tests.worker.providers.dialects import SECRET, Dialect, dialect_of

HOST = "127.0.0.1"
DRIP_SECONDS = 0.5


class Fault(Enum):
    """What the server on a port does with a request; its answers are in the dialect of the path."""

    SILENT = "accepts and never answers"
    STALL = "answers headers and the first words, then nothing"
    DEAF = "accepts and never reads"
    STATUS_408 = "answers 408 Request Timeout"
    STATUS_429 = "answers 429 Too Many Requests"
    STATUS_503 = "answers 503 Service Unavailable"
    STATUS_504 = "answers 504 Gateway Timeout"
    STATUS_524 = "answers 524 A Timeout Occurred"
    ERROR_EVENT = "answers the first words, then an error in the stream"
    RESET_BEFORE = "resets before the first byte"
    RESET_AFTER = "resets after the first words"
    CLOSE_BEFORE = "closes in order before the first byte"
    CLOSE_AFTER = "closes in order after the first words, in mid-body"
    NO_END = "answers the first words and ends the body in order, without the stream's own end"
    GARBAGE = "answers something that is neither HTTP nor TLS"
    DRIP = "sends a byte every half second, for ever"
    REFUSED = "nobody listens"
    FULL = "the queue of connections is full, so that connecting hangs"
    NONE = "answers as it should"


def _http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_LAST_CHUNK = b"0\r\n\r\n"
_BUFFER = 4096


class StallingProvider:
    """All faults at once; a context manager. ``hits`` counts requests, which is how often it was asked."""

    def __init__(self) -> None:
        self._ports: dict[Fault, int] = {}
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._hits: Counter[Fault] = Counter()
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def url(self, fault: Fault, scheme: str = "http") -> str:
        """The address whose server has that fault."""
        return f"{scheme}://{HOST}:{self.port(fault)}"

    def port(self, fault: Fault) -> int:
        with self._lock:
            if fault not in self._ports:
                self._ports[fault] = self._open(fault)
            return self._ports[fault]

    def hits(self, fault: Fault) -> int:
        """Requests that reached the server with that fault."""
        return self._hits[fault]

    def close(self) -> None:
        """Stops everything; connections that stall are closed."""
        self._stopping.set()
        for open_socket in self._sockets:
            # Wakes an accept that a mere close would leave blocked.
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()
        for thread in self._threads:
            thread.join(5)

    def _open(self, fault: Fault) -> int:
        listener = socket.socket()
        if fault is Fault.DEAF:
            # Accepted sockets inherit it, so that the client's side fills up soon.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        if fault is Fault.REFUSED:
            # Bound and not listening: refused, and nobody else gets the port meanwhile.
            self._sockets.append(listener)
            return port
        listener.listen(0 if fault is Fault.FULL else 64)
        self._sockets.append(listener)
        if fault is Fault.FULL:
            self._fill(port)
        else:
            self._start(self._serve, listener, fault)
        return port

    def _fill(self, port: int) -> None:
        for _ in range(4):
            waiting = socket.socket()
            waiting.setblocking(False)
            waiting.connect_ex((HOST, port))
            self._sockets.append(waiting)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, name="stalling-provider", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, listener: socket.socket, fault: Fault) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._start(self._answer, connection, fault)

    def _answer(self, connection: socket.socket, fault: Fault) -> None:
        with connection:
            connection.settimeout(5)
            try:
                if fault is Fault.DEAF:
                    self._stopping.wait()
                    return
                if fault is Fault.GARBAGE:
                    _more(connection)
                    connection.sendall(b"220 nobody speaks HTTP here\r\n\r\n")
                    return
                dialect = dialect_of(_read_request(connection))
                with self._lock:
                    self._hits[fault] += 1
                self._misbehave(connection, fault, dialect)
            except OSError:
                return

    def _misbehave(self, connection: socket.socket, fault: Fault, dialect: Dialect) -> None:
        begun = _head(dialect) + _http_chunk(dialect.first)
        match fault:
            case Fault.SILENT:
                self._stopping.wait()
            case Fault.STALL:
                connection.sendall(begun)
                self._stopping.wait()
            case Fault.RESET_BEFORE:
                _reset(connection)
            case Fault.RESET_AFTER:
                connection.sendall(begun)
                # The reader has the first words when it closes or asks for more; a reset would overtake them.
                self._stopping.wait(0.05)
                _reset(connection)
            case Fault.CLOSE_AFTER:
                connection.sendall(begun)
            case Fault.ERROR_EVENT:
                connection.sendall(begun + _http_chunk(dialect.failure) + _LAST_CHUNK)
            case Fault.NO_END:
                connection.sendall(begun + _LAST_CHUNK)
            case Fault.NONE:
                rest = b"".join(map(_http_chunk, filter(None, (*dialect.rest, dialect.end))))
                connection.sendall(begun + rest + _LAST_CHUNK)
            case Fault.DRIP:
                connection.sendall(_head(dialect))
                while not self._stopping.wait(DRIP_SECONDS):
                    connection.sendall(_http_chunk(b":\n"))
            case _ if fault.name.startswith("STATUS_"):
                _refuse(connection, fault)


def _head(dialect: Dialect) -> bytes:
    kind = dialect.content_type.encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % kind


def _read_request(connection: socket.socket) -> str:
    """Reads the whole request and returns its path; an unread byte would make a close a reset."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += _more(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    headers = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    length = int(headers.get(b"content-length", b"0"))
    while len(body) < length:
        body += _more(connection)
    return head.split(b" ", 2)[1].decode()


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise ConnectionError("the client left")
    return data


def _refuse(connection: socket.socket, fault: Fault) -> None:
    code, _, reason = fault.value.removeprefix("answers ").partition(" ")
    error = {"type": "api_error", "code": int(code), "message": f"timeout: {SECRET}", "status": reason}
    body = json.dumps({"type": "error", "error": error}).encode()
    head = f"HTTP/1.1 {code} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    connection.sendall(head.encode() + b"Connection: close\r\n\r\n" + body)


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
