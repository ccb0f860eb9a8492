"""Human in the loop over real processes: a run pauses, people answer, exactly one run goes on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shared.local.server import EmbeddedServer
from tests.conftest import wait_for
from tests.journeys.invariants import check_invariants
from tests.journeys.stack import Run, Stack
from tests.stock_client import ask, needs_client

YES = {"status": "resolved", "payload": {"approved": True}}


@pytest.fixture(scope="module")
def asking() -> Iterator[Stack]:
    """A production stack with agents that ask."""
    with tempfile.TemporaryDirectory(prefix="outlast-journeys-") as folder:
        server = EmbeddedServer(Path(folder) / "redis")
        server.start()
        stack = Stack(Path(folder), server, OUTLAST_AGENTS="agents_under_test:AGENTS,agents_that_ask:AGENTS")
        try:
            stack.start("gunicorn", concurrency=24)
            yield stack
        finally:
            stack.close()
            server.stop()


def paused(stack: Stack, agent: str, **options: Any) -> Run:
    run = stack.submit(agent, **options)
    run.live.finish()
    assert run.recorded()["status"] == "interrupted"
    return run


def following(stack: Stack, run: Run, *answers: dict[str, Any], agent: str | None = None) -> Run:
    """The thread's next run, with what the client has read by now; not sent yet."""
    made = stack.prepare(agent or run.agent, thread_id=run.thread_id)
    made.body["resume"] = list(answers)
    return made


def answer(interrupt_id: str, payload: Any = None) -> dict[str, Any]:
    return {"interruptId": interrupt_id, "status": "resolved", "payload": payload}


def refused(stack: Stack, run: Run) -> tuple[int, dict[str, Any]]:
    response = stack.request("POST", f"/agents/{run.agent}", body=run.body)
    return response.status_code, response.json()


# --- the stock client -------------------------------------------------------------------------------------


class Talk:
    """A conversation that the stock client leads; steps are collected and performed at once."""

    def __init__(self, stack: Stack, agent: str) -> None:
        self.stack, self.agent = stack, agent
        self.runs: list[Run] = []
        self.steps: list[dict[str, Any]] = []

    def step(self, say: str | None = None, *, props: dict[str, Any] | None = None, **more: Any) -> Talk:
        thread = self.runs[0].thread_id if self.runs else None
        run = self.stack.prepare(self.agent, thread_id=thread)
        self.runs.append(run)
        self.steps.append(
            {"agent": self.agent, "runId": run.run_id, "say": say, "forwardedProps": props or {}, **more}
        )
        return self

    def perform(self) -> dict[str, Any]:
        asked = {
            "base": f"http://127.0.0.1:{self.stack.port}",
            "threadId": self.runs[0].thread_id,
            "steps": self.steps,
        }
        return ask("interrupts.mjs", asked)

    def interrupt(self, number: int = 1) -> str:
        """The id of the approval that the first run asks for."""
        return f"approve:{self.runs[0].run_id}-call-{number}"


@needs_client
def test_the_stock_client_approves_a_tool_and_its_result_keeps_the_calls_id(asking: Stack):
    talk = Talk(asking, "approval").step("Clean up.")
    talk.step(responses={talk.interrupt(): YES}).step("Thanks.")
    seen = talk.perform()
    first, second, third = seen["steps"]
    assert [step["warnings"] for step in seen["steps"]] == [[], [], []]
    assert (first["outcome"], [one["id"] for one in first["pending"]]) == ("interrupt", [talk.interrupt()])
    assert (second["outcome"], second["pending"]) == ("success", [])
    started = [event["toolCallId"] for event in first["events"] if event["type"] == "TOOL_CALL_START"]
    results = [event for event in second["events"] if event["type"] == "TOOL_CALL_RESULT"]
    assert [event["toolCallId"] for event in results] == started
    assert not [event for event in second["events"] if event["type"] == "TOOL_CALL_START"]
    assert talk.runs[1].effects() == ["EFFECT"]
    assert third["outcome"] == "interrupt"
    assert talk.runs[0].record()["answered_by"] == talk.runs[1].run_id


@needs_client
def test_the_stock_client_declines_and_the_run_succeeds(asking: Stack):
    talk = Talk(asking, "approval").step("Clean up.")
    talk.step(responses={talk.interrupt(): {"status": "cancelled"}})
    _, second = talk.perform()["steps"]
    assert (second["outcome"], second["pending"], second["warnings"]) == ("success", [], [])
    assert "declined" in [event.get("content") for event in second["events"]]
    assert talk.runs[1].effects() == []


@needs_client
def test_the_stock_client_reads_which_entry_does_not_fit_and_answers_again(asking: Stack):
    talk = Talk(asking, "approval").step("Clean up.")
    talk.step(responses={talk.interrupt(): {"status": "resolved", "payload": {"approved": "maybe"}}})
    talk.step(responses={talk.interrupt(): YES})
    _, second, third = talk.perform()["steps"]
    assert (second["rejected"]["status"], second["rejected"]["payload"]["field"]) == (400, "resume.0.payload")
    assert [one["id"] for one in second["pending"]] == [talk.interrupt()]
    assert third["outcome"] == "success"


