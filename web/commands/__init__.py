"""The shell commands ``flask runs``, ``flask keys``, ``flask agents`` and ``flask doctor``.

Law: a command reads its words, asks the store and prints; it starts no thread and serves nobody. Whoever may
run it on this machine may do everything, so nobody is authenticated here. Imported by ``web.factory`` only.
"""

from __future__ import annotations

from flask import Flask

from web.commands import key_ring, runs, setup


def register(app: Flask) -> None:
    """Adds every command to the application's command line."""
    app.cli.add_command(runs.group)
    app.cli.add_command(key_ring.group)
    app.cli.add_command(setup.agents)
    app.cli.add_command(setup.doctor)
