"""Who asks: a bearer token's actor, or the local actor where authentication is switched off.

Without authentication only direct loopback peers are served, and never on behalf of a web page of another
site: the address, the forwarding headers, Host (against DNS rebinding) and Origin are all looked at.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from flask import Flask, g, request

from shared.runs.access import Actor, Role
from shared.store.api_keys import PREFIX
from web.problems import Code, Problem
from web.services import Services, services
from web.tokens import InvalidToken, KeysUnavailable

LOCAL = Actor("local", frozenset({Role.ADMIN, Role.PAYLOADS}))
"""Who asks where authentication is switched off."""

OPEN_PATHS = ("/health/live", "/health/ready", "/openapi.json")
"""Paths that tell nothing about anybody and are served to everybody."""

SESSION_PAGES = "dashboard"
"""The blueprint whose views know who asks by a session, and refuse by sending to the sign-in page."""

FORWARDING_HEADERS = (
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Real-IP",
    "Via",
)
_CHALLENGE = 'Bearer realm="outlast"'


def current_actor() -> Actor:
    """Who sent the current request."""
    actor: Actor = g.actor
    return actor


def register(app: Flask) -> None:
    """Establishes the actor before every view and every routing error: a 401 comes before all of them."""

    def establish() -> None:
        if request.path in OPEN_PATHS or request.blueprint == SESSION_PAGES:
            return
        held = services()
        if request.path == "/metrics" and held.settings.metrics_public:
            return
        g.actor = local_actor(held.settings.cors_origins) if held.settings.auth == "none" else _bearer(held)

    app.before_request(establish)


def _bearer(held: Services) -> Actor:
    scheme, _, token = request.headers.get("Authorization", "").strip().partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise _unauthenticated(held, "Send the header Authorization: Bearer TOKEN.")
    return owner_of(held, token)


def owner_of(held: Services, token: str) -> Actor:
    """Whose token this is, an API key or a JWT; raises the 401, or the 503 when that cannot be found out."""
    if token.startswith(PREFIX) or not held.tokens.configured:
        try:
            return held.known_keys.get(token, lambda: _key_owner(held, token))
        except LookupError:
            raise _unauthenticated(held, "The API key is not known.", "invalid_token") from None
    try:
        return held.tokens.actor(token)
    except InvalidToken as error:
        raise _unauthenticated(held, f"Not accepted: {error}.", "invalid_token") from error
    except KeysUnavailable as error:
        raise Problem(Code.IDENTITY_UNAVAILABLE, f"Try again in a moment: {error}.") from error


def _key_owner(held: Services, token: str) -> Actor:
    found = held.store.api_keys.find(token)
    if found is None:
        raise LookupError
    return found.actor


def _unauthenticated(held: Services, detail: str, error: str | None = None) -> Problem:
    if not held.tokens.configured and not held.store.api_keys.any():
        detail = f"{detail} No API key exists yet; make one on the server with: flask keys create NAME"
    challenge = f'{_CHALLENGE}, error="{error}"' if error else _CHALLENGE
    return Problem(Code.UNAUTHENTICATED, detail, headers={"WWW-Authenticate": challenge})


def local_actor(cors_origins: tuple[str, ...]) -> Actor:
    """Who asks where authentication is switched off; raises the 403 for whoever is not on this machine."""
    reason = _why_not_local(cors_origins)
    if reason is not None:
        detail = f"This server runs without authentication and serves this machine only: {reason}"
        raise Problem(Code.FORBIDDEN, f"{detail} Set OUTLAST_AUTH=keys to serve others.")
    return LOCAL


def _why_not_local(cors_origins: tuple[str, ...]) -> str | None:
    if not _is_loopback(request.remote_addr or ""):
        return "the request comes from another address."
    forwarded = next((name for name in FORWARDING_HEADERS if name in request.headers), None)
    if forwarded is not None:
        return f"the request came through a proxy (it has the header {forwarded})."
    if not _is_local_host(f"//{request.headers.get('Host', '')}"):
        return "the header Host names another machine."
    origin = request.headers.get("Origin")
    if origin is not None and not _is_local_host(origin) and origin not in cors_origins:
        return "the header Origin names another site."
    return None


def _is_loopback(address: str) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped.is_loopback
    return parsed.is_loopback


def _is_local_host(url: str) -> bool:
    try:
        split = urlsplit(url)
        host, _ = split.hostname, split.port
    except ValueError:
        return False
    return host in {"localhost", "127.0.0.1", "::1"} and split.path in {"", "/"} and "@" not in split.netloc
