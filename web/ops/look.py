"""One look at a page: who looks, at what, and what may be done there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flask import render_template
from markupsafe import Markup
from werkzeug.datastructures import MultiDict

from shared.runs.access import Actor
from web.ops.board import Board
from web.ops.rights import operator_rights
from web.services import Services

Found = dict[str, Any]
Parts = dict[str, Markup]


@dataclass(frozen=True)
class Look:
    """What a page and every tick of its stream are made from; ``args`` is the page's query."""

    held: Services
    actor: Actor
    args: MultiDict[str, str]
    back: str

    @cached_property
    def board(self) -> Board:
        """What this actor sees; raises the 403 for who is no viewer."""
        return Board(self.held, self.actor)

    @cached_property
    def rights(self) -> dict[str, bool]:
        """Action -> whether this actor may do it."""
        return operator_rights(self.actor)

    def part(self, name: str, **values: Any) -> Markup:
        """A rendered region of a page."""
        return Markup(  # noqa: S704 - a template's output, escaped where it is made
            render_template(f"ops/parts/{name}.html", look=self, rights=self.rights, **values).strip()
        )


@dataclass(frozen=True, slots=True)
class View:
    """A live page: ``read`` asks the store, ``parts`` renders the regions that its stream keeps fresh."""

    read: Callable[[Look], Found]
    parts: Callable[[Look, Found], Parts]
