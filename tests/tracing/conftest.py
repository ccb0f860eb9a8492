"""Spans kept in memory instead of being sent."""

from __future__ import annotations

from collections import defaultdict

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared import tracing


class Kept(InMemorySpanExporter):
    """What ended while tracing was on."""

    def by_name(self) -> dict[str, list[ReadableSpan]]:
        """Ended spans in the order of their ends."""
        found: dict[str, list[ReadableSpan]] = defaultdict(list)
        for one in self.get_finished_spans():
            found[one.name].append(one)
        return found


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Kept:
    """Switches tracing on for one test."""
    kept = Kept()
    installation = tracing._Installation()
    installation._on = True
    installation.processor = SimpleSpanProcessor(kept)
    monkeypatch.setattr(tracing, "_installation", installation)
    return kept
