"""Commands that ask the store: a Redis that does not serve us is a sentence, not a traceback."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from flask.cli import AppGroup

from shared.store.errors import StoreError


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise click.ClickException(f"Redis does not serve us: {error}. `flask doctor` says more.") from error


class AskingCommand(click.Command):
    """One command."""

    def invoke(self, ctx: click.Context) -> Any:
        with _told():
            return super().invoke(ctx)


class AskingGroup(AppGroup):
    """A group of them."""

    def invoke(self, ctx: click.Context) -> Any:
        with _told():
            return super().invoke(ctx)


def table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Prints rows in columns."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in (titles, *rows):
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
