"""A strict SSE reader over a plain HTTP connection, in a thread of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.conftest import wait_for

Event = dict[str, Any]

TERMINAL = {"RUN_FINISHED", "RUN_ERROR"}


class Refused(Exception):
    """The server answered with something else than a stream."""

    def __init__(self, status: int, body: dict[str, Any], headers: dict[str, str]) -> None:
        super().__init__(f"{status} {body}")
        self.status = status
        self.body = body
        self.headers = headers


class Stream:
    """One open stream: every event with its id as it came, and how the body ended."""

    def __init__(
        self, port: int, method: str, path: str, *, body: object = None, headers: dict[str, str] | None = None
    ) -> None:
        self.items: list[tuple[int | None, Event]] = []
        self.arrived: list[float] = []
        self.comments = 0
        self.ended = threading.Event()
        self.cut = False
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        sent = {"Accept": "text/event-stream", **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/json"
        try:
            self.connection.request(
                method, path, json.dumps(body).encode() if body is not None else None, sent
            )
            self.response = self.connection.getresponse()
            self.headers = {name.lower(): value for name, value in self.response.getheaders()}
            self._refuse_other_answers()
        except BaseException:
            self.connection.close()
            raise
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _refuse_other_answers(self) -> None:
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            text = self.response.read()
            raise Refused(self.response.status, json.loads(text) if text else {}, self.headers)

    # --- reading ----------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            self._frames()
        except (http.client.HTTPException, OSError, ValueError, AttributeError):
            self.cut = True
        finally:
            self.response.close()
            self.connection.close()
            self.ended.set()

    def _frames(self) -> None:
        seq: int | None = None
        data: bytes | None = None
        while line := self.response.readline():
            assert line.endswith(b"\n"), line
            assert not line.endswith(b"\r\n"), line
            text = line[:-1]
            if not text:
                if data is not None:
                    self.arrived.append(time.monotonic())
                    self.items.append((seq, json.loads(data)))
                seq = data = None
            elif text.startswith(b":"):
                self.comments += 1
            elif text.startswith(b"id: "):
                seq = int(text[4:])
            elif text.startswith(b"data: "):
                assert data is None, "one data line per event"
                data = text[6:]
            else:
                raise AssertionError(text)

    # --- what came --------------------------------------------------------------------------------------

    @property
    def events(self) -> list[Event]:
        return [event for _, event in list(self.items)]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def seqs(self) -> list[int | None]:
        return [seq for seq, _ in list(self.items)]

    @property
    def deltas(self) -> list[str]:
        return [event["delta"] for event in self.events if event["type"] == "TEXT_MESSAGE_CONTENT"]

    @property
    def text(self) -> str:
        return "".join(self.deltas)

    def until(self, condition: Callable[[Stream], object], seconds: float = 10.0) -> Stream:
        """Waits until ``condition`` holds for this stream."""

        def holds() -> bool:
            return bool(condition(self))

        try:
            wait_for(holds, seconds)
        except AssertionError:
            raise AssertionError(
                f"not within {seconds} s; so far {self.types[-12:]}, ended {self.ended.is_set()}"
            ) from None
        return self

    def until_type(self, name: str, seconds: float = 10.0) -> Stream:
        return self.until(lambda stream: name in stream.types, seconds)

    def finish(self, seconds: float = 15.0) -> Event:
        """Waits for the end of the body; gives the terminal event."""
        if not self.ended.wait(seconds):
            raise AssertionError(f"open after {seconds} s; so far {self.types[-12:]}")
        events = self.events
        assert events, "an empty stream"
        assert events[-1]["type"] in TERMINAL, (
            f"ended without a terminal event: {self.types[-12:]}, cut {self.cut}"
        )
        return events[-1]

    def close(self) -> None:
        """Leaves; the reading thread is gone afterwards."""
        sock = self.connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        elif not self.ended.is_set() and self.response.fp is not None:
            self._shut_file(self.response.fp)
        self.thread.join(10)

    @staticmethod
    def _shut_file(file: Any) -> None:
        with contextlib.suppress(OSError, AttributeError):
            file.raw._sock.shutdown(socket.SHUT_RDWR)


def post_and_leave(
    port: int, path: str, body: object, *, after: bytes, reset: bool, headers: dict[str, str]
) -> None:
    """Posts, reads until ``after`` came, and is gone: by FIN, or by RST if ``reset``."""
    payload = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Content-Length: {len(payload)}"]
    lines += ["Content-Type: application/json", "Accept: text/event-stream"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall("\r\n".join([*lines, "", ""]).encode() + payload)
        came = b""
        while after not in came:
            chunk = sock.recv(65536)
            assert chunk, came
            came += chunk
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
