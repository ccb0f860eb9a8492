"""What the web refuses, and what a refusal leaves untouched."""

from __future__ import annotations

import pytest

from tests.journeys.invariants import check_invariants
from tests.journeys.sse_stream import Refused
from tests.journeys.stack import Run, Stack


def test_a_cancel_of_an_ended_run_is_refused_with_its_outcome(stack: Stack):
    run = stack.submit("counts", deltas=2)
    run.live.finish()
    answer = run.cancel()
    assert (answer.status_code, answer.json()["code"]) == (409, "RUN_ENDED")
    assert answer.json()["run"]["status"] == "succeeded"
    assert check_invariants(stack, run)["outcome"] == {"type": "success"}


def test_a_cancel_of_an_unknown_run_is_refused_and_leaves_no_flag(stack: Stack):
    run = stack.prepare("waits", seconds=0.3)
    answer = run.cancel()
    assert (answer.status_code, answer.json()["code"]) == (404, "UNKNOWN_RUN")
    stack.send(run)
    assert run.live.finish()["outcome"] == {"type": "success"}
    check_invariants(stack, run)


def test_a_cancel_under_another_thread_is_refused_and_stops_nothing(stack: Stack):
    run = stack.submit("waits", seconds=1)
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    other = stack.submit("counts", deltas=1)
    answer = stack.request("POST", f"/threads/{other.thread_id}/runs/{run.run_id}/cancel", body={})
    assert answer.status_code == 404
    assert run.live.finish()["outcome"] == {"type": "success"}
    check_invariants(stack, run)


def test_a_late_cancel_of_the_previous_run_does_not_stop_the_next_one(stack: Stack):
    previous = stack.submit("counts", deltas=1)
    previous.live.finish()
    following = stack.submit("waits", thread_id=previous.thread_id, seconds=0.5)
    following.live.until_type("TEXT_MESSAGE_CONTENT")
    assert previous.cancel().status_code == 409
    assert following.live.finish()["outcome"] == {"type": "success"}
    check_invariants(stack, following)


# --- two actors: the same installation, served by a second web process that asks for keys ---


@pytest.fixture(scope="module")
def keys(stack: Stack):
    """A stack whose verbs go to a web process with authentication, and the keys of ann and bob."""
    port, web = stack.port, stack.web
    stack.start_web(OUTLAST_AUTH="keys")
    yield {name: stack.store.api_keys.create(name)[0] for name in ("ann", "bob")}
    assert stack.web is not None
    stack.web.kill()
    stack.port, stack.web = port, web


@pytest.fixture
def ann(stack: Stack, keys: dict[str, str]) -> Run:
    run = stack.submit("waits", actor="ann", token=keys["ann"], seconds=1.5)
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    return run


def test_nobody_is_served_without_a_key(stack: Stack, keys: dict[str, str]):
    run = stack.prepare("echo")
    with pytest.raises(Refused) as refused:
        stack.send(run)
    assert refused.value.status == 401
    assert "www-authenticate" in refused.value.headers


def test_another_actors_run_is_not_there(stack: Stack, keys: dict[str, str], ann: Run):
    bob = keys["bob"]
    assert stack.request("POST", f"{ann.path}/cancel", token=bob, body={}).status_code == 404
    assert stack.request("POST", f"/runs/{ann.key}/cancel", token=bob, body={}).status_code == 404
    assert stack.request("GET", ann.path, token=bob).status_code == 404
    assert stack.request("GET", f"/runs/{ann.key}", token=bob).status_code == 404
    assert stack.request("GET", f"{ann.path}/events", token=bob).status_code == 404
    assert stack.request("GET", "/runs", token=bob).json()["runs"] == []
    assert ann.live.finish()["outcome"] == {"type": "success"}
    check_invariants(stack, ann)


def test_two_actors_use_the_same_ids_for_runs_of_their_own(stack: Stack, keys: dict[str, str], ann: Run):
    body = {**ann.body, "forwardedProps": {"seconds": 0.1}}
    bob = Run(stack, "waits", ann.thread_id, ann.run_id, "bob", body, keys["bob"])
    assert stack.send(bob).live.finish()["outcome"] == {"type": "success"}
    assert "finished_at" not in ann.record()
    assert ann.cancel().status_code in {200, 202}
    assert ann.live.finish()["outcome"] == {"type": "cancelled"}
    assert bob.record()["status"] == "succeeded"
    assert (ann.record()["actor"], bob.record()["actor"]) == ("ann", "bob")
