"""Refusals come before the stream, name what is wrong, and leak nothing."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from structlog.testing import capture_logs

from shared.local.server import EmbeddedServer
from shared.settings import Settings
from shared.store.errors import StoreFull, StoreUncertain
from shared.store.store import Store
from tests.web.played_worker import Caller, PlayedWorker, key_of, problem_of, run_input
from web import create_app


def _post(caller: Caller, body: bytes | str, **headers: str) -> Any:
    sent = {"Content-Type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    return caller.client.post("/agents/echo", data=body, headers=sent, buffered=False)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", None),
        (b" \n\t", None),
        (b"{", None),
        (b"[]", None),
        (b"null", None),
        (b'{"threadId":"t","runId":"r","messages":[],"state":NaN}', None),
        (b'{"threadId":"t","runId":"r","messages":[],"state":1e999}', None),
        ('{"threadId":"t","runId":"r","messages":[]}'.encode("utf-16"), None),
        (b'{"threadId":"t","runId":"\\ud800","messages":[]}', None),
        (b"[" * 100_000, None),
        (b'{"runId":"r","messages":[]}', "threadId"),
        (b'{"threadId":"t","messages":[]}', "runId"),
        (b'{"threadId":"t","runId":"r"}', "messages"),
        (b'{"threadId":"t","runId":7,"messages":[]}', "runId"),
        (b'{"threadId":"","runId":"r","messages":[]}', "threadId"),
        (b'{"threadId":"t","runId":"a\\u0000b","messages":[]}', "runId"),
        (json.dumps({"threadId": "t", "runId": "r" * 257, "messages": []}).encode(), "runId"),
        (b'{"threadId":"t","runId":"r","messages":[{"id":"m","role":"nobody"}]}', "messages.0.role"),
        (b'{"threadId":"t","runId":"r","messages":[],"tools":[{"name":"f"}]}', "tools.0.description"),
    ],
)
def test_a_body_that_is_no_run_input_is_refused_and_the_field_named(
    caller: Caller, body: bytes, field: str | None
):
    assert problem_of(_post(caller, body), 400, "INVALID_INPUT").get("field") == field


def test_unknown_members_and_a_byte_order_mark_are_tolerated(caller: Caller):
    body = b"\xef\xbb\xbf" + json.dumps(run_input(novelty=[1])).encode()
    assert _post(caller, body, Prefer="respond-async").status_code == 202


def test_on_busy_takes_only_what_exists(caller: Caller):
    assert problem_of(caller.start(query="?on_busy=maybe"), 400, "INVALID_INPUT")["field"] == "on_busy"


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "APPLICATION/JSON; charset=utf-8", "text/json", "application/vnd.x+json", ""],
)
def test_every_spelling_of_json_is_taken(caller: Caller, content_type: str):
    response = _post(caller, json.dumps(run_input()), Content_Type=content_type, Prefer="respond-async")
    assert response.status_code == 202


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "+json",
    ],
)
def test_another_media_type_is_refused(caller: Caller, content_type: str):
    response = _post(caller, json.dumps(run_input()), Content_Type=content_type)
    assert problem_of(response, 415, "UNSUPPORTED_MEDIA_TYPE")["field"] == "Content-Type"


def test_a_compressed_body_is_refused(caller: Caller):
    response = _post(caller, json.dumps(run_input()), Content_Encoding="gzip")
    assert problem_of(response, 415, "UNSUPPORTED_MEDIA_TYPE")["field"] == "Content-Encoding"


def test_a_body_that_says_it_is_too_long_is_not_read(make_app: Callable[..., Flask]):
    client = make_app(max_bytes_per_request=1000).test_client()

    class Unread(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise AssertionError("the body was read")

    response = client.post(
        "/agents/echo",
        input_stream=Unread(),
        content_type="application/json",
        environ_overrides={"CONTENT_LENGTH": "5000"},
    )
    problem_of(response, 413, "INVALID_BODY")


@pytest.mark.parametrize("limit", [1000, 300_000])
def test_a_body_of_unknown_length_is_read_no_further_than_the_limit(
    make_app: Callable[..., Flask], limit: int
):
    client = make_app(max_bytes_per_request=limit).test_client()
    endless = io.BytesIO(json.dumps(run_input()).encode() + b" " * 10_000_000)
    response = client.post(
        "/agents/echo",
        input_stream=endless,
        content_type="application/json",
        environ_overrides={"wsgi.input_terminated": True},
    )
    detail = problem_of(response, 413, "INVALID_BODY")["detail"]
    assert detail == f"The body is larger than {limit} bytes (OUTLAST_MAX_BYTES_PER_REQUEST)."
    assert endless.tell() < limit + 200_000


@pytest.mark.parametrize("error", [OSError, RuntimeError, StopIteration])
@pytest.mark.parametrize("path", ["/agents/echo", "/threads/t/runs/r/cancel"])
def test_a_body_that_the_server_cannot_read_is_the_clients_fault(
    caller: Caller, path: str, error: type[Exception]
):
    class Broken(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise error("Invalid chunk size")

        readinto = read  # type: ignore[assignment]  # either is what the framework calls

    response = caller.client.post(
        path,
        input_stream=Broken(),
        content_type="application/json",
        environ_overrides={"wsgi.input_terminated": True},
    )
    problem_of(response, 400, "INVALID_INPUT")


def test_a_body_nested_deeper_than_the_limit_is_refused(make_app: Callable[..., Flask], worker: PlayedWorker):
    caller = Caller(make_app(max_input_depth=5).test_client())
    problem_of(caller.start(run_input(state=[[[[[[]]]]]])), 400, "INVALID_INPUT")


@pytest.mark.parametrize("accept", ["text/plain", "application/xml", "*/*;q=0", "text/event-stream;q=0"])
def test_a_client_that_accepts_no_stream_is_told_what_could_be_sent(caller: Caller, accept: str):
    response = caller.start(Accept=accept)
    assert "text/event-stream" in problem_of(response, 406, "NOT_ACCEPTABLE")["detail"]
    assert response.headers["Vary"] == "Accept"


def test_without_the_preference_json_alone_is_not_acceptable(caller: Caller):
    problem_of(caller.start(Accept="application/json"), 406, "NOT_ACCEPTABLE")
    assert caller.start_in_background(Accept="application/json").status_code == 202


def test_accept_wins_over_a_wrong_body_and_runs_nothing(caller: Caller, store: Store):
    problem_of(_post(caller, b"{", Accept="text/plain", Content_Type="text/plain"), 406, "NOT_ACCEPTABLE")
    problem_of(caller.start(Accept="text/plain"), 406, "NOT_ACCEPTABLE")
    assert store.runs.get(key_of("run")) is None


def test_another_method_is_refused_with_those_that_are_allowed(caller: Caller):
    response = caller.client.delete("/agents/echo", data=b"{")
    problem_of(response, 405, "METHOD_NOT_ALLOWED")
    assert {"GET", "POST"} <= set(response.headers["Allow"].split(", "))


@pytest.mark.parametrize(
    "path", ["/", "/nothing", "/agents/", "/threads/t/runs/r/more", "/threads//runs", "/runs/a/b"]
)
def test_a_path_that_is_not_served_is_a_404_in_the_same_form(caller: Caller, path: str):
    problem_of(caller.get(path), 404, "NOT_FOUND")


def test_a_defect_shows_an_incident_and_never_the_exceptions_text(
    app: Flask, caller: Caller, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the secret detail")

    monkeypatch.setattr(type(app.extensions["outlast"].get().store.runs), "accept", broken)
    with capture_logs() as logged:
        response = caller.start()
    body = problem_of(response, 500, "INTERNAL")
    assert b"secret detail" not in response.data
    assert body["incident"] in body["detail"]
    line = next(line for line in logged if line["event"] == "http.failed")
    assert line["incident"] == body["incident"]
    assert str(line["exc_info"]) == "the secret detail"


# --- Redis away --------------------------------------------------------------------------------------


def test_without_redis_every_answer_is_a_503_within_five_seconds(own_server: EmbeddedServer):
    app = create_app(Settings(redis_url=own_server.url, auth="none", log_level="error"))
    store = app.extensions["outlast"].get().store
    PlayedWorker(store).offer(echo="enqueue")
    caller = Caller(app.test_client())
    assert caller.start_in_background().status_code == 202
    own_server.kill()
    posted, read = caller.start(run_input("second")), caller.get(f"/runs/{key_of('run')}")
    app.extensions["outlast"].close()
    store.close()
    for response in (posted, read):
        problem_of(response, 503, "STORE_UNAVAILABLE")
        assert int(response.headers["Retry-After"]) > 0


@pytest.mark.parametrize(("error", "code"), [(StoreUncertain, "STORE_UNCERTAIN"), (StoreFull, "STORE_FULL")])
def test_an_accept_that_redis_did_not_settle_says_so(
    app: Flask, caller: Caller, monkeypatch: pytest.MonkeyPatch, error: type[Exception], code: str
):
    def fail(*_: Any, **__: Any) -> None:
        raise error("text")

    held = app.extensions["outlast"].get()
    monkeypatch.setattr(type(held.store.runs), "accept", fail)
    response = caller.start()
    problem_of(response, 503, code)
    assert "Retry-After" in response.headers
    assert held.hub.stats()["open_streams"] == 0
