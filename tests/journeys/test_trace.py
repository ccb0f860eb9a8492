"""Traces of real processes, as a collector receives them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.journeys.collector import Collector
from tests.journeys.stack import Stack
from tests.openai_endpoint import Endpoint, complete, text

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "nobody-may-read-this-in-a-trace"
NAMES = {"POST /agents/<agent>", "outlast.stream", "outlast.run", "outlast.provider_call"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collecting:
        yield collecting


@pytest.mark.parametrize(
    ("web", "worker"),
    [("gunicorn", {"pool": "threads", "concurrency": 4}), ("flask", {"pool": "prefork", "concurrency": 2})],
    ids=["gunicorn and threads", "flask and prefork"],
)
def test_one_trace_goes_through_all_processes_and_is_flushed_at_their_end(
    make_stack: Callable[..., Stack], collector: Collector, eventually: Any, web: str, worker: dict[str, Any]
):
    with Endpoint([complete(text("hello"))]) as endpoint:
        stack = make_stack(
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            # Longer than the test: what arrives was sent by the shutdown.
            OTEL_BSP_SCHEDULE_DELAY="600000",
            OUTLAST_CHAT_BASE_URL=endpoint.base_url,
            OUTLAST_CHAT_MODEL="stub-1",
            OUTLAST_CHAT_API_KEY=SECRET,
        )
        working = stack.start(web, **worker)
        run = stack.prepare("chat", text=SECRET)
        run.stream = stack.open(
            "POST",
            "/agents/chat",
            body=run.body,
            headers={"traceparent": f"00-{TRACE}-{CALLER}-01", "Authorization": f"Bearer {SECRET}"},
        )
        run.live.finish()
        run.recorded()
        run.live.close()
        assert not collector.spans
        working.signal(signal.SIGTERM)
        stack.web.signal(signal.SIGTERM if web == "gunicorn" else signal.SIGINT)
        eventually(lambda: collector.of(TRACE).keys() >= NAMES, 15)
    found = collector.of(TRACE)
    posted, stream, ran, call = (
        found[name]
        for name in ("POST /agents/<agent>", "outlast.stream", "outlast.run", "outlast.provider_call")
    )
    assert posted.parent == CALLER
    assert stream.parent == ran.parent == posted.id
    assert call.parent == ran.id
    assert {posted.service, stream.service} == {"outlast-web"}
    assert {ran.service, call.service} == {"outlast-worker"}
    assert {one.attributes["outlast.run"] for one in (posted, stream, ran)} == {run.key}
    assert (ran.events, ran.attributes["outlast.outcome"]) == (("outlast.ended",), "succeeded")
    assert stream.end > ran.begin
    assert not any(SECRET.encode() in body for body in collector.bodies)


def test_a_collector_that_is_away_changes_nothing_for_a_run(make_stack: Callable[..., Stack]):
    stack = make_stack(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_BSP_SCHEDULE_DELAY="50")
    working = stack.start(pool="threads", concurrency=2)
    for _ in range(3):
        run = stack.submit("echo")
        run.live.finish()
        assert run.recorded()["status"] == "succeeded"
    working.signal(signal.SIGTERM)
    assert working.wait(10) == 0
