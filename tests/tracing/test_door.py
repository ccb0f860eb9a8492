"""The door to OpenTelemetry: nothing without it, W3C contexts with it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from shared import tracing
from shared.settings import Settings, child_environment

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


def test_without_being_switched_on_nothing_is_made_and_nothing_is_imported():
    program = """
import sys
from shared import tracing
with tracing.span("one", run="b0") as span:
    span.set({"a": 1}); span.event("b"); span.fail(ValueError)
    assert tracing.current_traceparent() is None and tracing.outgoing_headers() == {}
tracing.record_ending("failed", "AGENT_ERROR")
tracing.begin("two").end()
tracing.shutdown()
assert not tracing.enabled()
found = [name for name in sys.modules if name.startswith("opentelemetry")]
assert not found, found[:3]
"""
    environment = child_environment(OTEL_EXPORTER_OTLP_ENDPOINT=None, OUTLAST_TRACING=None)
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=60)


def test_without_the_extra_it_says_so_once_and_goes_on():
    program = """
import sys
sys.modules["opentelemetry.sdk"] = None
sys.modules["opentelemetry.exporter"] = None
from shared import tracing
with tracing.span("one"):
    pass
assert not tracing.enabled()
"""
    environment = child_environment(OUTLAST_TRACING="on")
    ended = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env=environment,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert (ended.stdout + ended.stderr).count("outlast[otel]") == 1


@pytest.mark.parametrize(
    ("chosen", "endpoint", "on"),
    [
        ("auto", None, False),
        ("auto", "http://127.0.0.1:4318", True),
        ("off", "http://127.0.0.1:4318", False),
        ("on", None, True),
    ],
)
def test_it_is_on_where_it_was_switched_on_or_an_endpoint_is_named(
    monkeypatch: pytest.MonkeyPatch, chosen: str, endpoint: str | None, on: bool
):
    monkeypatch.setattr(tracing, "load", lambda: Settings(tracing=chosen))
    monkeypatch.setattr(tracing, "variable", {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}.get)
    assert tracing._Installation().enabled() is on


def test_a_span_continues_the_trace_that_a_traceparent_names(spans: Any):
    with tracing.span("one", parent=TRACEPARENT, kind="server", run="b0key", empty=None):
        told = tracing.current_traceparent()
    (one,) = spans.get_finished_spans()
    assert (f"{one.context.trace_id:032x}", f"{one.parent.span_id:016x}") == (TRACE, PARENT)
    assert told == f"00-{TRACE}-{one.context.span_id:016x}-01"
    assert dict(one.attributes) == {"outlast.run": "b0key"}
    assert one.kind.name == "SERVER"


@pytest.mark.parametrize(
    "nonsense", ["", "00", "00-" + "0" * 32 + "-" + PARENT + "-01", "ff\x00", TRACEPARENT * 40]
)
def test_a_traceparent_that_is_none_begins_a_trace_of_its_own(spans: Any, nonsense: str):
    with tracing.span("one", parent=nonsense):
        pass
    (one,) = spans.get_finished_spans()
    assert one.parent is None


def test_an_unsampled_caller_is_not_traced_but_passed_on(spans: Any):
    with tracing.span("one", parent=f"00-{TRACE}-{PARENT}-00"):
        told = tracing.outgoing_headers()["traceparent"]
    assert (told[3:35], told[-2:]) == (TRACE, "00")
    assert not spans.get_finished_spans()


def test_spans_nest_through_tasks_and_say_nothing_after_their_block(spans: Any):
    async def inner() -> None:
        with tracing.span("inner"):
            await asyncio.sleep(0)

    async def outer() -> None:
        with tracing.span("outer"):
            await asyncio.gather(inner(), inner())
        assert tracing.current_traceparent() is None

    asyncio.run(outer())
    found = spans.by_name()
    assert [one.parent.span_id for one in found["inner"]] == [found["outer"][0].context.span_id] * 2


def test_a_block_that_ends_in_another_context_complains_to_nobody(
    spans: Any, caplog: pytest.LogCaptureFixture
):
    async def generates():
        with tracing.span("held"):
            yield 1

    async def elsewhere() -> None:
        stream = generates()
        await asyncio.create_task(anext(stream))
        await stream.aclose()

    asyncio.run(elsewhere())
    assert [one.name for one in spans.get_finished_spans()] == ["held"]
    assert not caplog.records


def _ended(spans: Any, outcome: str, code: str | None) -> ReadableSpan:
    with tracing.span("run"):
        tracing.record_ending(outcome, code)
    (one,) = spans.get_finished_spans()
    return one


def test_a_failed_run_marks_its_span_with_the_code_and_no_text(spans: Any):
    one = _ended(spans, "failed", "transport_timeout")
    assert (one.status.status_code, one.status.description) == (StatusCode.ERROR, None)
    assert one.attributes["error.type"] == "transport_timeout"
    (event,) = one.events
    assert (event.name, dict(event.attributes)) == (
        "outlast.ended",
        {"outlast.outcome": "failed", "outlast.code": "transport_timeout"},
    )


def test_a_cancelled_run_is_no_error(spans: Any):
    assert _ended(spans, "cancelled", None).status.status_code is StatusCode.UNSET


def test_a_forked_child_exports_by_a_thread_of_its_own():
    program = """
import os, sys
from shared import tracing
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export import BatchSpanProcessor
class Told(SpanExporter):
    def export(self, spans):
        os.write(1, b"".join(b"%d %b\\n" % (os.getpid(), one.name.encode()) for one in spans))
        return SpanExportResult.SUCCESS
tracing._exporting = lambda: BatchSpanProcessor(Told())
with tracing.span("parent"):
    pass
child = os.fork()
with tracing.span("child" if not child else "parent-again"):
    pass
tracing.shutdown()
if not child:
    os._exit(0)
os.waitpid(child, 0)
print(os.getpid(), child)
"""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        check=True,
        env=child_environment(OUTLAST_TRACING="on"),
        timeout=60,
        capture_output=True,
        text=True,
    )
    *told, pids = ended.stdout.splitlines()
    parent, child = pids.split()
    assert sorted(told) == sorted([f"{parent} parent", f"{parent} parent-again", f"{child} child"])


def test_a_collector_that_is_away_holds_no_process_up():
    program = """
import time
from shared import tracing
with tracing.span("one"):
    pass
began = time.monotonic()
tracing.shutdown(0.5)
print(time.monotonic() - began)
"""
    environment = child_environment(OUTLAST_TRACING="on", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    ended = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env=environment,
        timeout=20,
        capture_output=True,
        text=True,
    )
    assert float(ended.stdout) < 2
