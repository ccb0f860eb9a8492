"""Builds the Flask application; connects to nothing and starts nothing."""

from __future__ import annotations

from flask import Flask

from shared import logs
from shared.settings import Settings, load
from web import api, commands, cors, identity, problems, request_context, spans
from web.hub import Hub
from web.ops import api as ops_api
from web.ops import dashboard, health, metrics
from web.services import ServiceHolder


def create_app(settings: Settings | None = None) -> Flask:
    """The application over ``settings``, those of the environment by default.

    Connections, the hub's threads and the sweep start with the first request of each process.
    ``app.extensions["outlast"].close()`` ends the process's streams at once.
    """
    chosen = settings or load()
    logs.configure(chosen.log_level, chosen.log_format)
    app = Flask("web", static_folder=None)
    app.url_map.merge_slashes = False
    holder = ServiceHolder(chosen, Hub)
    app.extensions["outlast"] = holder
    request_context.register(app)
    spans.register(app)
    cors.register(app, chosen.cors_origins)
    identity.register(app)
    app.before_request(holder.serving)
    problems.register(app)
    api.register(app)
    for room in (health, metrics, ops_api):
        app.register_blueprint(room.blueprint)
    commands.register(app)
    dashboard.register(app)
    return app
