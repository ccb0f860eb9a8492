"""The HTTP interface of agents and runs: accept, list, read, stream, cancel.

Law: one file per resource; a view reads the request, asks the store or the hub, and answers. What a run is
and who may what is decided in ``shared.runs``, how a refusal looks in ``web.problems``. Imported by
``web.factory`` only.
"""

from __future__ import annotations

from flask import Flask

from web.api import agents, cancel, description, events, runs, threads


def register(app: Flask) -> None:
    """Puts all routes of this package into the application."""
    for module in (agents, runs, threads, events, cancel, description):
        app.register_blueprint(module.blueprint)
