"""Keeps an open page fresh: one stream per visible tab, which sends the regions that changed.

Tabs that look at the same share one reading of the store per tick. Where streams do not get through, the
script asks ``poll`` for the same regions every few seconds.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

from flask import Response, current_app, g, request, stream_with_context
from werkzeug.datastructures import MultiDict

from shared.runs.access import Actor
from shared.store.errors import StoreError
from web.api.answers import stream_answer
from web.hub import Hub
from web.memo import Memo
from web.ops.look import Look, Parts, View
from web.ops.pages import overview, plant, run, runs
from web.ops.signin import inside, signed_in
from web.problems import Code, Problem
from web.services import Services, services

VIEWS: dict[str, View] = {
    "overview": overview.VIEW,
    "runs": runs.VIEW,
    "run": run.VIEW,
    "workers": plant.WORKERS,
    "queues": plant.QUEUES,
    "bulk": plant.BULK,
    "audit": plant.AUDIT,
}

TICK_SECONDS = 1.0
"""Pause between two looks at the store."""

BEAT_TICKS = 3
"""After so many ticks without a change a stream says that it lives."""

MOST_STREAMS = 256
"""Open pages of one process; further ones poll."""

_AGES = re.compile(r"(<time [^>]*data-ago(?:=\"for\")?>)[^<]*")


class Seats:
    """The open streams of this process, and what their tabs read within one tick."""

    def __init__(self) -> None:
        self.readings: Memo[Any, Any] = Memo(TICK_SECONDS * 0.8, most=512)
        self._taken = 0
        self._lock = threading.Lock()

    def take(self) -> None:
        """Raises the 503 when all are taken."""
        with self._lock:
            if self._taken >= MOST_STREAMS:
                raise Problem(Code.TOO_MANY_STREAMS, "Too many pages are open; this one polls.")
            self._taken += 1

    def leave(self) -> None:
        """Gives one back."""
        with self._lock:
            self._taken -= 1


def stream() -> Response:
    """The regions of one page as they change, until the tab is closed or hidden."""
    view, seats = _view(), _seats()
    seats.take()
    response = stream_answer(_ticks(view, seats))
    response.call_on_close(seats.leave)
    return response


def poll() -> Response:
    """The same regions once."""
    view, look = _view(), _look(services(), g.actor)
    parts = view.parts(look, view.read(look))
    return Response("".join(_partial(name, html) for name, html in parts.items()))


def _ticks(view: View, seats: Seats) -> Iterator[bytes]:
    held, actor, sent, idle = services(), g.actor, dict[str, str](), 0

    def ticks() -> Iterator[bytes]:
        nonlocal actor, idle
        yield b": open\n\n"
        while not cast("Hub", held.hub).closed:
            try:
                actor = signed_in()
                if actor is None:
                    yield b"event: signedout\ndata: .\n\n"
                    return
                look = _look(held, actor)
                # What another tab read just before this page was made must not turn it back.
                found = _read(seats, look) if sent else view.read(look)
                changed = _changed(view.parts(look, found), sent)
                idle = 0 if changed else idle + 1
                if changed:
                    yield _message(changed)
                elif idle % BEAT_TICKS == 0:
                    yield b"event: beat\ndata: .\n\n"
            except StoreError:
                yield b"event: trouble\ndata: .\n\n"
            except Problem:
                # The run is past its retention, or the role was taken away.
                yield b"event: gone\ndata: .\n\n"
                return
            time.sleep(TICK_SECONDS)

    return cast("Iterator[bytes]", stream_with_context(ticks()))


def _look(held: Services, actor: Actor) -> Look:
    return Look(held, actor, request.args, inside(request.args.get("back")))


def _read(seats: Seats, look: Look) -> Any:
    view = look.args["view"]
    place = (view, look.actor.name, look.actor.roles, _place(look.args))
    return seats.readings.get(place, lambda: VIEWS[view].read(look))


def _place(args: MultiDict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in args.items(multi=True) if name != "back"))


def _changed(parts: Parts, sent: dict[str, str]) -> dict[str, str]:
    """The regions that say something new; ages alone are the script's business."""
    changed = {}
    for name, html in parts.items():
        lasting = _AGES.sub(r"\1", html)
        if sent.get(name) != lasting:
            sent[name], changed[name] = lasting, str(html)
    return changed


def _message(parts: dict[str, str]) -> bytes:
    html = "".join(_partial(name, text) for name, text in parts.items())
    return b"".join(b"data: %b\n" % line.encode() for line in html.splitlines() if line.strip()) + b"\n"


def _partial(name: str, html: str) -> str:
    return f'<hx-partial hx-target="#p-{name}" hx-swap="innerMorph">{html}</hx-partial>'


def _view() -> View:
    found = VIEWS.get(request.args.get("view", ""))
    if found is None or (found is run.VIEW and "key" not in request.args):
        raise Problem(Code.NOT_FOUND, "There is no such view.")
    return found


def _seats() -> Seats:
    held: Seats = current_app.extensions.setdefault("outlast_seats", Seats())
    return held
