"""Readers: where they start, how slow they may be, and how they end; also under real servers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.protocol import sse
from shared.settings import Settings, child_environment
from shared.store import keys
from shared.store.store import Store
from tests.web.producer import Producer
from web.feed import RING_BYTES, Feed, Waiter, Want
from web.hub import Hub
from web.reader import Reader, hang_up_of

ROOT = Path(__file__).parents[2]
SERVERS = {
    "gunicorn-gevent": [
        "-m",
        "gunicorn",
        "-k",
        "gevent",
        "-c",
        "/dev/null",
        "-b",
        "127.0.0.1:{port}",
        "web:create_app()",
    ],
    "flask-run": ["-m", "flask", "--app", "web", "run", "--port", "{port}"],
}


@pytest.fixture
def hub(store: Store, settings: Settings) -> Iterator[Hub]:
    made = Hub(store, settings)
    yield made
    made.close()


def _frames(pieces: Iterator[bytes] | Reader) -> bytes:
    parts = b"".join(pieces).split(b"\n\n")
    return b"".join(part + b"\n\n" for part in parts if part and not part.startswith(b":"))


@pytest.fixture
def ended(store: Store) -> Producer:
    run = Producer(store).start()
    for n in range(40):
        run.say(f"delta {n}")
    run.finish()
    return run


@pytest.mark.parametrize("seen", [0, 1, 20, 41, 42])
def test_a_cursor_gets_exactly_what_follows_it(hub: Hub, ended: Producer, seen: int) -> None:
    assert ended.last == 42
    assert _frames(hub.open(ended.key, seen)) == ended.log(seen)


@pytest.mark.parametrize("seen", [0, 1, 5, 10])
def test_a_cursor_into_a_running_run_gets_what_follows_it(store: Store, hub: Hub, seen: int) -> None:
    run = Producer(store).start()
    run.say(*[f"delta {n}" for n in range(9)])
    reader = hub.open(run.key, seen)
    other = hub.open(run.key, seen)
    read: list[bytes] = []
    thread = threading.Thread(target=lambda: read.append(_frames(reader)))
    thread.start()
    run.say("more")
    run.finish()
    thread.join(10)
    assert read == [run.log(seen)]
    assert _frames(other) == run.log(seen)


def test_a_cursor_ahead_of_an_ended_run_gets_its_terminal_event(hub: Hub, ended: Producer) -> None:
    assert _frames(hub.open(ended.key, 100)) == ended.log(41)


def test_a_message_is_entered_in_its_middle() -> None:
    feed = Feed("b0")
    frames = [sse.frame(n, b'{"text":"id: %d"}' % (n + 1)) for n in range(1, 6)]
    feed.publish(b"1 5\n" + b"".join(frames))
    assert feed.take(2, Waiter()) == (b"".join(frames[2:]), 5)


def test_a_hole_in_the_messages_is_filled_from_the_log() -> None:
    feed = Feed("b0")
    feed.publish(b"1 1\n" + sse.frame(1, b'{"n":1}'))
    feed.publish(b"3 1\n" + sse.frame(3, b'{"n":3}'))
    feed.publish(b"1 1\n" + sse.frame(1, b'{"n":1}'))
    waiter = Waiter()
    assert feed.take(1, waiter) is Want.LOG
    assert feed.take(2, waiter) == (sse.frame(3, b'{"n":3}'), 3)


def test_a_reader_that_does_not_read_costs_one_ring_and_loses_nothing(
    store: Store, hub: Hub, eventually: Callable[..., Any]
) -> None:
    run = Producer(store).start()
    readers = [hub.open(run.key) for _ in range(20)]
    for reader in readers:
        next(reader)
        next(reader)
    for _ in range(60):
        run.say(*["x" * 100 for _ in range(400)])
    run.finish()
    eventually(lambda: hub.stats()["messages"] == 61)
    assert store.client.memory_usage(keys.log(run.key)) > 3 * RING_BYTES
    assert hub.stats()["ring_bytes"] <= RING_BYTES
    for reader in readers[:3]:
        assert _frames(reader) == run.log(1)
    for reader in readers:
        reader.close()
    assert hub.stats()["followed_runs"] == 0


def test_a_stream_whose_server_is_stuck_is_dropped_and_hung_up(
    store: Store, settings: Settings, eventually: Callable[..., Any]
) -> None:
    hub = Hub(store, settings.model_copy(update={"reader_timeout_seconds": 0.3}))
    run = Producer(store).start()
    cut = threading.Event()
    reader = hub.open(run.key, hang_up=cut.set)
    next(reader)
    eventually(cut.is_set)
    assert hub.stats()["open_streams"] == 0
    assert hub.stats()["dropped"] == 1
    assert list(reader) == []
    hub.close()


def test_a_waiting_reader_is_not_taken_for_a_stuck_one(
    store: Store, settings: Settings, eventually: Callable[..., Any]
) -> None:
    hub = Hub(store, settings.model_copy(update={"reader_timeout_seconds": 0.3, "heartbeat_seconds": 1.5}))
    run = Producer(store).start()
    read: list[bytes] = []
    thread = threading.Thread(target=lambda: read.append(_frames(hub.open(run.key))))
    started = time.monotonic()
    thread.start()
    eventually(lambda: time.monotonic() - started > 1.2)
    assert hub.stats()["open_streams"] == 1
    run.finish()
    thread.join(5)
    assert read == [run.log()]
    hub.close()


def test_a_connection_is_cut_where_the_server_hands_out_its_socket() -> None:
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        hang_up = hang_up_of({"gunicorn.socket": ours})
        assert hang_up is not None
        hang_up()
        assert theirs.recv(1) == b""
        hang_up()
    assert hang_up_of({}) is None


def test_the_plain_socket_inside_a_servers_own_is_cut() -> None:
    class Wrapper:
        def __init__(self, inside: socket.socket) -> None:
            self._sock = inside

        def shutdown(self, how: int) -> None:
            raise AssertionError("the wrapper fails whoever writes to it")

    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        hang_up = hang_up_of({"gunicorn.socket": Wrapper(ours)})
        assert hang_up is not None
        hang_up()
        assert theirs.recv(1) == b""


def test_little_waits_in_the_kernel_for_a_client_that_reads_slowly() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server, closing(socket.socket()) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        with closing(accepted):
            hang_up_of({"werkzeug.socket": accepted})
            accepted.settimeout(0.3)
            kept = 0
            with suppress(TimeoutError):
                while True:
                    kept += accepted.send(b"x" * 4096)
            assert kept <= 160 * 1024


# --- real servers -----------------------------------------------------------------------------------


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _serving(kind: str, url: str, wait: Callable[..., Any], **variables: str) -> Iterator[str]:
    port = _free_port()
    words = [word.format(port=port) for word in SERVERS[kind]]
    environment = child_environment(
        OUTLAST_REDIS_URL=url,
        OUTLAST_AUTH="none",
        OUTLAST_HEARTBEAT_SECONDS="0.5",
        OUTLAST_LOG_LEVEL="error",
        **variables,
    )
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        wait(lambda: _is_live(address), seconds=30, pause=0.1)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()


def _is_live(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health/live").status_code == 200
    except httpx.HTTPError:
        return False


def _watch(address: str, key: str, read: list[bytes]) -> None:
    with httpx.stream(
        "GET", f"{address}/runs/{key}/events", headers={"Accept": "text/event-stream"}, timeout=60
    ) as answer:
        assert answer.status_code == 200
        read.append(_frames(answer.iter_bytes()))


@pytest.fixture(params=SERVERS)
def server(
    request: pytest.FixtureRequest, redis_server: Any, eventually: Callable[..., Any]
) -> Iterator[str]:
    with _serving(request.param, redis_server.url, eventually) as address:
        yield address


def test_a_real_server_streams_a_fast_run_to_everybody_who_joins(store: Store, server: str) -> None:
    run = Producer(store).start()
    read: list[bytes] = []
    watchers = [threading.Thread(target=_watch, args=(server, run.key, read)) for _ in range(12)]
    for number, watcher in enumerate(watchers):
        watcher.start()
        for n in range(0, 160, 4):
            run.say(*[f"delta {number} {n + k}" for k in range(4)])
    health = httpx.get(f"{server}/health/live", timeout=2)
    assert health.status_code == 200
    assert len([client for client in store.client.client_list() if "P" in client["flags"]]) == 1
    run.finish()
    for watcher in watchers:
        watcher.join(30)
    assert read == [run.log()] * 12


def test_a_real_server_cuts_a_client_that_takes_nothing(
    store: Store, redis_server: Any, eventually: Callable[..., Any]
) -> None:
    run = Producer(store).start()
    for _ in range(8):
        run.say(*["x" * 1000 for _ in range(1000)])
    variables = {"OUTLAST_READER_TIMEOUT_SECONDS": "1"}
    with _serving("gunicorn-gevent", redis_server.url, eventually, **variables) as address:
        host, port = address.removeprefix("http://").split(":")
        with closing(socket.socket()) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((host, int(port)))
            path = f"/runs/{run.key}/events"
            client.sendall(
                f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n".encode()
            )
            eventually(lambda: store.client.pubsub_channels("outlast:run:*"))
            eventually(lambda: not store.client.pubsub_channels("outlast:run:*"), seconds=10)
            client.settimeout(10)
            taken = 0
            while part := client.recv(65536):
                taken += len(part)
            assert taken < 8_000_000
