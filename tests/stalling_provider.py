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

HOST = "127.0.0.1"
DRIP_SECONDS = 0.5


class Fault(Enum):
    """What the server on a port does with a request."""

    SILENT = "accepts and never answers"
    STALL = "answers headers and one chunk, then nothing"
    STATUS_504 = "answers 504"
    STATUS_408 = "answers 408"
    RESET_BEFORE = "resets before the first byte"
    RESET_AFTER = "resets after the first chunk"
    CLOSE_BEFORE = "closes in order before the first byte"
    CLOSE_AFTER = "closes in order after the first chunk"
    DRIP = "sends a byte every half second, for ever"
    REFUSED = "nobody listens"
    FULL = "the queue of connections is full, so that connecting hangs"
    OPENAI = "streams a whole chat completion"
    OPENAI_STALL = "streams one chunk of a chat completion, then nothing"
    OPENAI_NO_DONE = "streams one chunk of a chat completion and closes in order, without its end"


def _chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "stalling",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_WORDS = ("Hello", " from", " the", " provider")


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

    def url(self, fault: Fault) -> str:
        """The address whose server has that fault."""
        return f"http://{HOST}:{self.port(fault)}"

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
                _read_request(connection)
                with self._lock:
                    self._hits[fault] += 1
                self._misbehave(connection, fault)
            except OSError:
                return

    def _misbehave(self, connection: socket.socket, fault: Fault) -> None:
        match fault:
            case Fault.SILENT:
                self._stopping.wait()
            case Fault.STALL:
                connection.sendall(_PLAIN + _http_chunk(b"first\n"))
                self._stopping.wait()
            case Fault.STATUS_504 | Fault.STATUS_408:
                _refuse(connection, fault)
            case Fault.RESET_BEFORE:
                _reset(connection)
            case Fault.RESET_AFTER:
                connection.sendall(_PLAIN + _http_chunk(b"first\n"))
                # The reader has the first chunk when it closes or asks for more; a reset would overtake it.
                self._stopping.wait(0.05)
                _reset(connection)
            case Fault.CLOSE_AFTER:
                connection.sendall(_PLAIN + _http_chunk(b"first\n"))
            case Fault.DRIP:
                connection.sendall(_PLAIN)
                while not self._stopping.wait(DRIP_SECONDS):
                    connection.sendall(_http_chunk(b"."))
            case Fault.OPENAI:
                pieces = [_chunk({"role": "assistant"})] + [_chunk({"content": word}) for word in _WORDS]
                pieces += [_chunk({}, "stop"), b"data: [DONE]\n\n"]
                connection.sendall(_STREAM + b"".join(map(_http_chunk, pieces)) + b"0\r\n\r\n")
            case Fault.OPENAI_STALL:
                connection.sendall(_STREAM + _http_chunk(_chunk({"role": "assistant", "content": "Hello"})))
                self._stopping.wait()
            case Fault.OPENAI_NO_DONE:
                whole = _http_chunk(_chunk({"role": "assistant", "content": "Hello"}))
                connection.sendall(_STREAM + whole + b"0\r\n\r\n")
            case Fault.CLOSE_BEFORE | Fault.REFUSED | Fault.FULL:
                return


def _read_request(connection: socket.socket) -> None:
    """Reads the whole request, so that a close is in order; an unread byte would make it a reset."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += _more(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    headers = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    length = int(headers.get(b"content-length", b"0"))
    while len(body) < length:
        body += _more(connection)


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise ConnectionError("the client left")
    return data


def _refuse(connection: socket.socket, fault: Fault) -> None:
    status = b"504 Gateway Timeout" if fault is Fault.STATUS_504 else b"408 Request Timeout"
    body = b'{"error":{"message":"upstream secret-detail"}}'
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % (status, len(body))
    connection.sendall(head + b"Connection: close\r\n\r\n" + body)


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
