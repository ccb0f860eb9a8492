"""Signed tokens: believed only with the right key, algorithm, time, audience and issuer."""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from flask import Flask
from pydantic import SecretStr

from shared.runs.access import Role
from shared.settings import Settings
from tests.web.played_worker import Caller, PlayedWorker, problem_of
from web.tokens import InvalidToken, KeysUnavailable, TokenVerifier

SECRET = "a-shared-secret-of-thirty-two-bytes!"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def _claims(**changes: Any) -> dict[str, Any]:
    return {"sub": "ada", "exp": int(time.time()) + 60} | changes


def _signed(claims: dict[str, Any], key: Any = SECRET, algorithm: str = "HS256", **headers: Any) -> str:
    return jwt.encode(claims, key, algorithm=algorithm, headers=headers or None)


def _encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def _verifier(**changes: Any) -> TokenVerifier:
    return TokenVerifier(Settings(jwt_secret=SecretStr(SECRET)).model_copy(update=changes))


def test_a_token_of_the_shared_secret_names_its_subject():
    assert _verifier().actor(_signed(_claims())).name == "ada"


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param(_claims(exp=1), id="expired"),
        pytest.param({"sub": "ada"}, id="never expires"),
        pytest.param({"exp": 9_999_999_999}, id="names nobody"),
        pytest.param(_claims(sub=""), id="empty subject"),
        pytest.param(_claims(sub="a\nb"), id="control character"),
        pytest.param(_claims(sub="x" * 257), id="long subject"),
        pytest.param(_claims(nbf=9_999_999_999), id="not yet valid"),
    ],
)
def test_a_token_without_a_usable_subject_and_time_is_refused(claims: dict[str, Any]):
    with pytest.raises(InvalidToken):
        _verifier().actor(_signed(claims))


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "ol_x", _signed(_claims())[:-3]])
def test_what_is_no_signed_token_is_refused(token: str):
    with pytest.raises(InvalidToken):
        _verifier().actor(token)


def test_a_token_signed_with_another_secret_is_refused():
    with pytest.raises(InvalidToken):
        _verifier().actor(_signed(_claims(), key="another-secret-of-thirty-two-bytes!!"))


def test_an_unsigned_token_is_refused():
    with pytest.raises(InvalidToken):
        _verifier().actor(f"{_encoded({'alg': 'none'})}.{_encoded(_claims())}.")


def test_only_the_algorithm_of_the_secret_is_taken():
    with pytest.raises(InvalidToken):
        _verifier().actor(_signed(_claims(), key=SECRET * 2, algorithm="HS512"))


def test_audience_and_issuer_must_be_those_of_the_settings():
    strict = _verifier(jwt_audience="outlast", jwt_issuer="https://id.example")
    right = _claims(aud="outlast", iss="https://id.example")
    assert strict.actor(_signed(right)).name == "ada"
    for wrong in (_claims(), right | {"aud": "other"}, right | {"iss": "https://evil.example"}):
        with pytest.raises(InvalidToken):
            strict.actor(_signed(wrong))


def test_an_audience_is_tolerated_where_none_is_demanded():
    assert _verifier().actor(_signed(_claims(aud="somebody"))).name == "ada"


@pytest.mark.parametrize(
    ("claim", "claims"),
    [
        ("roles", {"roles": ["operator", "payloads", "king", 7]}),
        ("roles", {"roles": "operator payloads"}),
        ("realm.roles", {"realm": {"roles": ["operator", "payloads"]}}),
        ("https://x.example/roles", {"https://x.example/roles": ["operator", "payloads"]}),
    ],
)
def test_roles_come_from_the_configured_claim(claim: str, claims: dict[str, Any]):
    actor = _verifier(jwt_roles_claim=claim).actor(_signed(_claims(**claims)))
    assert actor.roles == {Role.OPERATOR, Role.PAYLOADS}


@pytest.mark.parametrize("roles", [None, 7, {}, [["operator"]]])
def test_a_roles_claim_of_another_shape_gives_no_role(roles: Any):
    assert not _verifier().actor(_signed(_claims(roles=roles))).roles


