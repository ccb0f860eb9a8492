"""The hub against a real Redis: nothing lost, nothing doubled, one connection, every stream ends."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shared.protocol import sse
from shared.settings import Settings
from shared.store import keys
from shared.store.errors import StoreError
from shared.store.log import EventLog
from shared.store.store import Store, open_store
from tests.web.producer import Producer
from web.feed import Feed
from web.hub import Hub, TooManyStreams
from web.reader import Reader


class Client(threading.Thread):
    """Reads one stream to its end."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(daemon=True)
        self.reader = reader
        self.pieces: list[bytes] = []
        self.ended_at = 0.0
        self.start()

    def run(self) -> None:
        for piece in self.reader:
            self.pieces.append(piece)
        self.ended_at = time.monotonic()

    @property
    def text(self) -> bytes:
        """Everything but comments."""
        text = b"".join(self.pieces)
        return b"".join(part + b"\n\n" for part in text.split(b"\n\n") if part and not part.startswith(b":"))

    @property
    def beats(self) -> int:
        return self.pieces.count(sse.HEARTBEAT)

    def finished(self, seconds: float = 20) -> bytes:
        self.join(seconds)
        assert not self.is_alive(), "the stream did not end"
        return self.text


@pytest.fixture
def hub(store: Store, settings: Settings) -> Iterator[Hub]:
    made = Hub(store, settings)
    yield made
    made.close()


def _pubsub_clients(store: Store) -> list[dict[str, Any]]:
    return [
        client for client in store.client.client_list() if int(client["sub"]) > 0 or "P" in client["flags"]
    ]


def test_a_fresh_run_is_streamed_from_its_first_event_to_its_last(store: Store, hub: Hub) -> None:
    run = Producer(store)
    reader = hub.open(run.key)
    run.accept()
    client = Client(reader)
    run.claim()
    for n in range(50):
        run.say(f"word {n}")
    run.finish()
    assert client.finished() == run.log()
    assert hub.stats()["open_streams"] == 0


def test_the_first_bytes_come_before_anything_is_known(hub: Hub) -> None:
    reader = hub.open(Producer(store=None).key)  # type: ignore[arg-type]
    assert next(reader).startswith(b": ")
    reader.close()


def test_readers_that_join_a_fast_run_at_random_moments_miss_and_repeat_nothing(
    store: Store, hub: Hub
) -> None:
    run = Producer(store).start()
    clients: list[Client] = []

    def join() -> None:
        chance = random.Random(7)
        for _ in range(20):
            clients.append(Client(hub.open(run.key)))
            time.sleep(chance.uniform(0, 0.03))

    joiner = threading.Thread(target=join)
    joiner.start()
    for n in range(0, 2000, 4):
        run.say(*[f"delta {n + k} " + "x" * (n % 90) for k in range(4)])
    joiner.join()
    run.finish()
    expected = run.log()
    assert len(clients) == 20
    for client in clients:
        assert client.finished() == expected


def test_a_killed_subscription_is_healed_without_loss_long_before_a_heartbeat(
    store: Store, settings: Settings, eventually: Callable[..., Any]
) -> None:
    hub = Hub(store, settings.model_copy(update={"heartbeat_seconds": 60}))
    run = Producer(store).start()
    clients = [Client(hub.open(run.key)) for _ in range(3)]
    eventually(lambda: all(client.text for client in clients))
    for n in range(200):
        run.say(f"delta {n}")
        if n in {50, 100, 199}:
            store.client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    run.finish()
    for client in clients:
        assert client.finished() == run.log()
    hub.close()


def test_a_terminal_event_whose_message_is_lost_is_found_within_a_heartbeat(
    store: Store, settings: Settings, hub: Hub, eventually: Callable[..., Any]
) -> None:
    run = Producer(store).start()
    client = Client(hub.open(run.key))
    eventually(lambda: client.text)
    terminal = sse.frame(2, b'{"type":"RUN_FINISHED","threadId":"thread","runId":"run"}')
    store.client.rpush(keys.log(run.key), terminal)
    assert client.finished(settings.heartbeat_seconds * 6).endswith(terminal)
    assert hub.stats()["refills"] >= 1


def test_large_events_travel_by_the_log_and_arrive_in_pieces(store: Store, hub: Hub) -> None:
    run = Producer(store).start()
    clients = [Client(hub.open(run.key)) for _ in range(4)]
    for n in range(4):
        run.say("x" * 300_000)
        run.say(f"small {n}")
    run.finish()
    for client in clients:
        assert client.finished() == run.log()
        assert max(map(len, client.pieces)) <= 64 * 1024


def test_a_quiet_stream_gets_heartbeats_also_while_the_run_is_queued(
    store: Store, hub: Hub, eventually: Callable[..., Any]
) -> None:
    run = Producer(store).accept()
    client = Client(hub.open(run.key))
    eventually(lambda: client.beats >= 2)
    run.claim()
    run.finish()
    assert client.finished() == run.log()


def test_150_streams_on_150_runs_use_one_connection_and_leave_nothing_behind(
    store: Store, hub: Hub, eventually: Callable[..., Any]
) -> None:
    runs = [Producer(store, run_id=f"run {n}", thread_id=f"thread {n}").start() for n in range(150)]
    clients = [Client(hub.open(run.key)) for run in runs]
    eventually(lambda: all(client.text for client in clients))
    assert len(_pubsub_clients(store)) == 1
    assert store.ping()
    for run in runs:
        run.say("hello")
        run.finish()
    for client, run in zip(clients, runs, strict=True):
        assert client.finished() == run.log()
    eventually(lambda: hub.stats()["followed_runs"] == 0)
    eventually(lambda: store.client.pubsub_channels("outlast:run:*") == [])


