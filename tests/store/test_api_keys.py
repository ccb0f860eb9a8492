"""API keys: shown once, stored as hashes."""

from __future__ import annotations

from shared.runs.access import Role


def test_a_key_finds_its_actor_and_is_nowhere_stored(store):
    secret, made = store.api_keys.create("ann", frozenset({Role.OPERATOR}))
    found = store.api_keys.find(secret)
    assert (found.actor.name, found.actor.has(Role.OPERATOR), found.key_id) == ("ann", True, made.key_id)
    dump = b"".join(value for field in store.client.hgetall("outlast:api-keys").items() for value in field)
    assert secret.encode() not in dump


def test_a_revoked_or_made_up_key_finds_nobody(store):
    secret, made = store.api_keys.create("ann")
    assert store.api_keys.find("ol_wrong") is None
    assert store.api_keys.revoke(made.key_id)
    assert store.api_keys.find(secret) is None
    assert not store.api_keys.any()
