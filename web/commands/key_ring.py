"""``flask keys``: API keys, shown once and stored as hashes."""

from __future__ import annotations

import click

from shared.runs.access import Role
from shared.runs.record import rfc3339
from web.commands.asking import AskingGroup, table
from web.services import services

group = AskingGroup("keys", help="API keys: create, list, revoke.")


@group.command()
@click.argument("name")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice([str(role) for role in Role]),
    help="A right over everybody's runs; may be given more than once.",
)
def create(name: str, roles: tuple[str, ...]) -> None:
    """Makes a key for the actor NAME and prints it, this once."""
    if not name.strip():
        raise click.BadParameter("an actor needs a name", param_hint="NAME")
    secret, made = services().store.api_keys.create(name, frozenset(map(Role, roles)))
    click.echo(secret)
    click.echo(f"Key {made.key_id} of {name}; it is not stored and not shown again.", err=True)


@group.command("list")
def list_keys() -> None:
    """Every key by its id; the keys themselves are not stored."""
    rows = [
        (key.key_id, key.actor.name, ",".join(sorted(key.actor.roles)) or "-", rfc3339(key.created_at))
        for key in services().store.api_keys.list()
    ]
    table(("ID", "ACTOR", "ROLES", "CREATED"), rows)


@group.command()
@click.argument("key_id", metavar="ID")
def revoke(key_id: str) -> None:
    """Takes a key away; web processes honour it for some seconds more."""
    if not services().store.api_keys.revoke(key_id):
        raise click.ClickException(f"There is no key {key_id}; `flask keys list` shows them.")
    click.echo(f"Key {key_id} is revoked.")
