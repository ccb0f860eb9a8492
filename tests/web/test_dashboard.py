"""The operators' pages: who gets in, what every answer carries, forms, and regions of a stream."""

from __future__ import annotations

import re
import time
from typing import Any

import jwt
import pytest
from flask.testing import FlaskClient
from pydantic import SecretStr

from shared.runs.access import Role
from shared.runs.outcome import FailureCode, Outcome
from tests.web.played_worker import Caller, PlayedWorker, key_of, run_input

SECRET = "a-secret-of-thirty-two-bytes-or-more"
OPERATOR = frozenset({Role.OPERATOR, Role.PAYLOADS})
PATHS = ("/", "/runs", "/workers", "/queues", "/audit", "/bulk", "/system")


@pytest.fixture
def guarded(make_app, worker):
    return make_app(auth="keys", jwt_secret=SecretStr(SECRET))


def _form_token(client: FlaskClient, path: str = "/ops/") -> str:
    found = re.search(r'name="csrf" value="(\w+)"', client.get(path).text)
    assert found
    return found[1]


def _sign_in(client: FlaskClient, token: str, following: str = "/ops/") -> Any:
    form = {"csrf": _form_token(client, "/ops/sign-in"), "token": token, "next": following}
    return client.post("/ops/sign-in", data=form)


def _key(store, name: str = "ann", roles=OPERATOR) -> str:
    return store.api_keys.create(name, frozenset(roles))[0]


# --- who gets in -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_nobody_sees_a_page_without_signing_in(guarded, path):
    answer = guarded.test_client().get(f"/ops{path}?q=1")
    assert answer.status_code == 303
    assert answer.location == f"/ops/sign-in?next=/ops{path}?q%3D1"


def test_a_session_is_opened_by_an_api_key_and_ends_with_it(guarded, store):
    client = guarded.test_client()
    secret, key = store.api_keys.create("ann", OPERATOR)
    assert _sign_in(client, secret, "/ops/runs?status=failed").location == "/ops/runs?status=failed"
    assert client.get("/ops/").status_code == 200
    store.api_keys.revoke(key.key_id)
    assert client.get("/ops/").status_code == 303


def test_a_session_of_a_signed_token_ends_with_the_token(guarded, store):
    client = guarded.test_client()
    claims = {"sub": "bob", "roles": ["viewer"], "exp": int(time.time()) + 40}
    assert _sign_in(client, jwt.encode(claims, SECRET, algorithm="HS256")).status_code == 303
    assert "bob" in client.get("/ops/").text
    (session,) = store.client.keys("outlast:session:*")
    assert 1 <= store.client.ttl(session) <= 40


def test_the_cookie_is_no_token_of_the_store_and_no_api_token(guarded, store):
    client = guarded.test_client()
    secret = _key(store)
    cookie = _sign_in(client, secret).headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Path=/ops" in cookie
    value = re.match(r"outlast_ops=([^;]+)", cookie)[1]
    assert value not in secret
    assert all(value.encode() not in key for key in store.client.keys("*"))
    assert client.get("/runs").status_code == 401


def test_the_cookie_is_kept_to_https_where_the_page_came_by_https(guarded, store):
    client = guarded.test_client()
    page = client.get("/ops/sign-in", headers={"X-Forwarded-Proto": "https"})
    assert "Secure" in page.headers["Set-Cookie"]


def test_a_key_without_a_role_is_not_let_in(guarded, store):
    answer = _sign_in(guarded.test_client(), _key(store, "plain", []))
    assert answer.status_code == 403
    assert "no operator role" in answer.text


def test_an_unknown_token_is_not_let_in(guarded, store):
    _key(store)
    answer = _sign_in(guarded.test_client(), "ol_wrong")
    assert answer.status_code == 401
    assert "not known" in answer.text


@pytest.mark.parametrize(
    "where", ["https://elsewhere.example/", "//elsewhere.example", "/ops/\\elsewhere", "/runs"]
)
def test_signing_in_leads_to_our_own_pages_only(guarded, store, where):
    assert _sign_in(guarded.test_client(), _key(store), where).location == "/ops/"


