"""The stock AG-UI client from npm, as an application uses it, against the real processes."""

from __future__ import annotations

from typing import Any

from tests.journeys.invariants import check_invariants
from tests.journeys.stack import Stack
from tests.openai_endpoint import Endpoint, Stall, chunk, complete, streamed, text
from tests.stock_client import ask, needs_client

pytestmark = needs_client


def _perform(stack: Stack, *runs: dict[str, Any]) -> list[dict[str, Any]]:
    asked = {"base": f"http://127.0.0.1:{stack.port}", "runs": list(runs)}
    told = ask("run.mjs", asked)
    return list(told["runs"])


class Journey:
    """What Node is asked to do, and the run as the other journeys know it."""

    def __init__(self, stack: Stack, agent: str, *, message: str = "hello", **props: Any) -> None:
        self.run = stack.prepare(agent, text=message, **props)

    def spec(self, **more: Any) -> dict[str, Any]:
        body = self.run.body
        names = ("threadId", "runId", "messages", "forwardedProps")
        return {"agent": self.run.agent, **{name: body[name] for name in names}, **more}


def _types(seen: dict[str, Any]) -> list[str]:
    return [event["type"] for event in seen["events"]]


def test_the_stock_client_completes_every_shipped_agent_without_a_warning(stack: Stack, provider: Endpoint):
    provider.answers[:] = [complete(text("Hello "), text("from the model."))]
    journeys = [
        Journey(stack, "echo", message="ping"),
        Journey(stack, "demo", delay=0),
        Journey(stack, "chat"),
    ]
    seen = _perform(stack, *(journey.spec() for journey in journeys))
    for journey, shown in zip(journeys, seen, strict=True):
        assert shown["warnings"] == []
        assert "rejected" not in shown
        assert shown["outcome"] == "success"
        assert (_types(shown)[0], _types(shown)[-1]) == ("RUN_STARTED", "RUN_FINISHED")
        check_invariants(stack, journey.run)
    echo, demo, chat = seen
    assert echo["messages"][-1]["content"] == "ping"
    assert chat["messages"][-1]["content"] == "Hello from the model."
    assert {"assistant", "tool", "reasoning"} <= {message["role"] for message in demo["messages"]}
    assert demo["state"]


def test_the_stock_client_completes_users_agents_without_a_warning(stack: Stack):
    journeys = [
        Journey(stack, name, deltas=3, seconds=0, pauses=2)
        for name in ("counts", "async_generator", "sync_generator")
    ]
    for shown in _perform(stack, *(journey.spec() for journey in journeys)):
        assert (shown["warnings"], shown["outcome"]) == ([], "success")


def test_the_stock_client_sees_the_outcome_cancelled(stack: Stack):
    journeys = [Journey(stack, name) for name in ("waits", "sync_emits", "async_generator")]
    openers = ("TEXT_MESSAGE_CONTENT", "TOOL_CALL_ARGS", "TEXT_MESSAGE_CONTENT")
    specs = [journey.spec(cancelOn=kind) for journey, kind in zip(journeys, openers, strict=True)]
    for journey, shown in zip(journeys, _perform(stack, *specs), strict=True):
        journey.run.cancel_accepted = shown["cancelStatus"] in {200, 202}
        assert (shown["warnings"], shown["outcome"]) == ([], "cancelled")
        assert "rejected" not in shown
        check_invariants(stack, journey.run)


def test_the_stock_client_sees_a_providers_timeout_as_an_error(stack: Stack, provider: Endpoint):
    provider.answers[:] = [streamed(chunk({"role": "assistant", "content": ""}), text("once upon"), Stall())]
    journey = Journey(stack, "chat")
    [shown] = _perform(stack, journey.spec())
    journey.run.provider_timed_out = True
    assert (shown["warnings"], shown["errorCode"]) == ([], "transport_timeout")
    assert "outcome" not in shown
    assert shown["messages"][-1]["content"] == "once upon"
    check_invariants(stack, journey.run)


def test_the_stock_client_reads_a_refusal(stack: Stack):
    journey = Journey(stack, "nobody")
    [shown] = _perform(stack, journey.spec())
    assert shown["rejected"]["status"] == 404
    assert shown["rejected"]["payload"]["code"] == "UNKNOWN_AGENT"