@needs_client
def test_the_stock_client_gets_past_an_answer_whose_run_failed(asking: Stack):
    talk = Talk(asking, "fails_when_resumed").step("Begin.")
    talk.step(responses={"q": {"status": "resolved"}})
    talk.step(responses={"q": {"status": "resolved"}})
    talk.step("go on", responses={"q": {"status": "cancelled"}})
    _, failed, again, past = talk.perform()["steps"]
    assert failed["errorCode"] == "AGENT_ERROR"
    assert again["rejected"]["payload"]["code"] == "INTERRUPT_ANSWERED"
    assert (past["outcome"], past["pending"]) == ("success", [])


@needs_client
def test_the_stock_client_abandons_what_has_expired(asking: Stack):
    talk = Talk(asking, "asks_twice").step("Begin.", props={"expires_at": "2001-01-01T00:00:00Z"})
    talk.step(responses={"first": {"status": "resolved", "payload": 1}, "second": {"status": "cancelled"}})
    _, second = talk.perform()["steps"]
    assert second["outcome"] == "success"


# --- the executor -----------------------------------------------------------------------------------------


def test_a_run_that_leaves_a_question_open_is_refused_and_told_all_of_them(asking: Stack):
    run = paused(asking, "asks_twice")
    status, problem = refused(asking, following(asking, run, answer("first", 1)))
    assert (status, problem["code"]) == (409, "INTERRUPT_OPEN")
    assert [one["id"] for one in problem["interrupts"]] == ["second"]
    assert problem["run"]["run_id"] == run.run_id


def test_two_answers_at_once_and_exactly_one_goes_on(asking: Stack):
    for _ in range(20):
        run = paused(asking, "approval")
        asked = run.record()["outcome"]["interrupts"][0]
        racers = [following(asking, run, answer(asked["id"], {"approved": True})) for _ in range(4)]
        for racer in racers:
            racer.body["messages"].append(calling(asked["toolCallId"]))

        def post(racer: Run) -> int:
            headers = {"Prefer": "respond-async"}
            path = f"/agents/{racer.agent}"
            return asking.request("POST", path, body=racer.body, headers=headers).status_code

        with ThreadPoolExecutor(len(racers)) as pool:
            statuses = list(pool.map(post, racers))
        assert sorted(statuses) == [202, 409, 409, 409]
        winner = racers[statuses.index(202)]
        assert winner.recorded()["status"] == "succeeded"
        assert [racer.effects() for racer in racers].count(["EFFECT"]) == 1


def calling(call_id: str) -> dict[str, Any]:
    function = {"name": "delete_file", "arguments": "{}"}
    call = {"id": call_id, "type": "function", "function": function}
    return {"id": "a1", "role": "assistant", "toolCalls": [call]}


def test_a_completed_resume_that_is_sent_again_reads_the_record(asking: Stack):
    run = paused(asking, "approval")
    asked = run.record()["outcome"]["interrupts"][0]
    resumed = following(asking, run, answer(asked["id"], {"approved": True}))
    resumed.body["messages"].append(calling(asked["toolCallId"]))
    asking.send(resumed).live.finish()
    assert asking.post(resumed).finish()["type"] == "RUN_FINISHED"
    assert resumed.effects() == ["EFFECT"]
    resumed.body["resume"] = [answer(asked["id"], {"approved": False})]
    status, problem = refused(asking, resumed)
    assert (status, problem["code"], problem["field"]) == (409, "RUN_CONFLICT", "resume")
    check_invariants(asking, resumed)


def test_a_waiting_run_fails_at_its_turn_and_the_one_behind_it_is_judged_too(asking: Stack):
    first = asking.submit("slowly_asks").running()
    behind = [asking.send(asking.prepare("echo", thread_id=first.thread_id)) for _ in range(2)]
    for run in behind:
        run.live.finish()
        assert run.recorded()["code"] == "INTERRUPT_OPEN"
        check_invariants(asking, run)
    resumed = following(asking, first, answer(f"{first.run_id}-q"), agent="echo")
    asking.send(resumed).live.finish()
    assert resumed.recorded()["status"] == "succeeded"


def test_an_answer_that_was_withdrawn_in_the_queue_may_be_given_again(asking: Stack):
    run = paused(asking, "asks_twice")
    answers = [answer("first", 1), answer("second", 2)]
    asking.store.controls.pause(by="a test")
    try:
        withdrawn = asking.send(following(asking, run, *answers))
        assert withdrawn.cancel().status_code in {200, 202}
        assert withdrawn.recorded()["status"] == "cancelled"
    finally:
        asking.store.controls.resume()
    resumed = asking.send(following(asking, run, *answers))
    resumed.live.finish()
    assert resumed.live.text == "first=1 second=2"


def test_an_invented_answer_never_reaches_the_agent(asking: Stack):
    run = asking.prepare("approval")
    run.body["resume"] = [answer("approve:x", {"approved": True})]
    asking.send(run).live.finish()
    assert run.recorded()["status"] == "interrupted"
    assert run.effects() == []
    wait_for(lambda: "resume.unknown" in asking.report(), 5)
