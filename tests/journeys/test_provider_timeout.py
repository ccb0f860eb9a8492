"""A provider that does not answer in time ends the run transport_timeout, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.journeys.invariants import check_invariants
from tests.journeys.stack import Stack
from tests.openai_endpoint import Answer, Endpoint, Reset, Stall, chunk, failing, silent, streamed, text

OPENING = chunk({"role": "assistant", "content": ""})


@pytest.fixture
def stalling() -> Iterator[Endpoint]:
    """Sends a few words, then nothing."""
    with Endpoint([streamed(b"once upon ", Stall())]) as endpoint:
        yield endpoint


@pytest.mark.parametrize("answer", [silent(Stall()), streamed(OPENING, text("once upon"), Stall())])
def test_a_stalled_chat_is_a_transport_timeout_and_is_not_asked_again(
    stack: Stack, provider: Endpoint, answer: Answer
):
    provider.answers[:] = [answer]
    asked = len(provider.requests)
    run = stack.submit("chat")
    terminal = run.live.finish()
    run.provider_timed_out = True
    assert (terminal["type"], terminal["code"]) == ("RUN_ERROR", "transport_timeout")
    assert "127.0.0.1" not in terminal["message"]
    assert run.recorded()["code"] == "transport_timeout"
    check_invariants(stack, run)
    assert run.watch().finish() == terminal
    assert stack.post(run).finish() == terminal
    assert len(provider.requests) == asked + 1


@pytest.mark.parametrize("agent", ["asks_provider", "sync_asks_provider"])
def test_a_timeout_in_a_users_agent_keeps_what_was_said(stack: Stack, stalling: Endpoint, agent: str):
    run = stack.submit(agent, url=stalling.base_url, timeout=0.4)
    terminal = run.live.finish()
    run.provider_timed_out = True
    assert (terminal["type"], terminal["code"]) == ("RUN_ERROR", "transport_timeout")
    assert run.live.text == "asking once upon "
    check_invariants(stack, run)
    assert run.watch().finish() == terminal
    assert len(stalling.requests) == 1


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (silent(Reset()), "transport_error"),
        (failing(504, '{"error": {"message": "upstream timeout at secret.example"}}'), "provider_error"),
        (failing(408, '{"error": {"message": "timeout"}}'), "provider_error"),
    ],
)
def test_other_failures_of_a_provider_are_not_timeouts(
    stack: Stack, provider: Endpoint, answer: Answer, code: str
):
    provider.answers[:] = [answer]
    run = stack.submit("chat")
    terminal = run.live.finish()
    assert (terminal["type"], terminal["code"]) == ("RUN_ERROR", code)
    assert "secret" not in terminal["message"]
    check_invariants(stack, run)


def test_an_agents_own_timeout_is_its_own_failure(stack: Stack):
    run = stack.submit("own_timeout")
    assert run.live.finish()["code"] == "AGENT_ERROR"
    check_invariants(stack, run)


def test_a_cancel_during_a_stalled_call_ends_cancelled(stack: Stack, stalling: Endpoint):
    run = stack.submit("asks_provider", url=stalling.base_url, timeout=30)
    run.live.until(lambda stream: "once" in stream.text)
    assert run.cancel().status_code in {200, 202}
    assert run.live.finish(5)["outcome"] == {"type": "cancelled"}
    check_invariants(stack, run)
