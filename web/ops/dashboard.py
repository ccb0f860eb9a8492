"""The pages for operators as one blueprint: its routes, who gets in, what every answer carries."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, Flask, g, redirect, render_template, request, url_for
from flask import Response as FlaskResponse
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

from shared.logs import get_logger
from shared.store.errors import StoreError
from web import openapi
from web.identity import SESSION_PAGES
from web.ops import acting, audit_file, live, notice, signin, wording
from web.ops.acting import look_here
from web.ops.look import Look, View
from web.ops.pages import history, overview, run, runs
from web.ops.rights import operator_rights
from web.problems import KINDS, Code, Problem
from web.services import services

STATIC = Path(__file__).parents[1] / "static"

blueprint = Blueprint(SESSION_PAGES, __name__, url_prefix="/ops", static_folder=STATIC)

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
THEMES = ("system", "light", "dark")
THEME_COOKIE = "outlast_theme"
FRAGMENT_HEADER = "Outlast-Fragment"
LARGEST_FORM = 64 * 1024

_OPEN = {f"{SESSION_PAGES}.{name}" for name in ("static", "sign_in_page", "sign_in")}

log = get_logger(__name__)


# --- who gets in, what answers carry -----------------------------------------------------------------------


@blueprint.before_request
def _enter() -> Response | None:
    request.max_content_length = LARGEST_FORM
    if request.endpoint in _OPEN:
        return None
    actor = signin.signed_in()
    if actor is None:
        following = request.full_path.rstrip("?") if request.method == "GET" else None
        if request.endpoint in {f"{SESSION_PAGES}.stream", f"{SESSION_PAGES}.poll"}:
            return FlaskResponse("Sign in.", status=401, content_type="text/plain")
        return redirect(url_for("dashboard.sign_in_page", next=following), 303)
    g.actor = actor
    if request.method == "POST":
        signin.check_form()
    return None


@blueprint.after_request
def _leave(response: Response) -> Response:
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    # Without an address of its own a form's Origin would be null.
    response.headers["Referrer-Policy"] = "same-origin"
    response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
    if request.endpoint == f"{SESSION_PAGES}.static":
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response
    response.headers.setdefault("Cache-Control", "no-store")
    if g.get("notice_shown"):
        notice.forget_notice(response)
    signin.keep_browser_token(response)
    return response


@blueprint.context_processor
def _every_page() -> dict[str, Any]:
    actor = g.get("actor")
    theme = request.cookies.get(THEME_COOKIE, "system")
    return {
        "actor": actor,
        "may": operator_rights(actor) if actor else {},
        "form_token": signin.form_token,
        "fragment": FRAGMENT_HEADER in request.headers,
        "take_notice": _take_notice,
        "theme": theme if theme in THEMES else "system",
        "themes": THEMES,
        "now": datetime.now(UTC).isoformat(),
        "here": request.full_path.rstrip("?"),
        "link": link,
        "asset": asset,
        "start_command": _start_command(),
        "local": services().settings.auth == "none",
    }


def _start_command() -> str:
    # The shell makes ids that are new each time: a run that is there already would only be told again.
    ids = """{"threadId": "t-'$(date +%s)'", "runId": "r-'$(date +%s)'", """
    given = ids + '"messages": [{"id": "1", "role": "user", "content": "hello"}]}'
    where = f"curl -N {request.host_url}agents/demo"
    return f"{where} \\\n  -H 'Content-Type: application/json' \\\n  -d '{given}'"


def _take_notice() -> notice.Notice | None:
    g.notice_shown = True
    return notice.take_notice()


def link(view: str, pairs: Sequence[tuple[str, str]] = (), **values: Any) -> str:
    """The address of a page with a query; values that are lists are repeated."""
    address = url_for(f"dashboard.{view}", **values)
    return f"{address}{'&' if '?' in address else '?'}{urlencode(pairs)}" if pairs else address


@cache
def _digest(name: str) -> str:
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]


def asset(name: str) -> str:
    """The address of a file of ours; it changes with the file, so that browsers may keep it."""
    return url_for("dashboard.static", filename=name, v=_digest(name))


# --- refusals ----------------------------------------------------------------------------------------------


@blueprint.errorhandler(Problem)
def _problem(problem: Problem) -> tuple[str, int]:
    kind = KINDS[problem.code]
    return render_template("ops/problem.html", title=kind.title, detail=problem.detail), kind.status


@blueprint.errorhandler(StoreError)
def _store_error(error: StoreError) -> tuple[str, int]:
    log.warning(
        "http.store_unavailable", error=type(error).__name__, path=request.path, method=request.method
    )
    detail = acting.store_trouble(error)
    return render_template("ops/problem.html", title=KINDS[Code.STORE_UNAVAILABLE].title, detail=detail), 503


@blueprint.errorhandler(Exception)
def _failed(error: Exception) -> tuple[str, int] | HTTPException:
    if isinstance(error, HTTPException):
        status = error.code or 500
        if status < 400 or request.endpoint == f"{SESSION_PAGES}.static":
            return error
        return render_template("ops/problem.html", title=error.name, detail="Go back and try again."), status
    incident = secrets.token_hex(6)
    log.error("http.failed", incident=incident, path=request.path, method=request.method, exc_info=error)
    detail = f"Name the incident {incident} when you report it."
    return render_template("ops/problem.html", title=KINDS[Code.INTERNAL].title, detail=detail), 500


# --- pages -------------------------------------------------------------------------------------------------


def _page(name: str, view: str, look: Look, stream: Sequence[tuple[str, str]] = (), **values: Any) -> str:
    shown: View = live.VIEWS[view]
    found = values.pop("found", None) or shown.read(look)
    streamed = [("view", view), *stream, ("back", look.back)]
    return render_template(
        f"ops/{name}.html",
        look=look,
        rights=look.rights,
        found=found,
        parts=shown.parts(look, found),
        stream_url=link("stream", streamed),
        poll_url=link("poll", streamed),
        **values,
    )


def _overview() -> str:
    """What needs a person, and how everything goes."""
    return _page("overview", "overview", look_here())


def _runs() -> str:
    """Runs that match a filter."""
    look = look_here()
    found = runs.VIEW.read(look)
    values = runs.page_values(look, found)
    return _page("runs", "runs", look, **values)


def _run(key: str) -> str:
    """One run."""
    query = MultiDict(request.args)
    query["key"] = key
    here = look_here()
    look = Look(here.held, here.actor, query, here.back)
    found = run.VIEW.read(look)
    stream = [
        (name, value) for name, value in query.items(multi=True) if name not in {"tail", "view", "back"}
    ]
    if found.get("follow"):
        stream.append(("tail", "1"))
    return _page(
        "run",
        "run",
        look,
        stream,
        found=found,
        tabs=run.TABS,
        record_rows=run.record_rows(found["run"]),
        attempts=run.attempts(found["run"]),
    )


def _download(key: str) -> FlaskResponse:
    """A run's events, one JSON object per line."""
    return run.download(look_here(), key)


def _download_input(key: str) -> FlaskResponse:
    """What the run was given, as it was sent."""
    return run.download_input(look_here(), key)


def _audit_export() -> FlaskResponse:
    """The whole audit as a file."""
    return audit_file.answer(look_here().board, request.args.get("format", "csv"))


def _small(name: str, view: str, *kept: str) -> str:
    query = [(arg, request.args[arg]) for arg in kept if arg in request.args]
    return _page(name, view, look_here(), query)


def _workers() -> str:
    """The workers and what they have."""
    return _small("workers", "workers")


def _queues() -> str:
    """The queue and its switch."""
    return _small("queues", "queues")


def _audit() -> str:
    """What operators did."""
    return _small("audit", "audit", "cursor", "run")


def _banner(look: Look) -> dict[str, Any]:
    return {"banner": overview.banner(look, look.board.banner())}


def _bulks() -> str:
    """Bulk cancels, the newest first."""
    look = look_here()
    return render_template("ops/bulks.html", look=look, bulks=look.board.bulks(50), parts=_banner(look))


def _bulk(bulk: str) -> str:
    """One bulk cancel as it goes on."""
    here = look_here()
    look = Look(here.held, here.actor, MultiDict([("id", bulk)]), here.back)
    return _page("bulk", "bulk", look, [("id", bulk)])


def _system() -> str:
    """Redis, settings, versions, what is wrong with them."""
    look = look_here()
    return render_template("ops/system.html", look=look, found=look.board.system(), parts=_banner(look))


def _metrics() -> str:
    """A day in minutes."""
    look = look_here()
    return render_template("ops/metrics.html", look=look, **history.page_values(look))


def _theme() -> Response:
    """Light, dark, or as the system says."""
    response = redirect(signin.inside(request.form.get("back")), 303)
    theme = request.form.get("theme", "system")
    path = url_for("dashboard.overview").rstrip("/")
    response.set_cookie(THEME_COOKIE, theme, max_age=31_536_000, path=path, samesite="Strict", httponly=True)
    return response


_ROUTES: tuple[tuple[str, str, str, Any], ...] = (
    ("GET", "/sign-in", "sign_in_page", signin.sign_in_page),
    ("POST", "/sign-in", "sign_in", signin.sign_in),
    ("POST", "/sign-out", "sign_out", signin.sign_out),
    ("POST", "/theme", "theme", _theme),
    ("GET", "/", "overview", _overview),
    ("GET", "/runs", "runs", _runs),
    ("GET", "/runs/selected", "ask_selected", acting.ask_selected),
    ("POST", "/runs/selected", "do_selected", acting.do_selected),
    ("GET", "/runs/<key>", "run", _run),
    ("GET", "/runs/<key>/events.ndjson", "download", _download),
    ("GET", "/runs/<key>/input.json", "download_input", _download_input),
    ("GET", "/runs/<key>/<act>", "ask_run", acting.ask_run),
    ("POST", "/runs/<key>/<act>", "do_run", acting.do_run),
    ("GET", "/bulk", "bulks", _bulks),
    ("POST", "/bulk", "do_bulk", acting.do_bulk),
    ("GET", "/bulk/new", "ask_bulk", acting.ask_bulk),
    ("GET", "/bulk/<bulk>", "bulk", _bulk),
    ("POST", "/bulk/<bulk>/stop", "stop_bulk", acting.stop_bulk),
    ("POST", "/bulk/<bulk>/retry", "retry_bulk", acting.retry_bulk),
    ("GET", "/workers", "workers", _workers),
    ("GET", "/workers/<worker>/<act>", "ask_worker", acting.ask_worker),
    ("POST", "/workers/<worker>/<act>", "do_worker", acting.do_worker),
    ("GET", "/queues", "queues", _queues),
    ("GET", "/queues/<act>", "ask_queue", acting.ask_queue),
    ("POST", "/queues/<act>", "do_queue", acting.do_queue),
    ("GET", "/audit", "audit", _audit),
    ("GET", "/audit/export", "audit_export", _audit_export),
    ("GET", "/metrics", "metrics", _metrics),
    ("GET", "/system", "system", _system),
    ("GET", "/stream", "stream", live.stream),
    ("GET", "/poll", "poll", live.poll),
)

for _method, _rule, _name, _show in _ROUTES:
    blueprint.add_url_rule(_rule, _name, _show, methods=[_method])


def register(app: Flask) -> None:
    """Puts the pages into the application."""
    wording.register(app)
    app.register_blueprint(blueprint)
    openapi.leave_out(app, blueprint.name)
