"""``flask agents`` and ``flask doctor``: what this installation offers, and what is wrong with it."""

from __future__ import annotations

import dataclasses
import json

import click
from flask.cli import with_appcontext

from web.commands.asking import AskingCommand, table
from web.doctor import Level, examine, worker_of_this_host
from web.services import services

_MARKS = {Level.OK: "ok     ", Level.WARNING: "warning", Level.WRONG: "WRONG  "}


@click.command(cls=AskingCommand)
@with_appcontext
def agents() -> None:
    """The agents that workers offer."""
    offered = services().store.workers.agents()
    if not offered:
        raise click.ClickException("No worker has offered an agent yet. Start one: celery -A worker worker.")
    live = {name: facts for name, facts in offered.items() if facts["offered"] == "now"}
    if not live:
        click.echo("No worker is up; these agents are known from workers that are gone.", err=True)
    table(
        ("AGENT", "POLICY", "DESCRIPTION"),
        [
            (name, str(facts.get("policy", "")), str(facts.get("description") or ""))
            for name, facts in (live or offered).items()
        ],
    )


@click.command()
@click.option(
    "--worker", "worker_only", is_flag=True, help="Only: has a worker of this host a fresh heartbeat?"
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per finding.")
@click.pass_context
@with_appcontext
def doctor(ctx: click.Context, worker_only: bool, as_json: bool) -> None:
    """Says what is wrong with this set-up; exits with 1 when something is."""
    settings = services().settings
    findings = [worker_of_this_host(settings)] if worker_only else examine(settings)
    for finding in findings:
        if as_json:
            click.echo(json.dumps(dataclasses.asdict(finding)))
        else:
            click.echo(f"{_MARKS[finding.level]}  {finding.topic}: {finding.sentence}")
    if any(finding.level is Level.WRONG for finding in findings):
        ctx.exit(1)
