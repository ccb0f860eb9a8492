"""Queue messages: built by hand, equal to Celery's own."""

from __future__ import annotations

import json
from contextlib import closing

from shared.queue import TASK, Queue
from shared.store.store import open_store


def test_the_prepared_message_is_the_one_that_celery_itself_would_send(settings, store):
    queue = Queue(settings, store)
    queue.enqueue("b0key")
    ours = json.loads(store.client.lpop(settings.queue))
    queue.app.send_task(TASK, args=("b0key",), task_id="b0key", queue=settings.queue, ignore_result=True)
    theirs = json.loads(store.client.lpop(settings.queue))
    for message in (ours, theirs):
        message["headers"].pop("origin")
        message["headers"].pop("argsrepr")
        message["properties"].pop("delivery_tag")
        message["properties"].pop("reply_to")
    assert ours == theirs


def test_an_enqueue_without_redis_is_logged_and_not_raised(settings, own_server):
    lost = settings.model_copy(update={"redis_url": own_server.url})
    with closing(open_store(lost)) as store:
        own_server.kill()
        Queue(lost, store).enqueue("b0key")


def test_the_depth_counts_messages(settings, store):
    queue = Queue(settings, store)
    queue.enqueue("b0a")
    queue.enqueue("b0b")
    assert queue.depth() == 2


def test_a_message_of_a_traced_run_carries_its_traceparent_as_celery_itself_would_send_it(settings, store):
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    queue = Queue(settings, store)
    queue.enqueue("b0key", traceparent)
    ours = json.loads(store.client.lpop(settings.queue))["headers"]
    queue.app.send_task(
        TASK, args=("b0key",), task_id="b0key", queue=settings.queue, headers={"traceparent": traceparent}
    )
    theirs = json.loads(store.client.lpop(settings.queue))["headers"]
    assert ours["traceparent"] == theirs["traceparent"] == traceparent
    queue.enqueue("b0key")
    assert "traceparent" not in json.loads(store.client.lpop(settings.queue))["headers"]
