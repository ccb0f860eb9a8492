"""A run's events: streamed from anywhere, or page by page."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from flask import Flask

from shared.store.store import Store
from tests.web.played_worker import Caller, PlayedWorker, events_of, key_of, problem_of, types_of

PATH = "/threads/thread/runs/run/events"


@pytest.fixture
def ended(caller: Caller, worker: PlayedWorker) -> Caller:
    """A client of a run with five events, all recorded."""
    caller.start_in_background()
    worker.run(key_of("run"), "a", "b", "c")
    return caller


def test_all_events_of_an_ended_run_are_streamed(ended: Caller):
    assert [seq for seq, _ in events_of(ended.get(PATH))] == [1, 2, 3, 4, 5]


def test_the_run_key_form_streams_the_same(ended: Caller):
    response = ended.get(f"/runs/{key_of('run')}/events")
    assert response.headers["Outlast-Run-Key"] == key_of("run")
    assert len(events_of(response)) == 5


@pytest.mark.parametrize("cursor", [0, 1, 3, 4])
def test_a_cursor_gives_exactly_what_follows_it(ended: Caller, cursor: int):
    following = list(range(cursor + 1, 6))
    assert [seq for seq, _ in events_of(ended.get(f"{PATH}?after={cursor}"))] == following
    assert [seq for seq, _ in events_of(ended.get(PATH, Last_Event_ID=str(cursor)))] == following


def test_the_browsers_header_counts_before_the_address(ended: Caller):
    assert [seq for seq, _ in events_of(ended.get(f"{PATH}?after=1", Last_Event_ID="4"))] == [5]


def test_an_empty_header_is_no_cursor(ended: Caller):
    assert len(events_of(ended.get(PATH, Last_Event_ID=""))) == 5


def test_after_the_last_event_of_an_ended_run_a_browser_is_told_to_stop(ended: Caller):
    assert ended.get(PATH, Last_Event_ID="5").status_code == 204


@pytest.mark.parametrize("cursor", ["-1", "x", "1.0", "01", "1e3", "99999999999999999999"])
def test_a_cursor_that_was_never_given_is_refused(ended: Caller, cursor: str):
    assert problem_of(ended.get(f"{PATH}?after={cursor}"), 400, "INVALID_INPUT")["field"] == "after"
    response = ended.get(PATH, Last_Event_ID=cursor)
    assert problem_of(response, 400, "INVALID_INPUT")["field"] == "Last-Event-ID"


def test_a_stream_of_a_running_run_goes_on_live_to_its_end(caller: Caller, worker: PlayedWorker):
    caller.start_in_background()
    claim = worker.claim(key_of("run"))
    worker.say(claim, "before")
    response = caller.get(f"{PATH}?after=1")

    def go_on() -> None:
        worker.say(claim, "after")
        worker.finish(claim)

    going = threading.Timer(0.2, go_on)
    going.start()
    assert types_of(response) == ["TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "RUN_FINISHED"]
    going.join()


def test_an_idle_stream_gets_comments_so_that_the_line_stays_open(caller: Caller):
    caller.start_in_background()
    response = caller.get(f"{PATH}?after=1")
    assert b"".join(next(response.response) for _ in range(3)).startswith(b":")
    response.close()


def test_a_page_holds_events_with_their_numbers(ended: Caller):
    response = ended.get(f"{PATH}?limit=2", Accept="application/json")
    page = response.get_json()
    assert [item["seq"] for item in page["events"]] == [1, 2]
    assert page["events"][0]["event"]["type"] == "RUN_STARTED"
    assert page["next"] == 2
    assert response.headers["Vary"] == "Accept"


def test_pages_end_with_the_terminal_event(ended: Caller):
    last = ended.get(f"{PATH}?after=2", Accept="application/json").get_json()
    assert [item["seq"] for item in last["events"]] == [3, 4, 5]
    assert "next" not in last


def test_the_page_after_the_newest_event_of_a_running_run_is_empty_and_says_where_to_go_on(caller: Caller):
    caller.start_in_background()
    page = caller.get(f"{PATH}?after=1", Accept="application/json").get_json()
    assert page == {"events": [], "next": 1}


def test_a_form_that_is_neither_stream_nor_json_is_not_acceptable(ended: Caller):
    problem_of(ended.get(PATH, Accept="text/html"), 406, "NOT_ACCEPTABLE")


def test_asking_for_the_headers_alone_opens_no_stream(app: Flask, caller: Caller):
    caller.start_in_background()
    response = caller.client.head(PATH)
    assert response.content_type == "text/event-stream"
    assert app.extensions["outlast"].get().hub.stats()["open_streams"] == 0


def test_events_of_an_unknown_run_are_a_404(caller: Caller):
    problem_of(caller.get(PATH), 404, "UNKNOWN_RUN")


def test_reading_a_recorded_run_sends_nothing_to_the_workers(
    ended: Caller, worker: PlayedWorker, store: Store
):
    before = worker.messages()
    events_of(ended.get(PATH))
    assert worker.messages() == before


def test_closing_the_service_ends_open_streams_at_once(app: Flask, caller: Caller, eventually: Any):
    caller.start_in_background()
    response = caller.get(PATH)
    app.extensions["outlast"].close()
    assert b"RUN_FINISHED" not in b"".join(response.response)
    response.close()
