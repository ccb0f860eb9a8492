"""One round of each measure, of ours and of the yardsticks; figures in the unit that the name says."""

from __future__ import annotations

import re
import select
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks import bare_celery, client
from benchmarks.client import Connection
from benchmarks.installation import ROOT, Installation, await_true, cpu_seconds
from shared.store import keys
from shared.store.connection import connect

_STAMP = re.compile(rb'"delta":"(\d{9,})"')


# --- first event -------------------------------------------------------------------------------------------

RUNS = 60
PAUSE = 0.012


def first_event(port: int) -> float:
    """Milliseconds from POST to the first event that the agent made, p50."""
    connection, took = Connection(port), []
    for number in range(RUNS + 5):
        began = connection.send(client.run("burst", deltas=1).request)
        seen = connection.until(b"TEXT_MESSAGE_START")
        connection.until_end()
        if number >= 5:
            took.append((seen - began) * 1000)
        time.sleep(PAUSE)
    connection.close()
    return median(took)


def bare_task(at: Installation) -> float:
    """Milliseconds from before apply_async to the task's first line, p50."""
    bare_celery.app.conf.broker_url = at.bare_broker
    for _ in range(RUNS + 5):
        bare_celery.noop.apply_async((time.monotonic_ns(),))
        time.sleep(PAUSE)
    delays = _reported(at.folder)
    return median(delays[5:]) / 1e6


def _reported(folder: Path) -> list[int]:
    path = folder / "delays"
    bare_celery.report.apply_async((str(path),))
    await_true(path.exists)
    noted = [int(word) for word in path.read_text().split()]
    path.unlink()
    return noted


# --- emit to client ----------------------------------------------------------------------------------------


def emit_to_client(port: int, agent: str, pause: float, deltas: int) -> float:
    """Milliseconds from an agent's call to the arrival of its event, p50, at a fixed pause."""
    connection = Connection(port)
    connection.send(client.run(agent, deltas=deltas, pause=pause).request)
    connection.until_end()
    connection.close()
    took = [at - int(stamp) for at, data in connection.arrivals for stamp in _STAMP.findall(data)]
    if len(took) < deltas * 0.98:
        raise AssertionError(f"{len(took)} of {deltas} stamps found")
    return median(took) / 1e6


def hop(at: Installation, pause: float, count: int) -> float:
    """Milliseconds from PUBLISH to its subscriber in another process, p50, at the same pause."""
    reader = connect(at.url, timeout=30).pubsub()
    reader.subscribe("bare-hop")
    took: list[int] = []
    command = [sys.executable, "-m", "benchmarks.publisher", at.url, "bare-hop", str(count), str(pause)]
    with subprocess.Popen(command, cwd=ROOT) as publisher:
        while True:
            answer = reader.parse_response()
            now = time.monotonic_ns()
            if answer[0] == b"message":
                if answer[2] == b"end":
                    break
                took.append(now - int(answer[2]))
        publisher.wait()
    reader.close()
    return median(took) / 1e6


# --- much at once ------------------------------------------------------------------------------------------

DELTAS = 5000


def burst(port: int) -> float:
    """Events per second that one client gets of one run of 5,000 deltas, from POST to the last."""
    connection = Connection(port)
    began = connection.send(client.run("burst", deltas=DELTAS).request)
    ended = connection.until_end()
    connection.close()
    if client.events_in(connection.body) != DELTAS + 4:
        raise AssertionError(f"{client.events_in(connection.body)} events")
    return (DELTAS + 4) / (ended - began)


def throughput(port: int) -> float:
    """Runs per second, 50 at once, 20 deltas each."""
    requests = [client.run("burst", deltas=20).request for _ in range(400)]
    return len(requests) / client.load(port, requests, at_once=50, events_each=24)


CROWD, CROWD_DELTAS = 100, 200


def cpu_per_event(port: int, processes: list[psutil.Process]) -> float:
    """Microseconds of CPU per event in all given processes, 100 runs of 50 events/s at once."""
    requests = [client.run("paced", deltas=CROWD_DELTAS, pause=0.02).request for _ in range(CROWD)]
    before = sum(map(cpu_seconds, processes))
    client.load(port, requests, at_once=CROWD, events_each=CROWD_DELTAS + 4)
    used = sum(map(cpu_seconds, processes)) - before
    return used / (CROWD * (CROWD_DELTAS + 4)) * 1e6


# --- cancel and replay -------------------------------------------------------------------------------------


def cancel(at: Installation) -> tuple[float, float, float]:
    """Milliseconds from a cancel's POST, p50 each: to its answer, to the record, to the client's last event.

    Record and terminal event are one step in Redis, which publishes there and then: that is heard here.
    """
    stream, asking = Connection(at.port), Connection(at.port)
    reader = connect(at.url, timeout=30).pubsub()
    reader.psubscribe(keys.run_channel("*"))
    reader.parse_response()
    took: list[tuple[float, float, float]] = []
    for _ in range(30):
        run = client.run("waits")
        stream.send(run.request)
        stream.until(b'"waiting"')
        time.sleep(PAUSE)
        _drain(reader)
        began = asking.send(client.http("POST", f"{run.path}/cancel"))
        took.append(_heard(began, asking, reader, stream))
    for each in (stream, asking, reader):
        each.close()
    answered, recorded, seen = (median(column) * 1000 for column in zip(*took, strict=True))
    return answered, recorded, seen


def _heard(began: float, asking: Connection, reader: Any, stream: Connection) -> tuple[float, float, float]:
    channel = reader.connection._sock  # noqa: SLF001 - to wait for three sockets at once
    waiting = {asking.socket: 0, channel: 1, stream.socket: 2}
    took = [0.0, 0.0, 0.0]
    while waiting:
        for ready in select.select(list(waiting), [], [], 30)[0]:
            if ready is asking.socket:
                asking.receive()
                done = asking.answered
            elif ready is channel:
                done = b"RUN_FINISHED" in reader.parse_response()[3]
            else:
                done = bool(stream.receive()) and stream.body.endswith(client.END)
            if done:
                took[waiting.pop(ready)] = time.perf_counter() - began
    return took[0], took[1], took[2]


def _drain(reader: Any) -> None:
    while reader.connection.can_read(timeout=0):
        reader.parse_response()


def replay(at: Installation) -> float:
    """Milliseconds to read a finished run of 5,000 deltas again."""
    run = client.run("burst", deltas=DELTAS)
    connection = Connection(at.port)
    connection.send(run.request)
    connection.until_end()
    took = []
    for _ in range(5):
        began = connection.send(client.http("GET", f"{run.path}/events?after=0"))
        took.append((connection.until_end() - began) * 1000)
        if client.events_in(connection.body) != DELTAS + 4:
            raise AssertionError(f"{client.events_in(connection.body)} events")
    connection.close()
    return median(took)