def test_a_run_that_nobody_reads_any_more_is_unsubscribed(
    store: Store, hub: Hub, eventually: Callable[..., Any]
) -> None:
    run = Producer(store).start()
    reader = hub.open(run.key)
    next(reader)
    eventually(lambda: store.client.pubsub_channels("outlast:run:*"))
    reader.close()
    reader.close()
    eventually(lambda: store.client.pubsub_channels("outlast:run:*") == [])
    assert hub.stats()["open_streams"] == 0


def test_one_stream_too_many_is_refused(store: Store, settings: Settings) -> None:
    hub = Hub(store, settings.model_copy(update={"max_streams": 2}))
    key = Producer(store).key
    first, second = hub.open(key), hub.open(key)
    with pytest.raises(TooManyStreams):
        hub.open(key)
    first.close()
    third = hub.open(key)
    second.close()
    third.close()
    hub.close()


def test_closing_the_hub_ends_every_stream_at_once(
    store: Store, settings: Settings, eventually: Callable[..., Any]
) -> None:
    hub = Hub(store, settings.model_copy(update={"heartbeat_seconds": 60}))
    runs = [Producer(store, run_id=f"run {n}").accept() for n in range(10)]
    clients = [Client(hub.open(run.key)) for run in runs]
    eventually(lambda: all(client.text for client in clients))
    hub.close()
    for client in clients:
        client.finished(1)
    late = hub.open(runs[0].key)
    assert b"".join(late).startswith(b": ")


def test_streams_survive_a_restart_of_redis(
    own_server: Any, settings: Settings, eventually: Callable[..., Any]
) -> None:
    here = settings.model_copy(update={"redis_url": own_server.url})
    store = open_store(here)
    hub = Hub(store, here)
    run = Producer(store).start()
    client = Client(hub.open(run.key))
    run.say("before")
    eventually(lambda: b"before" in client.text)
    own_server.kill()
    beats = client.beats
    eventually(lambda: client.beats > beats)
    own_server.restart()
    eventually(lambda: _answers(store))
    run.say("after")
    run.finish()
    assert client.finished() == run.log()
    hub.close()
    store.close()


def _answers(store: Store) -> bool:
    try:
        return store.ping()
    except StoreError:
        return False


def test_a_lost_record_ends_its_streams_with_one_error(
    store: Store, hub: Hub, eventually: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("web.hub.LOST_SECONDS", 1.0)
    run = Producer(store).start()
    run.say("hello")
    client = Client(hub.open(run.key))
    eventually(lambda: b"hello" in client.text)
    store.client.flushall()
    text = client.finished(20)
    assert text.count(b'"RUN_ERROR"') == 1
    assert text.endswith(b'"code":"DISCONNECTED"}\n\n')
    assert b"id: 3" not in text


def test_a_run_whose_tail_was_forgotten_and_that_was_ended_by_others_still_ends_its_streams(
    store: Store, hub: Hub, eventually: Callable[..., Any]
) -> None:
    run = Producer(store).start()
    run.say("one", "two", "three")
    client = Client(hub.open(run.key))
    eventually(lambda: b"three" in client.text)
    store.client.ltrim(keys.log(run.key), 0, 1)
    run.last = 2
    run.finish()
    text = client.finished()
    assert text.count(b"RUN_FINISHED") == 1
    assert text.count(b"three") == 1


def test_waiting_for_the_ending_returns_when_it_is_recorded(store: Store, hub: Hub) -> None:
    run = Producer(store).start()
    assert hub.wait_ended(run.key, 0.05) is False
    answers: list[tuple[bool, float]] = []

    def wait() -> None:
        started = time.monotonic()
        answers.append((hub.wait_ended(run.key, 10), time.monotonic() - started))

    waiting = threading.Thread(target=wait)
    waiting.start()
    run.say("a", "b")
    run.finish()
    waiting.join(5)
    assert answers
    assert answers[0][0] is True
    assert answers[0][1] < 2
    assert hub.wait_ended(run.key, 0) is True
    assert hub.stats()["followed_runs"] <= 1


def test_a_run_accepted_under_an_open_stream_is_read_without_its_log(store, hub, monkeypatch):
    run = Producer(store)
    reader = hub.open(run.key)
    run.accept()
    reader.begin(run.log())
    monkeypatch.setattr(EventLog, "read", lambda *_: pytest.fail("the log was read"))
    assert next(reader).endswith(run.log())
    client = Client(reader)
    run.claim()
    run.say("a", "b")
    run.finish()
    assert client.finished() == run.log(after=1)


def test_what_is_published_before_the_stream_begins_is_not_lost(store, hub, eventually):
    run = Producer(store)
    reader = hub.open(run.key)
    eventually(lambda: reader.feed.confirmed)
    run.start()
    run.say("a")
    eventually(lambda: reader.feed.head == 2)
    reader.begin(store.log.read(run.key, 0, 1)[0])
    run.finish()
    assert Client(reader).finished() == run.log()


def test_what_may_be_published_between_acceptance_and_subscription_is_looked_for(store):
    run = Producer(store).start()
    feed = Feed(run.key)
    assert feed.begin(run.log(), confirmed=False)
    assert feed.confirm(), "the log has to be compared once"
    late = Feed(run.key)
    late.confirm()
    assert not late.begin(run.log(), confirmed=False), "nobody else compares it"
