"""What an action came to, told on the next page: a cookie that lives until it is shown."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TypeVar

from flask import request, url_for
from werkzeug.wrappers import Response

COOKIE = "outlast_notice"
SECONDS = 30
LONGEST = 600

AnyResponse = TypeVar("AnyResponse", bound=Response)


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence; ``bad`` when nothing was done."""

    text: str
    bad: bool = False


def leave_notice(response: AnyResponse, text: str, *, bad: bool = False) -> AnyResponse:
    """Has the next page say it."""
    value = base64.urlsafe_b64encode(json.dumps([text[:LONGEST], bad]).encode()).decode()
    response.set_cookie(
        COOKIE,
        value,
        max_age=SECONDS,
        path=_path(),
        httponly=True,
        samesite="Strict",
        secure=request.is_secure,
    )
    return response


def take_notice() -> Notice | None:
    """What the action before this page left, if any."""
    value = request.cookies.get(COOKIE)
    if not value:
        return None
    try:
        text, bad = json.loads(base64.urlsafe_b64decode(value))
    except (ValueError, TypeError, binascii.Error):
        return None
    return Notice(str(text)[:LONGEST], bool(bad))


def forget_notice(response: Response) -> None:
    """Called when a page has shown it."""
    if COOKIE in request.cookies and "Set-Cookie" not in response.headers:
        response.delete_cookie(COOKIE, path=_path())


def _path() -> str:
    return url_for("dashboard.overview").rstrip("/")
