"""A run goes through: accepted, executed, streamed, recorded."""

from __future__ import annotations

import itertools

import pytest

from tests.journeys.invariants import check_invariants
from tests.journeys.stack import Stack
from tests.openai_endpoint import Endpoint, complete, text


def test_the_catalogue_lists_shipped_agents_and_the_users_own(stack: Stack):
    names = {agent["name"] for agent in stack.request("GET", "/agents").json()["agents"]}
    assert {"echo", "demo", "chat", "waits", "async_generator"} <= names


def test_echo_says_the_last_user_text(stack: Stack):
    run = stack.submit("echo", text="so long")
    assert run.live.finish()["outcome"] == {"type": "success"}
    assert run.live.text == "so long"
    check_invariants(stack, run)


def test_the_demo_shows_every_kind_of_event(stack: Stack):
    run = stack.submit("demo", delay=0)
    run.live.finish()
    shown = set(run.live.types)
    assert {
        "TEXT_MESSAGE_CONTENT",
        "REASONING_MESSAGE_CONTENT",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_RESULT",
    } <= shown
    assert {"STATE_SNAPSHOT", "STEP_STARTED", "STEP_FINISHED", "RUN_FINISHED"} <= shown
    check_invariants(stack, run)


def test_chat_streams_what_the_provider_streams(stack: Stack, provider: Endpoint):
    provider.answers[:] = [complete(text("Grüße "), text("from the model."))]
    run = stack.submit("chat")
    terminal = run.live.finish()
    assert run.live.text == "Grüße from the model."
    assert terminal["outcome"]["type"] == "success"
    check_invariants(stack, run)


@pytest.mark.parametrize(
    ("agent", "props", "said"),
    [
        ("counts", {"deltas": 5}, "0 1 2 3 4 "),
        ("sync_counts", {"deltas": 5}, "0 1 2 3 4 "),
        ("async_generator", {"seconds": 0}, "generated"),
        ("sync_generator", {"pauses": 3}, "0 1 2 "),
    ],
)
def test_every_form_of_agent_runs_once_and_succeeds(
    stack: Stack, agent: str, props: dict[str, int], said: str
):
    run = stack.submit(agent, **props)
    assert run.live.finish()["type"] == "RUN_FINISHED"
    assert run.live.text == said
    assert check_invariants(stack, run)["type"] == "RUN_FINISHED"
    assert [word for word in run.effects() if word != "EFFECT"] == ["START", "END"]


def test_events_reach_the_client_while_the_agent_still_works(stack: Stack):
    run = stack.submit("counts", deltas=4, pause=0.3)
    run.live.finish()
    times = [
        at
        for at, kind in zip(run.live.arrived, run.live.types, strict=True)
        if kind == "TEXT_MESSAGE_CONTENT"
    ]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert min(gaps) > 0.15, gaps


def test_a_silent_run_gets_heartbeats(stack: Stack):
    run = stack.submit("waits", seconds=2.5)
    run.live.finish()
    assert run.live.comments >= 2
    check_invariants(stack, run)


def test_two_thousand_deltas_reach_every_reader_once_and_in_order(stack: Stack):
    run = stack.submit("sync_counts", deltas=2000)
    readers = [run.watch() for _ in range(5)]
    expected = "".join(f"{number} " for number in range(2000))
    for stream in [run.live, *readers]:
        stream.finish(30)
        assert stream.text == expected
    check_invariants(stack, run)


def test_an_answer_without_a_stream_names_the_run(stack: Stack):
    run = stack.prepare("counts", deltas=3)
    answer = stack.request("POST", "/agents/counts", body=run.body, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202
    assert answer.headers["outlast-run-key"] == run.key
    assert stack.request("GET", answer.headers["location"]).json()["run_id"] == run.run_id
    found = stack.request("GET", f"{run.path}?wait=10").json()
    assert found["status"] == "succeeded"
    check_invariants(stack, run)


def test_an_unknown_agent_is_refused_before_the_stream(stack: Stack):
    run = stack.prepare("nobody")
    answer = stack.request("POST", "/agents/nobody", body=run.body)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")
