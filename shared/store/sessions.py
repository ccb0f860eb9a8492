"""Sessions of the operators' pages: a random token in a cookie, and behind it whose it is.

They live here and not in a signed cookie, so that every web process knows them without a shared secret,
signing out ends them, and a revoked API key ends all of its own.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any

from shared.runs.access import Actor, Role
from shared.store import keys
from shared.store.connection import Client, ask

SESSION_SECONDS = 12 * 3600
"""Longest life of a session: one shift."""


class Sessions:
    """Methods raise ``StoreError`` when Redis does not answer."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def open(self, actor: Actor, *, api_key: str | None = None, seconds: float = SESSION_SECONDS) -> str:
        """A new session's token. With ``api_key`` it has the key's present roles and ends with the key."""
        token = secrets.token_urlsafe(32)
        facts: dict[str, Any] = {"actor": actor.name, "roles": sorted(map(str, actor.roles))}
        if api_key is not None:
            facts["key"] = _digest(api_key)
        lifetime = max(1, int(min(seconds, SESSION_SECONDS)))
        ask(lambda: self.client.set(keys.session(_digest(token)), json.dumps(facts), ex=lifetime))
        return token

    def find(self, token: str) -> Actor | None:
        """Whose session this is; None for one that is over or never was."""
        stored = ask(lambda: self.client.get(keys.session(_digest(token))))
        if stored is None:
            return None
        facts = json.loads(stored)
        if "key" in facts:
            stored = ask(lambda: self.client.hget(keys.API_KEYS, facts["key"]))
            if stored is None:
                return None
            facts = json.loads(stored)
        return Actor(facts["actor"], frozenset(Role(role) for role in facts["roles"]))

    def close(self, token: str) -> None:
        """Ends a session; harmless when it is over."""
        ask(lambda: self.client.delete(keys.session(_digest(token))))


def _digest(secret: str) -> str:
    # Both kinds are 32 random bytes; the hash of a key is how the key ring stores it.
    return hashlib.sha256(secret.encode()).hexdigest()