# --- public keys -------------------------------------------------------------------------------------


@pytest.fixture
def jwks_url() -> Iterator[str]:
    """An address that serves the public halves of both keys."""
    keys = []
    for kid, algorithm, key in (
        ("r", jwt.algorithms.RSAAlgorithm, RSA_KEY),
        ("e", jwt.algorithms.ECAlgorithm, EC_KEY),
    ):
        keys.append(algorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": kid, "use": "sig"})
    body = json.dumps({"keys": keys}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/jwks.json"
    server.shutdown()
    thread.join()
    server.server_close()


def test_tokens_of_public_keys_are_believed(jwks_url: str):
    verifier = _verifier(jwt_secret=None, jwt_jwks_url=jwks_url)
    assert verifier.actor(_signed(_claims(), RSA_KEY, "RS256", kid="r")).name == "ada"
    assert verifier.actor(_signed(_claims(), EC_KEY, "ES256", kid="e")).name == "ada"


def test_a_token_of_an_unknown_key_is_refused(jwks_url: str):
    verifier = _verifier(jwt_secret=None, jwt_jwks_url=jwks_url)
    with pytest.raises(InvalidToken):
        verifier.actor(_signed(_claims(), RSA_KEY, "RS256", kid="unheard"))
    with pytest.raises(InvalidToken):
        verifier.actor(_signed(_claims(), rsa.generate_private_key(65537, 2048), "RS256", kid="r"))


def test_a_public_key_is_never_taken_for_a_shared_secret(jwks_url: str):
    public = RSA_KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signed = f"{_encoded({'alg': 'HS256', 'kid': 'r'})}.{_encoded(_claims())}"
    mac = hmac.digest(public, signed.encode(), "sha256")
    forged = f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    with pytest.raises(InvalidToken):
        _verifier(jwt_secret=None, jwt_jwks_url=jwks_url).actor(forged)


def test_keys_that_cannot_be_fetched_say_nothing_about_the_token():
    verifier = _verifier(jwt_secret=None, jwt_jwks_url="http://127.0.0.1:9/jwks.json")
    with pytest.raises(KeysUnavailable):
        verifier.actor(_signed(_claims(), RSA_KEY, "RS256", kid="r"))


# --- over HTTP ---------------------------------------------------------------------------------------


def test_a_token_opens_the_door_and_a_bad_one_says_why(make_app: Callable[..., Flask], worker: PlayedWorker):
    app = make_app(auth="keys", jwt_secret=SecretStr(SECRET))
    good = Caller(app.test_client(), Authorization=f"Bearer {_signed(_claims())}")
    assert good.start_in_background().get_json()["actor"] == "ada"
    bad = Caller(app.test_client(), Authorization=f"Bearer {_signed(_claims(exp=1))}")
    response = bad.get("/runs")
    assert "expired" in problem_of(response, 401, "UNAUTHENTICATED")["detail"]
    assert 'error="invalid_token"' in response.headers["WWW-Authenticate"]


def test_api_keys_work_beside_tokens(make_app: Callable[..., Flask], worker: PlayedWorker):
    app = make_app(auth="keys", jwt_secret=SecretStr(SECRET))
    secret, _ = worker.store.api_keys.create("bob")
    caller = Caller(app.test_client(), Authorization=f"Bearer {secret}")
    assert caller.start_in_background().get_json()["actor"] == "bob"


def test_while_the_keys_are_away_a_client_is_told_to_come_back(make_app: Callable[..., Flask]):
    app = make_app(auth="keys", jwt_jwks_url="http://127.0.0.1:9/jwks.json")
    token = _signed(_claims(), RSA_KEY, "RS256", kid="r")
    response = Caller(app.test_client(), Authorization=f"Bearer {token}").get("/runs")
    problem_of(response, 503, "IDENTITY_UNAVAILABLE")
    assert "Retry-After" in response.headers
