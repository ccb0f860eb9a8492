"""Field reports about data: whatever is said, every line is strict JSON and the run ends."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from tests.journeys.invariants import check_invariants
from tests.journeys.stack import Stack


@pytest.mark.parametrize("where", ["state", "patch", "result", "custom"])
@pytest.mark.parametrize(
    "kind",
    [
        "not a number",
        "infinity",
        "5000 digits",
        "half a character",
        "half a character as a name",
        "bytes",
        "an object",
        "in a circle",
        "100000 levels",
    ],
)
def test_a_value_that_json_cannot_hold_fails_its_run_and_nothing_else(field: Stack, kind: str, where: str):
    run = field.submit("shows", kind=kind, where=where)
    terminal = run.live.finish()
    assert (terminal["type"], terminal["code"]) == ("RUN_ERROR", "SERIALIZATION")
    assert check_invariants(field, run) == terminal


@pytest.mark.parametrize("where", ["state", "patch", "custom"])
def test_a_number_that_browsers_cannot_hold_fails_its_run(field: Stack, where: str):
    run = field.submit("shows", kind="400 digits", where=where)
    assert run.live.finish()["code"] == "SERIALIZATION"
    check_invariants(field, run)


@pytest.mark.parametrize("where", ["state", "patch", "result", "custom"])
@pytest.mark.parametrize("kind", ["120 levels", "20 digits", "line breaks"])
def test_an_unusual_value_arrives_and_is_replayed(field: Stack, kind: str, where: str):
    run = field.submit("shows", kind=kind, where=where)
    assert run.live.finish()["outcome"] == {"type": "success"}
    check_invariants(field, run)


@pytest.mark.parametrize(
    ("where", "type_", "member", "text"),
    [
        ("delta", "TEXT_MESSAGE_CONTENT", "delta", "a\ufffdb"),
        ("error", "RUN_ERROR", "message", "agent error: a\ufffdb"),
    ],
)
def test_half_a_character_in_a_text_is_replaced(field: Stack, where: str, type_: str, member: str, text: str):
    run = field.submit("shows", kind="half a character", where=where)
    run.live.finish()
    assert [event[member] for event in run.live.events if event["type"] == type_] == [text]
    check_invariants(field, run)


def test_an_event_that_nobody_could_read_is_not_written(field: Stack):
    run = field.submit("assigns")
    assert run.live.finish()["code"] == "SERIALIZATION"
    check_invariants(field, run)


@pytest.mark.parametrize("levels", [100, 255, 1000, 100_000])
def test_a_state_nested_beyond_the_limit_is_refused(field: Stack, levels: int):
    assert _posted(field, state=b"[" * levels + b"]" * levels)["code"] == "INVALID_INPUT"


@pytest.mark.parametrize(
    "value", [b"NaN", b"-Infinity", b"1e999", b"9" * 400, b"9" * 5000, b'"\\ud800"', b'{"\\ud800":1}']
)
def test_a_state_that_json_cannot_hold_is_refused(field: Stack, value: bytes):
    assert _posted(field, state=value)["code"] == "INVALID_INPUT"


@pytest.mark.parametrize(
    "framing",
    [
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel\r\n0\r\n\r\n",
        b"Content-Length: abc\r\n\r\n{}",
        b"Content-Length: -5\r\n\r\n{}",
        b"Content-Length: 99999999999999999999\r\n\r\n{}",
    ],
)
@pytest.mark.parametrize("path", [b"/agents/echo", b"/threads/t/runs/r/cancel"])
def test_a_body_framed_wrongly_is_the_clients_fault(field: Stack, path: bytes, framing: bytes):
    head = b"POST " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", field.port), timeout=5) as client:
        client.sendall(head + framing)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while part := client.recv(65536):
            answer += part
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 ")), answer


def test_a_delta_over_the_limit_fails_its_run_and_a_large_one_arrives(field: Stack):
    over = field.submit("large", size=20 * 2**20)
    assert over.live.finish()["code"] == "PROTOCOL"
    check_invariants(field, over)
    within = field.submit("large", size=3 * 2**20)
    assert within.live.finish()["outcome"] == {"type": "success"}
    assert len(within.live.text) == 3 * 2**20
    check_invariants(field, within)


def test_a_large_input_is_stored_once_and_never_in_the_queue(field: Stack):
    client = field.store.client
    run = field.submit("waits", text="x" * 4 * 2**20, seconds=0.5)
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    sizes = {key.decode(): client.memory_usage(key) for key in client.keys("*")}
    large = [name for name, size in sizes.items() if size > 2**20]
    assert [name.split(":")[2] for name in large if run.key in name] == ["input"]
    assert [name for name in large if not name.startswith("outlast:{")] == []
    assert run.live.finish()["outcome"] == {"type": "success"}
    check_invariants(field, run)


def _posted(stack: Stack, *, state: bytes) -> dict[str, Any]:
    run = stack.prepare("echo")
    body = json.dumps(run.body).encode().replace(b'"state": {}', b'"state": ' + state)
    answer = stack.http.post(
        f"http://127.0.0.1:{stack.port}/agents/echo",
        content=body,
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 400, answer.text
    assert stack.request("GET", run.path).status_code == 404
    return dict(answer.json())
