"""Who asks: API keys, signed tokens, and the local actor of a server without authentication."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from shared.runs.access import Role
from shared.runs.lifecycle import Status
from shared.store.store import Store
from tests.web.played_worker import Caller, PlayedWorker, events_of, key_of, problem_of, run_input

RUN = "/threads/thread/runs/run"


@pytest.fixture
def keyed(make_app: Callable[..., Flask], worker: PlayedWorker) -> Flask:
    """An application that asks for API keys."""
    return make_app(auth="keys")


@pytest.fixture
def sign_in(keyed: Flask, store: Store) -> Callable[..., Caller]:
    """``sign_in("ada", Role.VIEWER)`` makes a key and a client that sends it."""

    def sign(name: str, *roles: Role) -> Caller:
        secret, _ = store.api_keys.create(name, frozenset(roles))
        return Caller(keyed.test_client(), Authorization=f"Bearer {secret}")

    return sign


# --- API keys ----------------------------------------------------------------------------------------


def test_without_any_key_the_401_says_how_to_make_one(keyed: Flask):
    response = keyed.test_client().get("/agents")
    body = problem_of(response, 401, "UNAUTHENTICATED")
    assert "flask keys create NAME" in body["detail"]
    assert response.headers["WWW-Authenticate"].startswith("Bearer ")


def test_with_a_key_in_the_store_the_401_no_longer_says_so(keyed: Flask, store: Store):
    store.api_keys.create("ada")
    assert (
        "flask keys" not in problem_of(keyed.test_client().get("/agents"), 401, "UNAUTHENTICATED")["detail"]
    )


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic dTpw", "Bearer ol_unknown", "Bearer a.b.c", "ol_x"]
)
def test_anything_but_a_known_token_is_a_401(keyed: Flask, header: str):
    response = keyed.test_client().get("/agents", headers={"Authorization": header})
    problem_of(response, 401, "UNAUTHENTICATED")


@pytest.mark.parametrize("path", ["/agents/echo", "/nothing", "/runs/x/cancel"])
def test_the_401_comes_before_every_other_refusal(keyed: Flask, path: str):
    response = keyed.test_client().post(
        path, data=b"{", headers={"Accept": "text/plain", "Content-Type": "x/y"}
    )
    problem_of(response, 401, "UNAUTHENTICATED")


def test_a_key_names_the_actor_that_owns_the_runs(sign_in: Callable[..., Caller]):
    assert sign_in("ada").start_in_background().get_json()["actor"] == "ada"


def test_the_schemes_case_does_not_matter(keyed: Flask, store: Store):
    secret, _ = store.api_keys.create("ada")
    assert Caller(keyed.test_client(), Authorization=f"bearer  {secret}").get("/runs").status_code == 200


def test_a_known_key_is_not_looked_up_with_every_request(sign_in: Callable[..., Caller], store: Store):
    caller = sign_in("ada")
    caller.get("/agents")
    before = store.server_info("commandstats")["cmdstat_hget"]["calls"]
    for _ in range(10):
        caller.get("/agents")
    assert store.server_info("commandstats")["cmdstat_hget"]["calls"] == before


def test_a_revoked_key_stops_working_within_seconds(
    sign_in: Callable[..., Caller], store: Store, eventually: Any
):
    caller = sign_in("ada")
    assert caller.get("/runs").status_code == 200
    assert store.api_keys.revoke(store.api_keys.list()[0].key_id)
    eventually(lambda: caller.get("/runs").status_code == 401)


@pytest.mark.parametrize("path", ["/health/live", "/openapi.json"])
def test_what_tells_nothing_about_anybody_needs_no_key(keyed: Flask, path: str):
    assert keyed.test_client().get(path).status_code == 200


# --- another actor's run -----------------------------------------------------------------------------


def test_another_actors_run_does_not_exist(sign_in: Callable[..., Caller], store: Store):
    sign_in("ada").start_in_background()
    bob, key = sign_in("bob"), key_of("run", actor="ada")
    for path in (RUN, f"/runs/{key}", f"{RUN}/events", f"/runs/{key}/events"):
        problem_of(bob.get(path), 404, "UNKNOWN_RUN")
    for path in (f"{RUN}/cancel", f"/runs/{key}/cancel"):
        problem_of(bob.post(path), 404, "UNKNOWN_RUN")
    assert bob.get("/runs").get_json() == {"runs": []}
    assert bob.get("/threads/thread/runs").get_json() == {"runs": []}
    record = store.runs.get(key)
    assert record is not None
    assert "cancel_requested_at" not in record.times


def test_two_actors_may_use_the_same_ids(sign_in: Callable[..., Caller], worker: PlayedWorker):
    assert sign_in("ada").start_in_background().status_code == 202
    assert sign_in("bob").start_in_background(run_input(text="mine")).status_code == 202
    assert worker.messages() == 2


def test_a_viewer_sees_every_record_by_key_but_stops_and_reads_nothing(
    sign_in: Callable[..., Caller], store: Store
):
    sign_in("ada").start_in_background()
    viewer, key = sign_in("eve", Role.VIEWER), key_of("run", actor="ada")
    assert viewer.get(f"/runs/{key}").get_json()["actor"] == "ada"
    problem_of(viewer.get(f"/runs/{key}/events"), 403, "FORBIDDEN")
    problem_of(viewer.post(f"/runs/{key}/cancel"), 403, "FORBIDDEN")


def test_payloads_are_a_right_of_their_own(sign_in: Callable[..., Caller], worker: PlayedWorker):
    sign_in("ada").start_in_background()
    key = key_of("run", actor="ada")
    worker.run(key)
    reader = sign_in("eve", Role.VIEWER, Role.PAYLOADS)
    assert len(events_of(reader.get(f"/runs/{key}/events"))) == 2


def test_an_operator_stops_a_run_by_its_key_and_the_record_says_who(
    sign_in: Callable[..., Caller], store: Store
):
    sign_in("ada").start_in_background()
    key = key_of("run", actor="ada")
    assert sign_in("otto", Role.OPERATOR).post(f"/runs/{key}/cancel").status_code == 200
    record = store.runs.get(key)
    assert record is not None
    assert record.status is Status.CANCELLED
    assert (record.texts["cancel_by"], record.texts["cancel_cause"]) == ("otto", "operator")


# --- no authentication -------------------------------------------------------------------------------


def test_without_authentication_a_loopback_peer_is_the_local_actor(caller: Caller):
    assert caller.start_in_background().get_json()["actor"] == "local"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"])
def test_every_loopback_address_is_this_machine(app: Flask, worker: PlayedWorker, address: str):
    response = app.test_client().get("/agents", environ_overrides={"REMOTE_ADDR": address})
    assert response.status_code == 200


@pytest.mark.parametrize("address", ["10.0.0.7", "192.168.1.2", "::2", "::ffff:10.0.0.7", "", "unix"])
def test_another_address_is_refused_with_the_reason(app: Flask, address: str):
    response = app.test_client().get("/agents", environ_overrides={"REMOTE_ADDR": address})
    assert "another address" in problem_of(response, 403, "FORBIDDEN")["detail"]


@pytest.mark.parametrize(
    "name", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via"]
)
def test_what_came_through_a_proxy_is_refused(caller: Caller, name: str):
    assert name in problem_of(caller.get("/agents", **{name: "x"}), 403, "FORBIDDEN")["detail"]


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:5000", "127.0.0.1:8000", "[::1]", "[::1]:5000", "LOCALHOST"]
)
def test_a_host_header_that_names_this_machine_is_served(caller: Caller, host: str):
    assert caller.get("/agents", Host=host).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "x@localhost", "127.0.0.1.evil.example:80", "[::1"]
)
def test_a_host_header_that_names_another_machine_is_refused(caller: Caller, host: str):
    problem_of(caller.get("/agents", Host=host), 403, "FORBIDDEN")


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:8080"])
def test_a_page_of_this_machine_is_served(caller: Caller, origin: str):
    assert caller.get("/agents", Origin=origin).status_code == 200


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://localhost.evil.example", "http://localhost@evil.example"],
)
def test_a_page_of_another_site_is_refused(caller: Caller, origin: str, store: Store):
    assert "Origin" in problem_of(caller.start(Origin=origin), 403, "FORBIDDEN")["detail"]
    assert store.runs.get(key_of("run")) is None


def test_an_allowed_origin_is_served_and_a_star_is_no_allowance(
    make_app: Callable[..., Flask], worker: PlayedWorker
):
    named = Caller(make_app(cors_origins=("https://app.example",)).test_client())
    assert named.get("/agents", Origin="https://app.example").status_code == 200
    everybody = Caller(make_app(cors_origins=("*",)).test_client())
    problem_of(everybody.get("/agents", Origin="https://evil.example"), 403, "FORBIDDEN")
