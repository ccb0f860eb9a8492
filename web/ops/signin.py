"""Who looks at the pages: a session in a cookie, and forms that only our own pages can send."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from urllib.parse import urlsplit

import jwt
from flask import Response, g, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as Answer

from shared.logs import get_logger
from shared.runs.access import Actor, Role
from shared.store.api_keys import PREFIX
from shared.store.sessions import SESSION_SECONDS, Sessions
from web.identity import local_actor, owner_of
from web.ops.notice import leave_notice
from web.problems import KINDS, Code, Problem
from web.services import Services, services

COOKIE = "outlast_ops"
"""Holds a random token: of a session after signing in, of nobody before."""

FORM_FIELD = "csrf"
LONGEST_TOKEN = 8192

log = get_logger(__name__)


def signed_in() -> Actor | None:
    """Whose session the current request carries; without authentication the local actor.

    Raises the 403 for whoever is not on this machine where authentication is switched off.
    """
    held = services()
    if held.settings.auth == "none":
        return local_actor(held.settings.cors_origins)
    token = request.cookies.get(COOKIE, "")
    return Sessions(held.store.client).find(token) if token else None


def browser_token() -> str:
    """The cookie's token; a new one for a browser that has none is set by ``keep_browser_token``."""
    token: str | None = g.get("browser_token")
    if token is None:
        token = request.cookies.get(COOKIE) or secrets.token_urlsafe(32)
        g.browser_token = token
    return token


def form_token() -> str:
    """What a form must carry: only a page that we sent to this browser can know it."""
    return hashlib.sha256(b"form\0" + browser_token().encode()).hexdigest()


def keep_browser_token(response: Answer) -> None:
    """Sets the cookie when a page was made for a browser that had none, or when it has a new one."""
    token = g.get("browser_token")
    if token is not None and token != request.cookies.get(COOKIE):
        _set(response, token)


def check_form() -> None:
    """Raises the 403 for a form of another site or without this browser's form token."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None:
        own = site == "same-origin"
    else:
        own = origin is None or urlsplit(origin).netloc == request.host
    sent = request.form.get(FORM_FIELD, "")
    known = COOKIE in request.cookies and hmac.compare_digest(sent.encode(), form_token().encode())
    if not (own and known):
        raise Problem(
            Code.FORBIDDEN, "The form did not come from a page of this session. Load the page again."
        )


def inside(address: str | None) -> str:
    """The address to go back to when it is one of our pages, else the first page."""
    home = url_for("dashboard.overview")
    if not address or not address.isprintable() or "\\" in address or not address.startswith(home):
        return home
    return address


# --- views -------------------------------------------------------------------------------------------------


def sign_in_page() -> Answer:
    """The sign-in form; whoever is signed in goes on."""
    following = inside(request.args.get("next"))
    if signed_in() is not None:
        return redirect(following, 303)
    return _form(following)


def sign_in() -> Answer:
    """Takes an API key or a JWT and opens a session."""
    check_form()
    held, following = services(), inside(request.form.get("next"))
    token = request.form.get("token", "").strip()
    try:
        actor = _operator_of(held, token)
    except Problem as problem:
        return _form(following, problem)
    _end_session(held)
    is_key = token.startswith(PREFIX) or not held.tokens.configured
    lifetime = SESSION_SECONDS if is_key else _seconds_left(token)
    g.browser_token = Sessions(held.store.client).open(
        actor, api_key=token if is_key else None, seconds=lifetime
    )
    log.info("operator.signed_in", by=actor.name)
    return redirect(following, 303)


def _operator_of(held: Services, token: str) -> Actor:
    if not 0 < len(token) <= LONGEST_TOKEN:
        raise Problem(Code.UNAUTHENTICATED, "Paste a token.")
    actor = owner_of(held, token)
    if not actor.has(Role.VIEWER):
        detail = f"{actor.name} has no operator role. It needs viewer, operator or admin."
        raise Problem(Code.FORBIDDEN, detail)
    return actor


def sign_out() -> Answer:
    """Ends the session, here and in every other tab."""
    check_form()
    _end_session(services())
    g.browser_token = secrets.token_urlsafe(32)
    return leave_notice(redirect(url_for("dashboard.sign_in_page"), 303), "You are signed out.")


def _form(following: str, problem: Problem | None = None) -> Answer:
    status = KINDS[problem.code].status if problem else 200
    keyless = not services().tokens.configured and not services().store.api_keys.any()
    page = render_template("ops/sign_in.html", following=following, problem=problem, keyless=keyless)
    return Response(page, status=status)


def _end_session(held: Services) -> None:
    token = request.cookies.get(COOKIE)
    if token:
        Sessions(held.store.client).close(token)


def _seconds_left(token: str) -> float:
    # Verified just before; this only reads how long it is good for.
    claims = jwt.decode(token, options={"verify_signature": False})
    return float(claims["exp"]) - time.time()


def _set(response: Answer, token: str) -> None:
    secure = request.is_secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https"
    response.set_cookie(
        COOKIE,
        token,
        max_age=SESSION_SECONDS,
        path=url_for("dashboard.overview").rstrip("/"),
        secure=secure,
        httponly=True,
        samesite="Strict",
    )
