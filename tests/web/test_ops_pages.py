"""What the pages tell of runs, agents and acts, and the forms that act without a script."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from html import unescape
from typing import Any

import pytest
from flask.testing import FlaskClient

from shared.protocol import sse
from shared.protocol.events import EventType, TextMessageContentEvent, TextMessageStartEvent, dump
from shared.runs.identity import RunIdentity
from shared.runs.outcome import FailureCode, Outcome
from shared.store import keys
from shared.store.search import Filter
from tests.web.played_worker import Caller, PlayedWorker, key_of, run_input
from web.ops import rule_check

KEY = key_of("run")


@pytest.fixture
def client(app) -> FlaskClient:
    return app.test_client()


def _form(client: FlaskClient, **fields: str) -> dict[str, str]:
    token = re.search(r'name="csrf" value="(\w+)"', client.get("/ops/").text)
    assert token
    return {"csrf": token[1], **fields}


def _orphan(caller: Caller, worker: PlayedWorker) -> None:
    caller.start_in_background()
    worker.claim(KEY)
    # Late by having none: one that ran out would be the sweep's at once.
    worker.store.client.zrem(keys.leases(KEY[:2]), KEY)


def _says(worker: PlayedWorker, *texts: str) -> None:
    """One message of the run, in these deltas."""
    worker.claim(KEY)
    started = TextMessageStartEvent(type=EventType.TEXT_MESSAGE_START, message_id="m", role="assistant")
    said = [
        TextMessageContentEvent(type=EventType.TEXT_MESSAGE_CONTENT, message_id="m", delta=text)
        for text in texts
    ]
    for event in (started, *said):
        number = worker.store.client.llen(keys.log(KEY)) + 1
        worker.store.client.rpush(keys.log(KEY), sse.frame(number, dump(event)))


# --- forms -------------------------------------------------------------------------------------------------


def test_marking_a_run_lost_takes_the_beginning_of_its_key(client, caller, worker, store):
    _orphan(caller, worker)
    assert "Mark lost" in client.get(f"/ops/runs/{KEY}").text
    assert f"<code>{KEY[:8]}</code>" in client.get(f"/ops/runs/{KEY}/mark-lost").text
    for typed in ({}, {"typed": "b0wrong"}):
        client.post(f"/ops/runs/{KEY}/mark-lost", data=_form(client, **typed))
        assert store.runs.get(KEY).status == "running"
    form = _form(client, typed=f" {KEY[:8]} ", reason="host burnt", back=f"/ops/runs/{KEY}")
    answer = client.post(f"/ops/runs/{KEY}/mark-lost", data=form)
    page = client.get(answer.location)
    assert "ended as worker_lost" in page.text
    assert "Marked lost by local: host burnt" in page.text


def test_a_run_whose_worker_is_there_offers_no_marking(client, caller, worker):
    caller.start_in_background()
    worker.claim(KEY)
    assert "Mark lost" not in client.get(f"/ops/runs/{KEY}").text
    assert "A worker renews its lease." in client.get(f"/ops/runs/{KEY}/mark-lost").text


def test_ticked_runs_are_one_bulk_and_the_filter_stays(client, caller, worker, store):
    for number in range(3):
        caller.start_in_background(run_input(f"r{number}", f"t{number}"))
    listed = [key_of(f"r{number}", f"t{number}") for number in range(3)]
    worker.claim(listed[0])
    form = _form(client, back="/ops/runs?agent=echo", reason="flood") | {"key": listed}
    answer = client.post("/ops/runs/selected", data=form)
    assert answer.location == "/ops/runs?agent=echo"
    assert "1 asked to stop, 2 cancelled in the queue." in client.get(answer.location).text
    assert [bulk.said for bulk in store.bulk.recent()] == ["3 ticked runs"]
    assert "bulk cancel" in client.get(f"/ops/runs/{listed[1]}?tab=audit").text


def test_what_failed_of_a_bulk_is_asked_again_by_a_button(client, caller, store):
    caller.start_in_background()
    made = store.bulk.create(Filter(), [KEY], matched=1, by="ann", words="1 ticked run")
    store.client.hset(keys.bulk_results(made.bulk_id), KEY, "failed")
    store.client.delete(keys.bulk_todo(made.bulk_id))
    store.client.hset(keys.bulk(made.bulk_id), "state", "done")
    assert "Ask the 1 that failed again" in client.get(f"/ops/bulk/{made.bulk_id}").text
    answer = client.post(f"/ops/bulk/{made.bulk_id}/retry", data=_form(client))
    page = client.get(answer.location).text
    assert made.bulk_id[:8] in page
    assert "what failed of: 1 ticked run" in page


def test_the_audit_is_saved_as_a_file(client, caller):
    caller.start_in_background()
    client.post(f"/ops/runs/{KEY}/cancel", data=_form(client, reason="stuck"))
    assert "/ops/audit/export?format=csv" in client.get("/ops/audit").text
    assert "stuck" in client.get("/ops/audit/export?format=csv").text
    assert json.loads(client.get("/ops/audit/export?format=ndjson").text)["reason"] == "stuck"


@pytest.mark.parametrize("path", ["/", "/runs", "/queues", "/workers", "/bulk", "/audit", "/system"])
def test_a_paused_intake_is_said_on_every_page(client, store, path):
    store.controls.pause(by="ann", reason="deploy")
    assert "The intake is paused" in client.get(f"/ops{path}").text


# --- a run -------------------------------------------------------------------------------------------------


def test_the_copied_command_starts_the_run_again_under_a_new_id(client, caller):
    caller.start_in_background(run_input(text='it\'s "quoted" $HOME'))
    page = client.get(f"/ops/runs/{KEY}?tab=input").text
    command = re.search(r'<code id="curl">(.*?)</code>', page, re.DOTALL)
    assert command
    words = shlex.split(unescape(command[1]))
    assert words[:3] == ["curl", "-N", "http://localhost/agents/echo"]
    sent = json.loads(words[words.index("--data-raw") + 1])
    assert (sent["runId"], sent["messages"][0]["content"]) == ("run-again", 'it\'s "quoted" $HOME')
    assert "TOKEN" not in command[1]


def test_a_command_is_one_for_a_shell(client, caller):
    caller.start_in_background(run_input(text="`touch /tmp/never` $(id) \n'"))
    page = client.get(f"/ops/runs/{KEY}?tab=input").text
    command = unescape(re.search(r'<code id="curl">(.*?)</code>', page, re.DOTALL)[1])
    told = subprocess.run(
        ["/bin/sh", "-c", f"curl() {{ for word; do printf '%s\\0' \"$word\"; done; }}; {command}"],
        capture_output=True,
        check=True,
    ).stdout.split(b"\0")
    assert json.loads(told[-2])["messages"][0]["content"] == "`touch /tmp/never` $(id) \n'"


def test_a_large_input_is_sent_from_its_file(client, caller):
    caller.start_in_background(run_input(text="x" * 20_000))
    page = client.get(f"/ops/runs/{KEY}?tab=input").text
    assert "--data-binary @input.json" in page
    assert client.get(f"/ops/runs/{KEY}/input.json").get_json()["runId"] == "run"


def test_calls_to_a_provider_are_listed_and_the_one_going_on_is_named(client, caller, worker, store):
    caller.start_in_background()
    worker.claim(KEY)
    now = store.runs.now_ms()
    calls = [{"name": "openai", "at": now - 9000, "ms": 2500}, {"at": now - 5000, "ms": 40, "failed": True}]
    store.client.hset(
        keys.record(KEY),
        mapping={
            "provider_calls": json.dumps(calls),
            "calling": json.dumps({"name": "claude", "since": now - 34_000}),
        },
    )
    page = client.get(f"/ops/runs/{KEY}").text
    assert re.search(r"in provider call <code>claude</code> since <time [^>]*>34 s</time>", page)
    assert "2.5 s in all" in page
    assert "1 failed" in page
    assert "claude" in client.get("/ops/runs").text


def test_the_timeline_shows_the_time_to_the_first_event(client, caller, worker, store):
    caller.start_in_background()
    worker.claim(KEY)
    claimed = store.runs.get(KEY).times["started_at"] - 60_000
    store.client.hset(keys.record(KEY), mapping={"started_at": claimed, "first_event_at": claimed + 1500})
    page = client.get(f"/ops/runs/{KEY}").text
    assert "to the first event" in page
    assert "stage-first" in page


def test_what_the_run_left_is_folded_from_its_log(client, caller, worker):
    caller.start_in_background(run_input(text="how warm is it?"))
    _says(worker, *"21")
    page = unescape(client.get(f"/ops/runs/{KEY}?tab=state").text)
    assert "how warm is it?" in page
    assert '"content": "21"' in page


def test_events_are_shown_from_a_number_on(client, caller, worker):
    caller.start_in_background()
    worker.run(KEY, *map(str, range(20)))
    page = client.get(f"/ops/runs/{KEY}?from=21").text
    assert 'id="e-21"' in page
    assert 'id="e-20"' not in page
    assert client.get(f"/ops/runs/{KEY}?from=x").status_code == 400


def test_an_event_that_breaks_a_rule_is_marked_with_the_rule(client, caller, worker, store):
    caller.start_in_background()
    claim = worker.claim(KEY)
    started = TextMessageStartEvent(type=EventType.TEXT_MESSAGE_START, message_id="m", role="assistant")
    stray = TextMessageContentEvent(type=EventType.TEXT_MESSAGE_CONTENT, message_id="other", delta="x")
    for event in (started, started, stray):
        store.client.rpush(keys.log(KEY), sse.frame(store.client.llen(keys.log(KEY)) + 1, dump(event)))
    page = client.get(f"/ops/runs/{KEY}").text
    assert "2 events break rules" in page
    assert "breaks duplicate-start" in page
    assert "not-open: Only what is open" in page
    assert claim.key == KEY


def test_a_run_in_order_says_so_when_asked(client, caller, worker):
    caller.start_in_background()
    worker.run(KEY)
    assert "No event breaks a rule" in client.get(f"/ops/runs/{KEY}?check=1&still=1").text
    assert "rule of the protocol" not in client.get(f"/ops/runs/{KEY}").text


def test_a_result_for_a_call_of_the_input_breaks_no_rule():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    given = run_input()
    given["messages"].append({"id": "a", "role": "assistant", "toolCalls": [call]})
    items = [
        {"seq": 1, "event": {"type": "RUN_STARTED", "threadId": "thread", "runId": "run"}},
        {
            "seq": 2,
            "event": {"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c", "content": "1"},
        },
        {"seq": 3, "event": {"type": "NO_SUCH_EVENT"}},
    ]
    found = rule_check.breaks(items, RunIdentity("local", "thread", "run"), json.dumps(given).encode())
    assert found == {3: rule_check.UNREADABLE}


def test_a_result_for_an_answered_call_that_the_input_leaves_out_breaks_no_rule():
    answered = run_input(resume=[{"interruptId": "q", "status": "resolved"}])
    result = {"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c", "content": "1"}
    items = [
        {"seq": 1, "event": {"type": "RUN_STARTED", "threadId": "thread", "runId": "run"}},
        {"seq": 2, "event": result},
    ]
    identity = RunIdentity("local", "thread", "run")
    assert rule_check.breaks(items, identity, json.dumps(answered).encode()) == {}
    assert list(rule_check.breaks(items, identity, json.dumps(run_input()).encode())) == [2]


def test_an_input_as_deep_as_the_limit_allows_is_read(make_app, worker):
    deep: dict[str, Any] = {}
    for _ in range(110):
        deep = {"in": deep}
    app = make_app(max_input_depth=128)
    Caller(app.test_client()).start_in_background(run_input(forwardedProps=deep))
    _says(worker, "said")
    page = unescape(app.test_client().get(f"/ops/runs/{KEY}?tab=state").text)
    assert '"hello"' in page
    assert '"said"' in page
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    given = run_input(forwardedProps=deep)
    given["messages"].append({"id": "a", "role": "assistant", "toolCalls": [call]})
    items = [
        {"seq": 1, "event": {"type": "RUN_STARTED", "threadId": "thread", "runId": "run"}},
        {
            "seq": 2,
            "event": {"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c", "content": "1"},
        },
    ]
    assert rule_check.breaks(items, RunIdentity("local", "thread", "run"), json.dumps(given).encode()) == {}


def test_a_run_whose_input_is_gone_shows_what_it_said(client, caller, worker, store):
    caller.start_in_background()
    _says(worker, "said")
    store.client.delete(keys.run_input(KEY))
    page = unescape(client.get(f"/ops/runs/{KEY}?tab=state").text)
    assert '"said"' in page


# --- many runs ---------------------------------------------------------------------------------------------


def test_each_agent_has_its_numbers_and_a_small_chart_with_words(client, caller, worker):
    caller.start_in_background(run_input("a", "a"))
    worker.run(key_of("a", "a"), "x")
    caller.start_in_background(run_input("b", "b"))
    worker.run(key_of("b", "b"), "x", outcome=Outcome.failed(FailureCode.TRANSPORT_TIMEOUT))
    page = client.get("/ops/").text
    assert "Runs of echo that ended: at most 2 in a minute" in page
    assert re.search(r"<td class=\"num\">50 %</td>", page)


def test_ages_of_a_filter_read_as_people_write_them(client):
    assert "older than 60 s" in client.get("/ops/runs?older_than=60").text
    assert "60.0" not in client.get("/ops/runs?older_than=60").text


def test_a_worker_with_many_runs_lists_those_in_trouble_first_and_counts_the_rest(
    client, caller, worker, store, monkeypatch
):
    monkeypatch.setattr("web.ops.plant.RUNS_OF_WORKER", 2)
    for number in range(4):
        caller.start_in_background(run_input(f"r{number}", f"t{number}"))
        worker.claim(key_of(f"r{number}", f"t{number}"))
    last = key_of("r3", "t3")
    store.client.zadd(keys.leases(last[:2]), {last: 1})
    (row,) = client.get("/ops/api/workers").get_json()["workers"]
    assert (len(row["runs"]), row["runs_total"], row["runs"][0]["key"]) == (2, 4, last)


def test_a_paused_run_reads_differently_once_its_input_is_given(client, caller, worker):
    caller.start_in_background()
    worker.run(KEY, outcome=Outcome.interrupted([{"id": "q1", "reason": "confirmation"}]))
    assert "waiting for input" in client.get(f"/ops/runs/{KEY}").text
    resume = [{"interruptId": "q1", "status": "resolved", "payload": True}]
    caller.start_in_background(run_input("answer", resume=resume))
    assert "answered by" in client.get(f"/ops/runs/{KEY}").text
    worker.run(key_of("answer"))
    page = client.get(f"/ops/runs/{KEY}").text
    assert "input given" in page
    assert "waiting for input" not in page.split('id="p-around"')[0].split('id="p-head"')[1]