def test_signing_out_ends_the_session_in_the_store(guarded, store):
    client = guarded.test_client()
    _sign_in(client, _key(store))
    client.post("/ops/sign-out", data={"csrf": _form_token(client)})
    assert store.client.keys("outlast:session:*") == []
    assert client.get("/ops/").status_code == 303


def test_without_authentication_the_local_admin_is_signed_in(app):
    assert "this server serves this machine only" in app.test_client().get("/ops/").text


def test_without_authentication_another_machine_is_refused(app):
    answer = app.test_client().get("/ops/", environ_base={"REMOTE_ADDR": "192.0.2.7"})
    assert answer.status_code == 403


# --- what every answer carries -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PATHS, "/sign-in", "/static/ops.css"])
def test_every_answer_carries_the_strict_policy(guarded, store, path):
    client = guarded.test_client()
    if path != "/sign-in":
        _sign_in(client, _key(store))
    answer = client.get(f"/ops{path}")
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert ("no-store" in answer.headers["Cache-Control"]) is not path.startswith("/static")
    answer.close()


def test_the_names_of_clients_are_shown_as_text(caller: Caller, app):
    caller.start_in_background(run_input("<script>alert(1)</script>", "<img src=x>"))
    key = key_of("<script>alert(1)</script>", "<img src=x>")
    for path in (
        "/ops/runs",
        f"/ops/runs/{key}",
        f"/ops/runs/{key}?tab=record",
        f"/ops/runs/{key}?tab=input",
    ):
        page = app.test_client().get(path)
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "<img src=x>" not in page.text


def test_a_page_says_what_is_wrong_when_redis_is_away(own_server, make_app):
    app = make_app(redis_url=own_server.url)
    client = app.test_client()
    assert client.get("/ops/").status_code == 200
    own_server.stop()
    answer = client.get("/ops/")
    assert answer.status_code == 503
    assert "Redis does not answer" in answer.text


# --- forms -------------------------------------------------------------------------------------------------


@pytest.fixture
def running(caller: Caller, worker: PlayedWorker) -> str:
    caller.start_in_background()
    worker.claim(key_of("run"))
    return key_of("run")


def test_an_action_sends_the_browser_back_to_where_it_was_with_a_word_about_it(app, running):
    client = app.test_client()
    form = {"csrf": _form_token(client), "back": "/ops/runs?status=running&agent=echo", "reason": "stuck"}
    answer = client.post(f"/ops/runs/{running}/cancel", data=form)
    assert (answer.status_code, answer.location) == (303, "/ops/runs?status=running&agent=echo")
    page = client.get(answer.location)
    assert "asked to stop" in page.text
    assert "asked to stop; its outcome" not in client.get(answer.location).text


@pytest.mark.parametrize(
    ("token", "headers"),
    [
        ("", {}),
        ("0" * 64, {}),
        (None, {"Origin": "https://elsewhere.example"}),
        (None, {"Origin": "null"}),
        (None, {"Sec-Fetch-Site": "cross-site"}),
        (None, {"Sec-Fetch-Site": "same-site"}),
    ],
)
def test_a_form_of_another_site_is_refused(make_app, store, worker, token, headers):
    client = make_app(auth="keys").test_client()
    _sign_in(client, _key(store))
    Caller(make_app().test_client()).start_in_background()
    sent = _form_token(client) if token is None else token
    answer = client.post(f"/ops/runs/{key_of('run')}/cancel", data={"csrf": sent}, headers=headers)
    assert answer.status_code == 403
    assert store.runs.get(key_of("run")).status == "queued"


def test_a_form_token_is_good_for_its_own_session_only(guarded, store, caller):
    first, second = guarded.test_client(), guarded.test_client()
    _sign_in(first, _key(store, "ann"))
    _sign_in(second, _key(store, "ben"))
    caller.start_in_background()
    answer = second.post(f"/ops/runs/{key_of('run')}/cancel", data={"csrf": _form_token(first)})
    assert answer.status_code == 403


def test_a_number_that_was_not_typed_cancels_nothing(app, running, store):
    client = app.test_client()
    form = {"csrf": _form_token(client), "status": "running", "seen": "1", "typed": "2", "reason": "x"}
    assert client.post("/ops/bulk", data=form).status_code == 303
    assert "cancel_requested_at" not in store.runs.get(running).times


