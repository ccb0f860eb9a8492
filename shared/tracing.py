"""Traces of runs; the one door to OpenTelemetry, which is an optional extra (``outlast[otel]``).

Without the extra, or unless tracing is switched on, nothing here does anything. Spans carry keys, names,
numbers and codes, never prompts, secrets or the text of an exception.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from shared.logs import get_logger
from shared.settings import load, variable

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

Kind = Literal["internal", "server", "client", "producer", "consumer"]
Value = str | int | float | bool

FLUSH_SECONDS = 1.0
"""What an ending process gives a collector to take its last spans."""

_UNNAMED = "unknown_service"
"""What the SDK calls a process that nobody named, with the program's name behind it."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

log = get_logger(__name__)


class Span:
    """What the rooms may do with a span; this one is nobody's and forgets everything."""

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        """Attributes under their full names; None leaves one out."""

    def event(self, name: str, attributes: Mapping[str, Value | None] | None = None) -> None:
        """Something that happened at this moment."""

    def fail(self, kind: type[BaseException] | str) -> None:
        """Marks the span as failed, by an exception's class or a failure code (``error.type``)."""

    def end(self) -> None:
        """Ends a span that was begun by ``begin``."""


_NOTHING = Span()
_NO_SPAN: AbstractContextManager[Span] = nullcontext(_NOTHING)
_CURRENT: ContextVar[Span] = ContextVar("outlast_span", default=_NOTHING)


def enabled() -> bool:
    """Whether spans are made: decided once per process, by the settings and by what is installed."""
    return _installation.enabled()


def span(
    name: str, *, parent: str | None = None, kind: Kind = "internal", **attributes: Value | None
) -> AbstractContextManager[Span]:
    """A span around the block; ``attributes`` are given as ``outlast.<keyword>``, None leaves one out.

    ``parent`` is a W3C traceparent; without one, or with one that is no such thing, the span that is current
    here is the parent. An exception that passes does not mark the span: say ``fail``.
    """
    if not _installation.enabled():
        return _NO_SPAN
    return _Scope(_start(name, parent, kind, attributes))


def begin(
    name: str, *, parent: str | None = None, kind: Kind = "internal", **attributes: Value | None
) -> Span:
    """The same for what is no block, such as a stream: the caller ends it, and it is current nowhere."""
    return _start(name, parent, kind, attributes) if _installation.enabled() else _NOTHING


def current() -> Span:
    """The innermost span of ours that is current here; one that forgets everything if there is none."""
    return _CURRENT.get()


def current_traceparent() -> str | None:
    """The current span as a W3C traceparent, also a span that somebody else's instrumentation made."""
    return outgoing_headers().get("traceparent")


def outgoing_headers() -> dict[str, str]:
    """``traceparent`` (and ``tracestate``) for a request made inside the current span; empty without one."""
    carrier: dict[str, str] = {}
    if _installation.enabled():
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(carrier)
    return carrier


def record_ending(outcome: str, code: str | None = None) -> None:
    """Says on the current span how its run ended; a failed one marks the span."""
    here = _CURRENT.get()
    here.set({"outlast.outcome": outcome, "outlast.code": code})
    here.event("outlast.ended", {"outlast.outcome": outcome, "outlast.code": code})
    if outcome == "failed":
        here.fail(code or outcome)


def serve_as(service: str) -> bool:
    """Names this process's part (``service.name``) unless ``OTEL_SERVICE_NAME`` does; whether spans are made.

    Called where a process begins, it loads the SDK, which would cost the first run most of a second.
    """
    _installation.service = service
    return _installation.enabled()


def shutdown(timeout: float = FLUSH_SECONDS) -> None:
    """Sends what this process has left, for ``timeout`` seconds at most; spans that end later are lost."""
    _installation.shutdown(timeout)


