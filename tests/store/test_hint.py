"""The queue message that acceptance itself pushes: exactly one for a ready run, in the same step."""

from __future__ import annotations

import json
from threading import Barrier, Thread

import pytest
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.protocol import events, sse
from shared.queue import TASK, Queue
from shared.runs.identity import RunIdentity
from shared.store.answers import Accepted
from shared.store.store import Store

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def queue(settings, store) -> Queue:
    return Queue(settings, store)


def submit(store: Store, queue: Queue, run_id: str = "r1", **how: str) -> Accepted:
    """Accepts a run as the web process does."""
    identity = RunIdentity("ann", "t1", run_id)
    return store.runs.accept(
        identity,
        agent="echo",
        run_input=b"{}",
        started_frame=sse.frame(1, events.dump(events.run_started("t1", run_id))),
        hint=queue.hint(identity.key),
        **how,
    )


def messages(store: Store, queue: Queue) -> list[str]:
    """The run keys of the messages in the queue, the next to be taken first."""
    found = store.client.lrange(queue.settings.queue, 0, -1)
    return [json.loads(message)["headers"]["id"] for message in reversed(found)]


def test_a_ready_run_has_its_message_as_soon_as_it_is_accepted(store, queue):
    assert submit(store, queue).state == "ready"
    assert messages(store, queue) == [RunIdentity("ann", "t1", "r1").key]
    assert queue.depth() == 1


def test_the_message_is_the_one_that_an_enqueue_would_send(store, queue):
    name, pushed = queue.hint("b0key", TRACEPARENT)
    queue.enqueue("b0key", TRACEPARENT)
    sent = json.loads(store.client.lpop(name))
    ours = json.loads(pushed)
    assert ours["properties"].pop("delivery_tag") != sent["properties"].pop("delivery_tag")
    assert ours == sent
    assert ours["headers"]["traceparent"] == TRACEPARENT


def test_celery_itself_takes_the_pushed_message_from_its_queue(store, queue):
    submit(store, queue)
    with queue.app.connection_for_read() as connection:
        got = queue.app.amqp.queues[queue.settings.queue].bind(connection.default_channel).get(no_ack=True)
    assert got.headers["task"] == TASK
    assert got.decode()[0] == [RunIdentity("ann", "t1", "r1").key]
    assert queue.depth() == 0


def test_the_configured_queue_gets_it(settings, store):
    elsewhere = Queue(settings.model_copy(update={"queue": "runs of the night"}), store)
    submit(store, elsewhere)
    assert len(messages(store, elsewhere)) == 1
    assert store.queue_depth(settings.queue) == 0


def test_a_run_that_waits_for_its_turn_has_none(store, queue):
    submit(store, queue, "r1")
    assert submit(store, queue, "r2").state == "waiting"
    assert submit(store, queue, "r3", policy="interrupt").state == "waiting"
    assert len(messages(store, queue)) == 1


def test_a_refused_run_and_one_that_is_known_have_none(store, queue):
    submit(store, queue, "r1")
    assert submit(store, queue, "r1").state == "known"
    assert submit(store, queue, "r2", policy="reject").state == "busy"
    assert len(messages(store, queue)) == 1


def test_a_submit_whose_answer_was_lost_is_pushed_once(store, queue, monkeypatch):
    script, asked = store.runs.scripts.accept, []

    def lose_the_first_answer(client, *call, run=script.run):
        asked.append(run(client, *call))
        if len(asked) == 1:
            raise RedisTimeoutError("lost")
        return asked[-1]

    monkeypatch.setattr(script, "run", lose_the_first_answer)
    assert submit(store, queue).state == "ready"
    assert len(asked) == 2
    assert len(messages(store, queue)) == 1


def test_twenty_submits_of_one_identity_push_once(store, queue):
    gate = Barrier(20)

    def race() -> None:
        gate.wait()
        submit(store, queue)

    threads = [Thread(target=race) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(messages(store, queue)) == 1


def test_a_queue_that_cannot_be_written_refuses_no_run(store, queue):
    store.client.set(queue.settings.queue, "somebody's text")
    assert submit(store, queue).state == "ready"
    assert store.runs.get(RunIdentity("ann", "t1", "r1").key).status == "queued"


@pytest.mark.parametrize("broker", ["amqp://rabbit//", "redis://127.0.0.1:1/0", "another database"])
def test_there_is_none_where_the_broker_is_not_the_store(settings, store, broker):
    if broker == "another database":
        broker = settings.redis_url.partition("?")[0] + "?db=5"
    apart = Queue(settings.model_copy(update={"broker_url": broker}), store)
    assert apart.hint("b0key") is None
    assert submit(store, apart).state == "ready"
    assert store.queue_depth(settings.queue) == 0
