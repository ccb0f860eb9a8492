"""Memory of the web process: many idle streams, and readers that hardly read. See benchmarks/README.md.

Run: python -m benchmarks.streams --plain-python PATH
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import threading
import time
from pathlib import Path

from benchmarks import client
from benchmarks.client import Connection
from benchmarks.installation import Installation, await_true, free_port, listens, unique_memory

KIB, MIB = 1024, 2**20
SLOW_READERS, FLOOD = 20, 50_000


def idle(at: Installation, count: int) -> float:
    """KiB of the web process per open stream of a run that says nothing."""
    _open(at.port, [client.run("waits").request for _ in range(20)]).clear()
    time.sleep(3)
    before = unique_memory(at.web)
    streams = _open(at.port, [client.run("waits").request for _ in range(count)])
    used = (unique_memory(at.web) - before) / KIB / count
    _close(streams)
    return used


def idle_yardstick(at: Installation, plain_python: Path, count: int) -> float:
    """The same of the asyncio hub."""
    port = free_port()
    server = at.start("hub", [str(plain_python), "-m", "benchmarks.asyncio_hub", at.url, str(port)])
    await_true(lambda: listens(port))
    _close(_open(port, [client.http("GET", f"/events/warm-{number}") for number in range(20)]))
    before = unique_memory(server)
    streams = _open(port, [client.http("GET", f"/events/run-{number}") for number in range(count)])
    used = (unique_memory(server) - before) / KIB / count
    _close(streams)
    return used


def _open(port: int, requests: list[bytes]) -> list[Connection]:
    streams = []
    for request in requests:
        stream = Connection(port)
        stream.send(request)
        stream.until(b"\r\n\r\n")
        streams.append(stream)
    time.sleep(2)
    return streams


def _close(streams: list[Connection]) -> None:
    for stream in streams:
        stream.close()


def slow_readers(at: Installation) -> float:
    """MiB by which the web process grows at most while 20 readers at 1 KB/s are behind 50,000 events."""
    run, healthy, stop = client.run("burst", deltas=FLOOD), Connection(at.port), threading.Event()
    healthy.send(client.run("burst", deltas=5000).request)
    healthy.until_end()
    most = before = unique_memory(at.web)
    healthy.send(run.request)
    healthy.until(b"RUN_STARTED")
    slow = [Connection(at.port, receive_buffer=4096) for _ in range(SLOW_READERS)]
    for reader in slow:
        reader.send(client.http("GET", f"{run.path}/events?after=0"))
    sipping = threading.Thread(target=_sip, args=(slow, stop))
    sipping.start()
    reading = threading.Thread(target=healthy.until_end)
    reading.start()
    until = time.monotonic() + 8
    while time.monotonic() < until:
        most = max(most, unique_memory(at.web))
        time.sleep(0.1)
    stop.set()
    sipping.join()
    reading.join()
    _close([*slow, healthy])
    if client.events_in(healthy.body) != FLOOD + 4:
        raise AssertionError(f"{client.events_in(healthy.body)} events")
    return (most - before) / MIB


def _sip(readers: list[Connection], stop: threading.Event) -> None:
    while not stop.is_set():
        for reader in readers:
            reader.socket.recv(1024)
        stop.wait(1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streams")
    parser.add_argument("--plain-python", type=Path, required=True)
    parser.add_argument("--streams", type=int, default=4500)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    folder, python = Path(tempfile.mkdtemp(prefix="outlast-bench-")), options.plain_python.absolute()
    at = Installation(folder, python, OUTLAST_MAX_ACTIVE_RUNS_PER_ACTOR="1000000")
    try:
        print(f"20 readers at 1 KB/s, 50,000 events: {slow_readers(at):+.1f} MiB at most")
        other = idle_yardstick(at, python, options.streams)
        ours = idle(at, options.streams)
        each = f"{ours:.1f} KiB each; asyncio hub {other:.1f}; {ours / other:.2f} x"
        print(f"{options.streams} idle streams: {each}")
    finally:
        at.close()


if __name__ == "__main__":
    main()
