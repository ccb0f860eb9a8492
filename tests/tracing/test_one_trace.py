"""One trace from the POST through the queue and the worker to the provider's call and the recorded ending."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from shared import tracing
from shared.settings import Settings
from shared.store.store import Store
from tests.web.played_worker import PlayedWorker, key_of, run_input
from tests.worker.stage import process_with, record_of
from web import create_app
from worker.agents.base import AgentError
from worker.context import RunContext
from worker.driver import Driver

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "a prompt that nobody may read in a trace"


async def asks(ctx: RunContext) -> None:
    ctx.say("one moment")
    with ctx.provider_call("model"):
        await asyncio.sleep(0)
        ctx.say(tracing.outgoing_headers().get("traceparent", "none"))


def asks_in_a_thread(ctx: RunContext) -> None:
    def ask() -> None:
        with ctx.provider_call("model"):
            ctx.say(tracing.outgoing_headers().get("traceparent", "none"))

    ctx.until_cancelled(ask)


async def generates(given: Any) -> Any:
    from shared.protocol import events as ag
    from worker.context import current_run

    with current_run().provider_call("model"):
        yield ag.CustomEvent(name="header", value=tracing.outgoing_headers().get("traceparent"))


async def times_out(ctx: RunContext) -> None:
    with ctx.provider_call("model"):
        raise TimeoutError(SECRET)


async def fails(ctx: RunContext) -> None:
    raise AgentError(SECRET)


@pytest.fixture
def post(settings: Settings, store: Store, spans: Any) -> Iterator[Callable[..., str]]:
    """``post(agent, **headers)`` starts a run by HTTP, executes it here and reads its stream; its key."""
    app = create_app(settings)
    holder = app.extensions["outlast"]

    def carry_out(agent: Callable[..., Any], **headers: str) -> str:
        PlayedWorker(store).offer(agent="enqueue")
        client = app.test_client()
        body = run_input(text=SECRET)
        answer = client.post("/agents/agent", json=body, headers=headers, buffered=False)
        assert answer.status_code == 200
        message = json.loads(store.client.lpop(settings.queue))
        assert (
            message["headers"]["traceparent"][3:35]
            == record_of(store, key_of("run")).texts["traceparent"][3:35]
        )
        with process_with(settings, agent=agent) as process:
            Driver(process).execute(message["headers"]["id"])
        b"".join(answer.response)
        answer.close()
        return str(message["headers"]["id"])

    yield carry_out
    with closing(holder.get().store):
        holder.close()
        holder.get().sweeper.stop(timeout=5)


def trace_of(one: ReadableSpan) -> str:
    return f"{one.context.trace_id:032x}"


def parent_of(one: ReadableSpan) -> int | None:
    return one.parent.span_id if one.parent else None


@pytest.mark.parametrize("agent", [asks, asks_in_a_thread, generates], ids=lambda agent: agent.__name__)
def test_a_run_is_one_trace_that_continues_the_callers(
    post: Callable[..., str], store: Store, spans: Any, agent: Callable[..., Any]
):
    key = post(agent, traceparent=f"00-{TRACE}-{CALLER}-01")
    found = spans.by_name()
    assert {name: len(several) for name, several in found.items()} == {
        "POST /agents/<agent>": 1,
        "outlast.stream": 1,
        "outlast.run": 1,
        "outlast.provider_call": 1,
    }
    posted, stream, run, call = (found[name][0] for name in found)
    assert {trace_of(one) for one in spans.get_finished_spans()} == {TRACE}
    by_name = {one.name: one for one in (posted, stream, run, call)}
    posted, stream, run, call = (
        by_name[name]
        for name in ("POST /agents/<agent>", "outlast.stream", "outlast.run", "outlast.provider_call")
    )
    assert f"{parent_of(posted):016x}" == CALLER
    assert parent_of(stream) == parent_of(run) == posted.context.span_id
    assert parent_of(call) == run.context.span_id
    assert [posted.kind.name, run.kind.name, call.kind.name] == ["SERVER", "CONSUMER", "CLIENT"]
    assert posted.attributes["http.response.status_code"] == 200
    assert {one.attributes["outlast.run"] for one in (posted, stream, run)} == {key}
    assert call.attributes["outlast.provider"] == "model"
    sent = b"".join(store.log.read_all(key)).decode()
    assert f"00-{TRACE}-{call.context.span_id:016x}-01" in sent


def test_the_run_and_the_stream_say_how_it_ended(post: Callable[..., str], spans: Any):
    post(asks)
    run, stream = (spans.by_name()[name][0] for name in ("outlast.run", "outlast.stream"))
    assert run.attributes["outlast.outcome"] == "succeeded"
    assert run.status.status_code is StatusCode.UNSET
    assert [event.name for event in run.events] == ["outlast.ended"]
    assert stream.attributes["outlast.terminal_sent"] is True
    assert stream.attributes["outlast.bytes"] > 100
    # It covers the body to its end, which comes after the recorded ending.
    assert stream.start_time < run.start_time < run.events[0].timestamp < stream.end_time


def test_a_timeout_of_the_provider_marks_call_and_run_without_its_text(post: Callable[..., str], spans: Any):
    post(times_out)
    run, call = (spans.by_name()[name][0] for name in ("outlast.run", "outlast.provider_call"))
    assert (run.status.status_code, run.attributes["error.type"]) == (StatusCode.ERROR, "transport_timeout")
    assert (call.status.status_code, call.attributes["error.type"]) == (
        StatusCode.ERROR,
        "builtins.TimeoutError",
    )


@pytest.mark.parametrize("agent", [asks, times_out, fails], ids=lambda agent: agent.__name__)
def test_no_span_carries_what_was_said_or_what_went_wrong_in_words(
    post: Callable[..., str], spans: Any, agent: Callable[..., Any]
):
    post(agent, Authorization="Bearer a-secret")
    told = " ".join(one.to_json() for one in spans.get_finished_spans())
    assert SECRET not in told
    assert "a-secret" not in told
    assert "one moment" not in told
