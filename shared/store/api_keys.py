"""API keys: only their hashes are stored; the key itself is shown once."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass

from shared.runs.access import Actor, Role
from shared.store import keys
from shared.store.connection import Client, ask

PREFIX = "ol_"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is known of a key: a short id, whose it is, its roles, when it was made (ms)."""

    key_id: str
    actor: Actor
    created_at: int


def _hash(secret: str) -> str:
    # The key is 32 random bytes: a slow password hash would only slow every request down.
    return hashlib.sha256(secret.encode()).hexdigest()


class ApiKeys:
    """The key ring. Methods raise ``StoreError`` when Redis does not answer."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def create(self, actor: str, roles: frozenset[Role] = frozenset()) -> tuple[str, ApiKey]:
        """A new key for ``actor``: its text, to be shown once, and what is stored of it."""
        secret = PREFIX + secrets.token_urlsafe(32)
        digest = _hash(secret)
        seconds, micros = ask(self.client.time)
        facts = {
            "id": digest[:12],
            "actor": actor,
            "roles": sorted(map(str, roles)),
            "created_at": int(seconds) * 1000 + int(micros) // 1000,
        }
        ask(lambda: self.client.hset(keys.API_KEYS, digest, json.dumps(facts)))
        return secret, _read(json.dumps(facts))

    def find(self, secret: str) -> ApiKey | None:
        """Whose key this is, or None."""
        facts = ask(lambda: self.client.hget(keys.API_KEYS, _hash(secret)))
        return _read(facts) if facts else None

    def any(self) -> bool:
        """Whether a key was ever made and not revoked."""
        return bool(ask(lambda: self.client.hlen(keys.API_KEYS)))

    def list(self) -> list[ApiKey]:
        """Every key, oldest first."""
        stored = ask(lambda: self.client.hvals(keys.API_KEYS))
        return sorted((_read(facts) for facts in stored), key=lambda key: key.created_at)

    def revoke(self, key_id: str) -> bool:
        """Takes a key away by its short id."""
        stored = ask(lambda: self.client.hgetall(keys.API_KEYS))
        found = [digest for digest, facts in stored.items() if json.loads(facts)["id"] == key_id]
        return bool(found) and bool(ask(lambda: self.client.hdel(keys.API_KEYS, *found)))


def _read(facts: bytes | str) -> ApiKey:
    stored = json.loads(facts)
    roles = frozenset(Role(role) for role in stored["roles"])
    return ApiKey(stored["id"], Actor(stored["actor"], roles), int(stored["created_at"]))