class _LiveSpan(Span):
    """A span of OpenTelemetry's."""

    def __init__(self, made: OtelSpan) -> None:
        self.made = made

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        for name, value in attributes.items():
            if value is not None:
                self.made.set_attribute(name, value)

    def event(self, name: str, attributes: Mapping[str, Value | None] | None = None) -> None:
        self.made.add_event(
            name, {key: value for key, value in (attributes or {}).items() if value is not None}
        )

    def fail(self, kind: type[BaseException] | str) -> None:
        from opentelemetry.trace import Status, StatusCode

        told = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
        self.made.set_attribute("error.type", told)
        self.made.set_status(Status(StatusCode.ERROR))

    def end(self) -> None:
        self.made.end()


class _Scope(AbstractContextManager[Span]):
    """Makes a span the current one, for us and for every other instrumentation, until the block ends."""

    def __init__(self, made: _LiveSpan) -> None:
        self._span = made

    def __enter__(self) -> Span:
        from opentelemetry import context, trace

        self._inside = trace.set_span_in_context(self._span.made)
        self._token = context.attach(self._inside)
        self._before = _CURRENT.get()
        _CURRENT.set(self._span)
        return self._span

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        from opentelemetry import context

        # A generator that is closed by another task ends its blocks in that one's context.
        if context.get_current() is self._inside:
            context.detach(self._token)
            _CURRENT.set(self._before)
        self._span.end()


def _start(name: str, parent: str | None, kind: Kind, attributes: Mapping[str, Value | None]) -> _LiveSpan:
    from opentelemetry.trace import SpanKind

    made = _installation.tracer().start_span(
        name,
        context=_context_of(parent) if parent else None,
        kind=SpanKind[kind.upper()],
        attributes={f"outlast.{key}": value for key, value in attributes.items() if value is not None},
    )
    return _LiveSpan(made)


def _context_of(traceparent: str) -> Context | None:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    found = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    return found if trace.get_current_span(found).get_span_context().is_valid else None


class _Installation:
    """The SDK in this process. Its exporter's thread does not live through a fork, so it is made per pid."""

    def __init__(self) -> None:
        self.service = "outlast"
        self.processor: SpanProcessor | None = None
        self._on: bool | None = None
        self._tracers: dict[int, tuple[Tracer, Any]] = {}
        self._lock = threading.Lock()

    def enabled(self) -> bool:
        if self._on is None:
            self._on = self._decide()
        return self._on

    @staticmethod
    def _decide() -> bool:
        chosen = load().tracing
        if chosen == "off" or (chosen == "auto" and not any(variable(name) for name in _ENDPOINTS)):
            return False
        try:
            import opentelemetry.exporter.otlp.proto.http.trace_exporter
            import opentelemetry.sdk.trace.export  # noqa: F401 - both are needed later
        except ImportError:
            log.warning("tracing.unavailable", missing="outlast[otel]")
            return False
        return True

    def tracer(self) -> Tracer:
        found = self._tracers.get(os.getpid())
        if found is None:
            with self._lock:
                found = self._tracers.get(os.getpid()) or self._make()
                self._tracers[os.getpid()] = found
        return found[0]

    def _make(self) -> tuple[Tracer, Any]:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider

        theirs = trace.get_tracer_provider()
        if isinstance(theirs, TracerProvider) and self.processor is None and not self._tracers:
            return theirs.get_tracer("outlast"), None  # somebody set one up, such as opentelemetry-instrument
        named = Resource.create()
        if str(named.attributes.get(SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED):
            named = named.merge(Resource({SERVICE_NAME: self.service}))
        # Its own hook at exit would wait for a collector that is away.
        provider = TracerProvider(resource=named, shutdown_on_exit=False)
        provider.add_span_processor(self.processor or _exporting())
        if not isinstance(theirs, TracerProvider):
            trace.set_tracer_provider(provider)  # for instrumentations that an agent brings along
        atexit.register(self.shutdown)
        return provider.get_tracer("outlast"), provider

    def shutdown(self, timeout: float = FLUSH_SECONDS) -> None:
        _, provider = self._tracers.get(os.getpid(), (None, None))
        if provider is not None:
            sending = threading.Thread(target=provider.force_flush, name="outlast-spans", daemon=True)
            sending.start()
            sending.join(timeout)


def _exporting() -> SpanProcessor:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return BatchSpanProcessor(OTLPSpanExporter())


_installation = _Installation()