def test_an_empty_filter_is_refused_before_and_at_a_bulk_cancel(app, running, store):
    client = app.test_client()
    assert client.get("/ops/bulk/new").status_code == 303
    client.post("/ops/bulk", data={"csrf": _form_token(client), "seen": "1", "reason": "x"})
    assert "cancel_requested_at" not in store.runs.get(running).times


def test_a_retry_leads_to_the_new_run(app, caller, worker):
    caller.start_in_background()
    worker.run(key_of("run"), "x", outcome=Outcome.failed(FailureCode.AGENT_ERROR))
    client = app.test_client()
    answer = client.post(f"/ops/runs/{key_of('run')}/retry", data={"csrf": _form_token(client)})
    assert answer.location == f"/ops/runs/{key_of('run-retry-1')}"


# --- payloads ----------------------------------------------------------------------------------------------


def test_without_the_payload_right_sizes_are_shown_and_no_content(guarded, store, caller, worker):
    caller.start_in_background(run_input(text="a secret wish"))
    worker.run(key_of("run"), "a secret answer")
    client = guarded.test_client()
    _sign_in(client, _key(store, "eve", [Role.ADMIN]))
    path = f"/ops/runs/{key_of('run')}"
    for tab in ("events", "input", "state", "record"):
        page = client.get(f"{path}?tab={tab}").text
        assert "secret" not in page
        assert tab == "record" or "hidden" in page
    assert client.get(f"{path}/events.ndjson").status_code == 403


def test_the_download_has_every_event(app, caller, worker):
    caller.start_in_background()
    worker.run(key_of("run"), *map(str, range(900)))
    lines = app.test_client().get(f"/ops/runs/{key_of('run')}/events.ndjson").text.splitlines()
    assert len(lines) == 902


# --- streams -----------------------------------------------------------------------------------------------


def test_a_stream_sends_all_regions_first_and_then_what_changed(app, caller, store):
    stream = app.test_client().get("/ops/stream?view=overview", buffered=False)
    messages = iter(stream.response)
    assert next(messages) == b": open\n\n"
    first = next(messages).decode()
    assert {"tiles", "attention", "charts", "crew"} <= set(re.findall(r"#p-(\w+)", first))
    caller.start_in_background()
    changed = next(messages).decode()
    assert "tiles" in set(re.findall(r"#p-(\w+)", changed))
    assert all(line.startswith("data: ") for line in changed.rstrip("\n").splitlines())
    stream.close()


def test_a_stream_needs_a_session_and_a_view(guarded, app):
    assert guarded.test_client().get("/ops/stream?view=overview").status_code == 401
    assert app.test_client().get("/ops/stream?view=nothing").status_code == 404
    assert app.test_client().get("/ops/poll?view=run").status_code == 404


def test_a_stream_ends_when_the_process_ends_its_streams(app):
    stream = app.test_client().get("/ops/stream?view=workers", buffered=False)
    messages = iter(stream.response)
    next(messages)
    next(messages)
    app.extensions["outlast"].close()
    assert b"".join(messages) == b""


def test_no_more_streams_are_open_than_there_are_seats(app, monkeypatch):
    monkeypatch.setattr("web.ops.live.MOST_STREAMS", 1)
    client = app.test_client()
    first = client.get("/ops/stream?view=workers", buffered=False)
    assert client.get("/ops/stream?view=workers").status_code == 503
    first.close()
    again = client.get("/ops/stream?view=workers", buffered=False)
    assert again.status_code == 200
    again.close()


def test_a_page_is_not_turned_back_by_what_another_tab_read_before(app, store):
    client, opened = app.test_client(), []
    for act in (None, lambda: store.controls.pause(by="ann")):
        if act:
            act()
        stream = client.get("/ops/stream?view=queues", buffered=False)
        opened.append(stream)
        messages = iter(stream.response)
        next(messages)
        first = next(messages).decode()
    assert "paused by ann" in first
    # In one thread their contexts are stacked.
    for stream in reversed(opened):
        stream.close()
