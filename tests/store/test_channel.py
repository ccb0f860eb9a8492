from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shared.local.server import EmbeddedServer
from shared.store.channel import Confirmed, Gap, Happening, Message, Subscription
from shared.store.store import Store


@pytest.fixture
def subscription(redis_server: EmbeddedServer) -> Iterator[Subscription]:
    made = Subscription(redis_server.url)
    yield made
    made.close()


def heard(subscription: Subscription, count: int, seconds: float = 5) -> list[Happening]:
    deadline = time.monotonic() + seconds
    told: list[Happening] = []
    while len(told) < count and time.monotonic() < deadline:
        happening = subscription.get(0.2)
        if happening is not None:
            told.append(happening)
    return told


def test_a_subscription_is_confirmed_before_its_messages(subscription: Subscription, store: Store):
    subscription.subscribe("a")
    assert heard(subscription, 1) == [Confirmed("a")]
    store.client.publish("a", b"\x00\xff")
    assert heard(subscription, 1) == [Message("a", b"\x00\xff")]


def test_another_thread_subscribes_while_one_is_waiting(subscription: Subscription):
    subscription.subscribe("a")
    heard(subscription, 1)
    began = time.monotonic()
    threading.Timer(0.1, subscription.subscribe, ("b",)).start()
    assert subscription.get(5) == Confirmed("b")
    assert time.monotonic() - began < 2


def test_an_unsubscribed_channel_is_silent(
    subscription: Subscription, store: Store, eventually: Callable[..., Any]
):
    subscription.subscribe("a", "b")
    heard(subscription, 2)
    subscription.unsubscribe("a")
    eventually(lambda: store.client.pubsub_numsub("a")[0][1] == 0)
    store.client.publish("a", "no")
    store.client.publish("b", "yes")
    assert heard(subscription, 1) == [Message("b", b"yes")]


def test_a_lost_connection_is_told_as_a_gap_and_confirmed_anew(subscription: Subscription, store: Store):
    subscription.subscribe("a", "b")
    heard(subscription, 2)
    store.client.client_kill_filter(_type="pubsub")
    assert heard(subscription, 3) == [Gap(), Confirmed("a"), Confirmed("b")]
    store.client.publish("b", "still there")
    assert heard(subscription, 1) == [Message("b", b"still there")]


def test_a_server_that_restarts_is_found_again(own_server: EmbeddedServer):
    subscription = Subscription(own_server.url)
    subscription.subscribe("a")
    assert heard(subscription, 1) == [Confirmed("a")]
    own_server.kill()
    assert subscription.get(0.5) is None
    subscription.subscribe("b")
    own_server.restart()
    assert heard(subscription, 3) == [Gap(), Confirmed("a"), Confirmed("b")]
    subscription.close()


def test_closing_wakes_the_thread_that_waits(subscription: Subscription):
    subscription.subscribe("a")
    heard(subscription, 1)
    threading.Timer(0.1, subscription.close).start()
    began = time.monotonic()
    assert subscription.get(30) is None
    assert time.monotonic() - began < 3
    assert subscription.get(30) is None


def test_a_silent_connection_is_asked_whether_it_lives(
    subscription: Subscription, store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shared.store.channel.IDLE_SECONDS", 0.2)
    subscription.subscribe("a")
    heard(subscription, 1)
    before = store.client.info("commandstats").get("cmdstat_ping", {"calls": 0})["calls"]
    assert subscription.get(1.0) is None
    assert subscription.connected
    assert store.client.info("commandstats")["cmdstat_ping"]["calls"] > before
