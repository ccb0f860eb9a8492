"""Accept and Prefer, row by row."""

from __future__ import annotations

import pytest
from flask import Flask

from web.negotiation import JSON, SSE, best, is_json, prefers


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        (None, SSE),
        ("", SSE),
        ("   ", SSE),
        ("*/*", SSE),
        ("text/*", SSE),
        ("TEXT/Event-Stream", SSE),
        ("text/event-stream; charset=utf-8", SSE),
        ("application/json, text/*;q=0.1", SSE),
        ("text/event-stream;q=0.001", SSE),
        ("text/event-stream, */*;q=0", SSE),
        ("text/html, application/xhtml+xml, */*;q=0.8", SSE),
        ("*", SSE),
        ('application/json;profile="a,b;q=0", text/event-stream', SSE),
        ("text/event-stream;q=0", None),
        ("text/event-stream;q=0, */*", None),
        ("text/event-stream;q=0.000, text/*", None),
        ("text/*;q=0, */*", None),
        ("text/plain", None),
        ("application/xml", None),
        ("*/*;q=0", None),
        ("application/json", None),
        ("text", None),
        (",", None),
    ],
)
def test_streams_are_offered_alone(header: str | None, chosen: str | None):
    assert best(header, [SSE]) == chosen


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        (None, SSE),
        ("*/*", SSE),
        ("application/json", JSON),
        ("application/json, text/event-stream", SSE),
        ("application/json, text/event-stream;q=0.9", JSON),
        ("text/event-stream;q=0.2, application/*;q=0.3", JSON),
        ("*/*;q=0.5, text/event-stream;q=0.1", JSON),
        ("*/*, text/event-stream;q=0", JSON),
        ("application/json;q=0, */*", SSE),
        ("text/html", None),
    ],
)
def test_a_tie_between_stream_and_json_goes_to_the_stream(header: str | None, chosen: str | None):
    assert best(header, [SSE, JSON]) == chosen


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("respond-async", True),
        ("Respond-Async", True),
        ("wait=10, respond-async", True),
        ("respond-async; x=y", True),
        ("return=minimal", False),
        ('x="respond-async, respond-async"', False),
        ("respond-asynchronously", False),
        ("", False),
    ],
)
def test_a_preference_is_found_among_others(header: str, found: bool):
    with Flask("x").test_request_context(headers={"Prefer": header}):
        assert prefers("respond-async") is found


@pytest.mark.timeout(10)
@pytest.mark.parametrize("header", ['"' + '\\"' * 50_000, '"' * 100_001, '"' + "\\" * 100_000])
def test_a_header_of_nothing_but_quotes_is_read_at_once(header: str):
    assert best(header, ["text/event-stream"]) is None
    with Flask("x").test_request_context(headers={"Prefer": header}):
        assert not prefers("respond-async")


@pytest.mark.parametrize(
    "media_type", ["json", "/json", "application/", "application/+json", "application/xjson"]
)
def test_only_json_counts_as_json(media_type: str):
    assert not is_json(media_type)
