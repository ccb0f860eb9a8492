"""The Celery client: the task's name, the configured app, and sending a run key as a hint to the workers."""

from __future__ import annotations

import base64
import json
import socket
import uuid
from functools import cache
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

from shared.logs import get_logger
from shared.settings import Settings
from shared.store.errors import StoreError
from shared.store.store import Store

TASK = "worker.execute_run"

log = get_logger(__name__)


def make_app(settings: Settings) -> Celery:
    """A Celery app configured so that a message is only a hint: acknowledged early, no results, no events."""
    app = Celery("outlast", broker=settings.celery_broker_url, set_as_current=False)
    app.conf.update(
        task_default_queue=settings.queue,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_acks_late=False,
        worker_prefetch_multiplier=1,
        worker_send_task_events=False,
        task_send_sent_event=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=2,
        broker_transport_options={
            "socket_timeout": 5,
            "socket_connect_timeout": 2,
            "socket_keepalive": True,
            # The sweep sends a hint again that was lost with its worker, so nobody keeps a copy of it.
            "ack_emulation": False,
            "priority_steps": [0],
            "queue_order_strategy": "sorted",
            "max_retries": 0,
        },
        broker_pool_limit=4,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        task_serializer="json",
        accept_content=["json"],
        enable_utc=True,
    )
    return app


class Queue:
    """Sends run keys; a message lost on the way is sent again by the sweep."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self.store = store
        self._app: Celery | None = None

    @property
    def app(self) -> Celery:
        """The client app, made on first use."""
        if self._app is None:
            self._app = make_app(self.settings)
        return self._app

    def enqueue(self, key: str, traceparent: str | None = None) -> None:
        """Tells the workers of a ready run; logs instead of raising, because the record already has it.

        ``traceparent`` is for whoever instruments Celery; our own worker takes the one in the record.
        """
        try:
            if self.settings.broker_is_store:
                self.store.push(self.settings.queue, prepared_message(key, self.settings.queue, traceparent))
            else:
                self.app.send_task(
                    TASK,
                    args=(key,),
                    task_id=key,
                    queue=self.settings.queue,
                    retry=False,
                    headers={"traceparent": traceparent} if traceparent else None,
                )
        except (StoreError, OperationalError, OSError) as error:
            log.warning("queue.message_lost", run=key, error=type(error).__name__)

    def hint(self, key: str, traceparent: str | None = None) -> tuple[str, bytes] | None:
        """Queue and message for acceptance to push in its own step; None where that is another server."""
        if not self.settings.broker_is_store:
            return None
        return self.settings.queue, prepared_message(key, self.settings.queue, traceparent)

    def depth(self) -> int | None:
        """Messages that no worker has taken; None where the broker is not ours to ask."""
        return self.store.queue_depth(self.settings.queue) if self.settings.broker_is_store else None


_ORIGIN = f"outlast@{socket.gethostname()}"
_KEY, _TAG, _BODY, _TRACE = "\0key", "\0tag", "\0body", "\0trace"


def prepared_message(key: str, queue: str, traceparent: str | None = None) -> bytes:
    """The task message in the form of Celery's protocol 2 over kombu's Redis transport.

    Built by hand because ``send_task`` costs many times as much; a contract test compares both.
    """
    template, body = _template(queue, traced=traceparent is not None)
    packed = base64.b64encode(body.replace(_KEY_JSON, _quoted(key)).encode()).decode()
    filled = template.replace(_KEY_JSON, _quoted(key)).replace(_TAG_JSON, _quoted(str(uuid.uuid4())))
    if traceparent is not None:
        filled = filled.replace(_TRACE_JSON, _quoted(traceparent))
    return filled.replace(_BODY_JSON, _quoted(packed)).encode()


def _quoted(text: str) -> str:
    return json.dumps(text)


_KEY_JSON, _TAG_JSON, _BODY_JSON, _TRACE_JSON = map(_quoted, (_KEY, _TAG, _BODY, _TRACE))


@cache
def _template(queue: str, *, traced: bool) -> tuple[str, str]:
    """The message and its body as JSON with marks, which no text that is filled in can contain."""
    headers: dict[str, Any] = {
        "lang": "py",
        "task": TASK,
        "id": _KEY,
        "shadow": None,
        "eta": None,
        "expires": None,
        "group": None,
        "group_index": None,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": _KEY,
        "parent_id": None,
        "argsrepr": "()",
        "kwargsrepr": "{}",
        "origin": _ORIGIN,
        "ignore_result": True,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
    }
    if traced:
        headers["traceparent"] = _TRACE
    properties = {
        "correlation_id": _KEY,
        "reply_to": "",
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": queue},
        "priority": 0,
        "body_encoding": "base64",
        "delivery_tag": _TAG,
    }
    embedded = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    message = {
        "body": _BODY,
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": headers,
        "properties": properties,
    }
    return json.dumps(message), json.dumps([[_KEY], {}, embedded])
