"""What an operator may do, by role; who only owns runs has no business here."""

from __future__ import annotations

from shared.runs.access import Actor, Role
from web.problems import Code, Problem

ACTIONS: dict[str, Role] = {
    "view": Role.VIEWER,
    "cancel": Role.OPERATOR,
    "bulk": Role.OPERATOR,
    "retry": Role.OPERATOR,
    "requeue": Role.OPERATOR,
    "terminate": Role.ADMIN,
    "mark_lost": Role.ADMIN,
    "pause": Role.ADMIN,
    "drain": Role.ADMIN,
    "payloads": Role.PAYLOADS,
}
"""Action -> the least role that may do it."""


def require(actor: Actor, role: Role) -> None:
    """Raises the 403 that names the role that is missing."""
    if not actor.has(role):
        word = "right" if role is Role.PAYLOADS else "role"
        raise Problem(Code.FORBIDDEN, f"This needs the {word} {role}.")


def operator_rights(actor: Actor) -> dict[str, bool]:
    """Action -> whether the actor may do it."""
    return {action: actor.has(role) for action, role in ACTIONS.items()}
