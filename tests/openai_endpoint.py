"""A real HTTP server on the loopback that streams chat completions, well or badly on demand."""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

DONE = b"data: [DONE]\n\n"


def chunk(
    delta: dict[str, Any] | None = None, finish_reason: str | None = None, usage: dict[str, Any] | None = None
) -> bytes:
    """One event of the stream; without ``delta`` and ``finish_reason`` it has no choice."""
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "stub-1",
        "choices": [],
    }
    if delta is not None or finish_reason is not None:
        body["choices"] = [{"index": 0, "delta": delta or {}, "finish_reason": finish_reason}]
    if usage is not None:
        body["usage"] = usage
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def text(content: str) -> bytes:
    return chunk({"content": content})


def call(
    index: int | None, arguments: str | None = None, call_id: str | None = None, name: str | None = None
) -> bytes:
    """One fragment of one tool call, with only the members that are given."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    part: dict[str, Any] = {"function": function}
    if index is not None:
        part["index"] = index
    if call_id is not None:
        part |= {"id": call_id, "type": "function"}
    return chunk({"tool_calls": [part]})


def finish(reason: str = "stop") -> bytes:
    return chunk({}, finish_reason=reason)


USAGE = chunk(
    usage={
        "prompt_tokens": 11,
        "completion_tokens": 7,
        "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
)


@dataclass(frozen=True)
class Stall:
    """Says nothing more until the client goes away (or the endpoint is closed)."""


@dataclass(frozen=True)
class Drip:
    """Sends comments for ever, ``pause`` seconds apart, until the client goes away."""

    pause: float = 0.05


@dataclass(frozen=True)
class Reset:
    """Ends the connection with a TCP reset."""


@dataclass(frozen=True)
class Cut:
    """Closes the connection in the middle of the chunked body."""


Step = bytes | Stall | Drip | Reset | Cut


@dataclass(frozen=True)
class Answer:
    """What one request gets: a status and headers (none with status 0), then the steps."""

    steps: tuple[Step, ...]
    status: int = 200
    content_type: str = "text/event-stream"
    headers: tuple[tuple[str, str], ...] = ()


def streamed(*steps: Step) -> Answer:
    return Answer(steps)


def complete(*steps: Step) -> Answer:
    """An answer that ends as it should, with usage and the closing mark."""
    return Answer((chunk({"role": "assistant", "content": ""}), *steps, USAGE, DONE))


def failing(status: int, body: str, *headers: tuple[str, str]) -> Answer:
    return Answer((body.encode(),), status=status, content_type="application/json", headers=headers)


def silent(step: Step) -> Answer:
    """No status line at all: the fault comes before the first byte."""
    return Answer((step,), status=0)


@dataclass
class Seen:
    """One request as it arrived, and when its client closed the connection."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    client_gone: threading.Event = field(default_factory=threading.Event)
    gone_at: float | None = None


class Endpoint:
    """Answers its requests in the order of ``answers``; the last one is given again and again."""

    def __init__(self, answers: Iterable[Answer] = ()) -> None:
        self.answers: list[Answer] = list(answers)
        self.requests: list[Seen] = []
        self.connections = 0
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def connected(self) -> None:
        with self._lock:
            self.connections += 1

    def take(self, seen: Seen) -> Answer:
        with self._lock:
            self.requests.append(seen)
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves in mid-answer is what the tests are about."""


def _handler(endpoint: Endpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            endpoint.connected()
            super().setup()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
            """Standard error stays quiet."""

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            seen = Seen(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            answer = endpoint.take(seen)
            try:
                self._give(answer, seen)
            except OSError:
                _note_gone(seen)
                self.close_connection = True

        def _give(self, answer: Answer, seen: Seen) -> None:
            if answer.status:
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.content_type)
                self.send_header("Transfer-Encoding", "chunked")
                for name, value in answer.headers:
                    self.send_header(name, value)
                self.end_headers()
            for step in answer.steps:
                if isinstance(step, bytes):
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(step), step))
                else:
                    self._misbehave(step, seen)
                    self.close_connection = True
                    return
            self.wfile.write(b"0\r\n\r\n")

        def _misbehave(self, step: Stall | Drip | Reset | Cut, seen: Seen) -> None:
            if isinstance(step, Reset):
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                # Without dup'd file objects alive the close sends the reset at once.
                self.rfile.close()
                self.wfile.close()
                self.connection.close()
            elif isinstance(step, Cut):
                self.wfile.write(b"40\r\ndata: {")
            else:
                self._wait_for_leaving(step, seen)

        def _wait_for_leaving(self, step: Stall | Drip, seen: Seen) -> None:
            pause = step.pause if isinstance(step, Drip) else 0.05
            while not endpoint.closing.is_set():
                readable, _, _ = select.select([self.connection], [], [], pause)
                if readable and not self.connection.recv(1, socket.MSG_PEEK):
                    _note_gone(seen)
                    return
                if isinstance(step, Drip):
                    self.wfile.write(b"e\r\n: keep-alive\n\n\r\n")

    return Handler


def _note_gone(seen: Seen) -> None:
    seen.gone_at = time.monotonic()
    seen.client_gone.set()
