"""The client: connections that the server closed, answers that are errors, and a bounded wait."""

from __future__ import annotations

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from shared.store import client as client_module
from shared.store.client import Connections
from shared.store.store import Store


def _kill_others(store: Store) -> None:
    """Has the server close every connection but the one that asks."""
    store.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def _hold(store: Store, count: int) -> None:
    """Leaves so many connected connections idle."""
    connections = store.client._connections
    held = [connections.take() for _ in range(count)]
    for connection in held:
        connection.connect()
        connections.give(connection)


def test_a_connection_that_was_closed_while_it_idled_is_made_anew(store, monkeypatch):
    monkeypatch.setattr(client_module, "TRUSTED_SECONDS", 0.0)
    _hold(store, 3)
    _kill_others(store)
    assert [store.client.ping() for _ in range(3)] == [True, True, True]


def test_after_one_failure_the_other_idle_connections_are_not_trusted(store, monkeypatch):
    monkeypatch.setattr(client_module, "TRUSTED_SECONDS", 60.0)
    _hold(store, 3)
    connections = store.client._connections
    connections._idle.rotate(1)
    _kill_others(store)
    connections._idle.rotate(1)
    with pytest.raises(RedisConnectionError):
        store.client.ping()
    _hold(store, 3)
    assert store.client.ping()


def test_an_answer_that_is_an_error_leaves_the_connection_usable(store):
    store.client.set("text", "x")
    with pytest.raises(ResponseError):
        store.client.lpush("text", "y")
    assert store.client.get("text") == b"x"


def test_a_pipeline_answers_in_order_and_says_which_command_failed(store):
    pipeline = store.client.pipeline(transaction=False)
    pipeline.set("text", "x")
    pipeline.lpush("text", "y")
    pipeline.hgetall("nothing")
    first, second, third = pipeline.execute(raise_on_error=False)
    assert (first, third) == (True, {})
    assert isinstance(second, ResponseError)
    with pytest.raises(ResponseError):
        pipeline.lpush("text", "y").execute()
    assert store.client.get("text") == b"x"


def test_a_transaction_is_still_one(store):
    pipeline = store.client.pipeline(transaction=True)
    pipeline.incr("count")
    pipeline.incr("count")
    assert pipeline.execute() == [1, 2]


def test_the_wait_for_a_connection_is_bounded(store):
    connections = Connections(store.client.connection_pool, most=1, patience=0.01)
    taken = connections.take()
    with pytest.raises(RedisConnectionError):
        connections.take()
    connections.give(taken)
    assert connections.take() is taken
