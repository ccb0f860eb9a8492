"""Who may do what: an actor owns its runs, an operator has a role over everybody's."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Role(StrEnum):
    """An operator's role; each includes the ones before it, ``payloads`` is a right of its own."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    PAYLOADS = "payloads"


_RANK = {Role.VIEWER: 1, Role.OPERATOR: 2, Role.ADMIN: 3}


@dataclass(frozen=True, slots=True)
class Actor:
    """An authenticated principal; ``name`` owns runs, ``roles`` are rights over everybody's runs."""

    name: str
    roles: frozenset[Role] = field(default_factory=frozenset)

    def has(self, role: Role) -> bool:
        """Whether this actor holds the role itself or one that includes it."""
        if role is Role.PAYLOADS:
            return role in self.roles
        return any(_RANK.get(held, 0) >= _RANK[role] for held in self.roles)


def may_see(actor: Actor, owner: str) -> bool:
    """Owners and viewers see a run's record."""
    return actor.name == owner or actor.has(Role.VIEWER)


def may_see_payloads(actor: Actor, owner: str) -> bool:
    """Inputs and events are the owner's; an operator needs a right of its own for them."""
    return actor.name == owner or (actor.has(Role.VIEWER) and actor.has(Role.PAYLOADS))


def may_cancel(actor: Actor, owner: str) -> bool:
    """Owners and operators may ask a run to stop."""
    return actor.name == owner or actor.has(Role.OPERATOR)
