"""The chat agent with tools of its own, against an endpoint that answers what a test wants."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from shared.protocol.events import Event, EventType, RunAgentInput
from shared.runs.outcome import StopCause
from shared.settings import Settings
from tests.openai_endpoint import DONE, Answer, Endpoint, call, chunk, complete, finish, streamed, text
from worker.agents import chat_agent
from worker.agents.chat_agent import chat, make_chat
from worker.agents.testing import record, run_input
from worker.agents.tools import tool
from worker.cancellation import CancellationToken
from worker.context import RunContext
from worker.failures import AgentError

KEY = "plain-words-key"


@tool
async def weather(city: str) -> dict[str, Any]:
    """Tells the weather."""
    return {"city": city, "degrees": 21}


@tool(needs_approval=True)
def delete(path: str) -> str:
    """Deletes a file."""
    return f"deleted {path}"


def run(
    endpoint: Endpoint,
    *tools: Any,
    given: RunAgentInput | None = None,
    token: CancellationToken | None = None,
    **members: Any,
) -> list[Event]:
    settings = Settings(chat_model="small-1", chat_base_url=endpoint.base_url, chat_api_key=KEY)
    agent = make_chat(settings, tools=tools, **members)

    async def closing(ctx: RunContext) -> Any:
        try:
            return await agent(ctx)
        finally:
            await asyncio.to_thread(ctx.resources.close)

    return record(closing, given or run_input("hello"), token=token)


def calling(*calls: bytes, said: bytes = b"") -> Answer:
    return complete(*([said] if said else []), *calls, finish("tool_calls"))


def look(
    arguments: str = '{"city": "Paris"}', call_id: str = "a", name: str = "weather", index: int = 0
) -> bytes:
    return call(index, arguments, call_id, name)


GOOD = complete(text("It is warm."), finish())


def wire(event: Event) -> dict[str, Any]:
    return event.model_dump(mode="json", by_alias=True, exclude_none=True)


def types(events: list[Event]) -> list[str]:
    return [event.type.value for event in events[1:-1]]


def results(events: list[Event]) -> dict[str, Any]:
    """Call id to what the model reads, in the order in which the results were sent."""
    return {
        event.tool_call_id: _read(event.content)
        for event in events
        if event.type is EventType.TOOL_CALL_RESULT
    }


def _read(content: str) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content


def continued(events: list[Event], given: RunAgentInput, **members: Any) -> RunAgentInput:
    """The input of the next run of a client that followed the first one."""
    calls: dict[str, dict[str, Any]] = {}
    messages = [wire(message) for message in given.messages]
    for event in map(wire, events):
        match event["type"]:
            case "TOOL_CALL_START":
                function = {"name": event["toolCallName"], "arguments": ""}
                calls[event["toolCallId"]] = {
                    "id": event["toolCallId"],
                    "type": "function",
                    "function": function,
                }
            case "TOOL_CALL_ARGS":
                calls[event["toolCallId"]]["function"]["arguments"] += event["delta"]
            case _:
                pass
    messages.append({"id": "told", "role": "assistant", "toolCalls": list(calls.values())})
    messages += [
        {"id": f"r-{call_id}", "role": "tool", "toolCallId": call_id, "content": json.dumps(content)}
        for call_id, content in results(events).items()
    ]
    return run_input(run_id="run-2", messages=messages, **members)


def test_a_call_is_executed_and_the_model_reads_its_result(endpoint: Endpoint) -> None:
    endpoint.answers = [calling(look(), said=text("Looking.")), GOOD]
    events = run(endpoint, weather)
    assert types(events) == [
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
    ]
    assert wire(events[-1])["outcome"] == {"type": "success"}
    first, second = (seen.body for seen in endpoint.requests)
    assert [offered["function"]["name"] for offered in first["tools"]] == ["weather"]
    assert second["tools"] == first["tools"]
    assert second["messages"][1:] == [
        {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": '{"city":"Paris","degrees":21}'},
    ]


def test_usage_is_the_sum_of_all_answers(endpoint: Endpoint) -> None:
    endpoint.answers = [calling(look()), calling(look(call_id="b")), GOOD]
    (usage,) = wire(run(endpoint, weather)[-1])["usage"]
    assert (usage["inputTokens"], usage["outputTokens"], usage["cachedInputTokens"]) == (33, 21, 9)


def test_answers_of_several_models_are_counted_apart(endpoint: Endpoint) -> None:
    other = chunk(usage={"prompt_tokens": 1}).replace(b"stub-1", b"stub-2")
    endpoint.answers = [calling(look()), streamed(text("x"), finish(), other, DONE)]
    usage = wire(run(endpoint, weather)[-1])["usage"]
    assert [(one["model"], one["inputTokens"]) for one in usage] == [("stub-1", 11), ("stub-2", 1)]


def test_several_calls_of_one_answer_run_at_once(endpoint: Endpoint) -> None:
    both = threading.Barrier(2, timeout=5)

    @tool
    def meet(name: str) -> str:
        both.wait()
        return name

    endpoint.answers = [
        calling(look('{"name": "x"}', "a", "meet"), look('{"name": "y"}', "b", "meet", 1)),
        GOOD,
    ]
    assert results(run(endpoint, meet)) == {"a": "x", "b": "y"}
    told = endpoint.requests[1].body["messages"][2:]
    assert [(one["tool_call_id"], one["content"]) for one in told] == [("a", "x"), ("b", "y")]


def test_a_result_is_sent_when_it_is_there_and_told_in_the_order_of_the_calls(endpoint: Endpoint) -> None:
    quick_done = asyncio.Event()

    @tool
    async def slow() -> str:
        await quick_done.wait()
        return "slow"

    @tool
    async def quick() -> str:
        quick_done.set()
        return "quick"

    endpoint.answers = [calling(look("{}", "a", "slow"), look("{}", "b", "quick", 1)), GOOD]
    assert list(results(run(endpoint, slow, quick))) == ["b", "a"]
    assert [one["content"] for one in endpoint.requests[1].body["messages"][2:]] == ["slow", "quick"]


def test_a_sequential_tool_has_the_calls_of_its_answer_run_one_by_one(endpoint: Endpoint) -> None:
    inside: list[int] = []

    @tool(sequential=True)
    async def alone() -> int:
        inside.append(1)
        await asyncio.sleep(0)
        return inside.pop() + len(inside)

    endpoint.answers = [calling(*(look("{}", str(n), "alone", n) for n in range(3))), GOOD]
    assert results(run(endpoint, alone)) == {"0": 1, "1": 1, "2": 1}


def test_a_misfit_is_told_to_the_model_which_may_try_again(endpoint: Endpoint) -> None:
    endpoint.answers = [calling(look('{"town": "Paris"}')), calling(look(call_id="b")), GOOD]
    events = run(endpoint, weather)
    assert results(events)["a"]["error"] == "the arguments do not fit the tool"
    assert results(events)["b"]["degrees"] == 21
    assert wire(events[-1])["outcome"] == {"type": "success"}


def test_arguments_that_are_not_json_are_sent_back_as_an_empty_object(endpoint: Endpoint) -> None:
    endpoint.answers = [calling(look('{"city": Paris}')), GOOD]
    run(endpoint, weather)
    (made,) = endpoint.requests[1].body["messages"][1]["tool_calls"]
    assert made["function"]["arguments"] == "{}"


def test_a_tool_that_nobody_has_is_told_to_the_model(endpoint: Endpoint) -> None:
    endpoint.answers = [calling(look("{}", name="teleport")), GOOD]
    assert results(run(endpoint, weather)) == {"a": {"error": "there is no tool teleport"}}


def test_a_tool_that_fails_does_not_fail_the_run(endpoint: Endpoint) -> None:
    @tool
    def breaks() -> None:
        raise OSError("/etc/secret")

    endpoint.answers = [calling(look("{}", name="breaks")), GOOD]
    events = run(endpoint, breaks)
    assert results(events)["a"]["error"] == "the tool failed"
    assert wire(events[-1])["outcome"] == {"type": "success"}


def test_an_agent_error_in_a_tool_fails_the_run_and_stops_its_neighbours(endpoint: Endpoint) -> None:
    stopped: list[bool] = []

    @tool
    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)

    @tool
    async def ends() -> None:
        await asyncio.sleep(0)
        raise AgentError("enough")

    endpoint.answers = [calling(look("{}", "a", "waits"), look("{}", "b", "ends", 1)), GOOD]
    events = run(endpoint, waits, ends)
    ending = wire(events[-1])
    assert (ending["code"], ending["message"]) == ("AGENT_ERROR", "agent error: enough")
    assert results(events) == {}
    assert stopped == [True]
    assert len(endpoint.requests) == 1


def test_a_model_that_never_stops_calling_fails_the_run_at_the_bound(endpoint: Endpoint) -> None:
    executed: list[int] = []

    @tool
    def count() -> int:
        executed.append(1)
        return len(executed)

    endpoint.answers = [calling(look("{}", name="count"))]
    ending = wire(run(endpoint, count, max_answers=3)[-1])
    assert ending["code"] == "AGENT_ERROR"
    assert "answer 3" in ending["message"]
    assert len(endpoint.requests) == 3
    assert len(executed) == 2


def test_a_call_of_the_clients_tool_ends_the_run_with_the_call_pending(endpoint: Endpoint) -> None:
    shown = {"name": "show", "description": "Shows.", "parameters": {"type": "object", "properties": {}}}
    given = run_input("hello", tools=[shown])
    endpoint.answers = [calling(look(call_id="a"), look("{}", "b", "show", 1)), GOOD]
    events = run(endpoint, weather, given=given)
    assert list(results(events)) == ["a"]
    assert wire(events[-1])["outcome"] == {"type": "success", "pendingToolCallIds": ["b"]}
    assert len(endpoint.requests) == 1


def test_the_next_run_carries_the_clients_result_to_the_model(endpoint: Endpoint) -> None:
    shown = {"name": "show", "description": "Shows.", "parameters": {"type": "object", "properties": {}}}
    given = run_input("hello", tools=[shown])
    endpoint.answers = [calling(look("{}", "b", "show")), GOOD]
    events = run(endpoint, weather, given=given)
    again = continued(events, given, tools=[shown])
    answered = {"id": "m9", "role": "tool", "toolCallId": "b", "content": "shown"}
    again = run_input(
        run_id="run-2", messages=[*(wire(one) for one in again.messages), answered], tools=[shown]
    )
    assert wire(run(endpoint, weather, given=again)[-1])["outcome"] == {"type": "success"}
    assert endpoint.requests[1].body["messages"][-1] == {
        "role": "tool",
        "tool_call_id": "b",
        "content": "shown",
    }


def test_a_client_cannot_take_the_place_of_a_tool(endpoint: Endpoint) -> None:
    fake = {"name": "weather", "description": "Mine.", "parameters": {"type": "object", "properties": {}}}
    endpoint.answers = [calling(look()), GOOD]
    events = run(endpoint, weather, given=run_input("hello", tools=[fake]))
    (offered,) = endpoint.requests[0].body["tools"]
    assert offered["function"]["description"] == "Tells the weather."
    assert results(events)["a"]["degrees"] == 21


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_goes_back_to_the_model_with_the_calls_it_led_to(endpoint: Endpoint, name: str) -> None:
    endpoint.answers = [calling(look(), said=chunk({name: "hm"}) + chunk({name: "m"})), GOOD]
    run(endpoint, weather)
    spoken = endpoint.requests[1].body["messages"][1]
    assert (spoken["role"], spoken[name]) == ("assistant", "hmm")


def signed(call_id: str = "a") -> bytes:
    """A call with what Gemini's endpoint wants to see again."""
    body = json.loads(look(call_id=call_id).removeprefix(b"data: "))
    body["choices"][0]["delta"]["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "s1"}}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def test_what_the_endpoint_attached_to_a_call_goes_back_with_it(endpoint: Endpoint) -> None:
    endpoint.answers = [calling(signed()), GOOD]
    run(endpoint, weather)
    (made,) = endpoint.requests[1].body["messages"][1]["tool_calls"]
    assert made["extra_content"] == {"google": {"thought_signature": "s1"}}


def test_what_the_endpoint_attached_to_a_call_comes_back_with_the_next_run(endpoint: Endpoint) -> None:
    given = run_input("hello")
    endpoint.answers = [calling(signed()), GOOD]
    events = run(endpoint, given=given)
    (seal,) = (event for event in events if event.type is EventType.REASONING_ENCRYPTED_VALUE)
    assert (seal.subtype, seal.entity_id) == ("tool-call", "a")
    messages = [wire(one) for one in continued(events, given).messages]
    messages[-1]["toolCalls"][0]["encryptedValue"] = seal.encrypted_value
    messages.append({"id": "r", "role": "tool", "toolCallId": "a", "content": "21"})
    run(endpoint, given=run_input(run_id="run-2", messages=messages))
    (made,) = endpoint.requests[1].body["messages"][1]["tool_calls"]
    assert made["extra_content"] == {"google": {"thought_signature": "s1"}}


@pytest.mark.parametrize("value", ["opaque", "extra_content:{", ""])
def test_another_agents_encrypted_value_is_not_sent(endpoint: Endpoint, value: str) -> None:
    made = {
        "id": "a",
        "type": "function",
        "function": {"name": "x", "arguments": "{}"},
        "encryptedValue": value,
    }
    history = [
        {"id": "m1", "role": "assistant", "toolCalls": [made]},
        {"id": "m2", "role": "tool", "toolCallId": "a", "content": "x"},
    ]
    endpoint.answers = [GOOD]
    run(endpoint, given=run_input("and?", messages=history))
    assert "extra_content" not in str(endpoint.requests[0].body)


def test_instructions_come_first(endpoint: Endpoint) -> None:
    endpoint.answers = [GOOD]
    run(endpoint, instructions="Be brief.")
    run(endpoint, instructions=lambda ctx: f"You serve {ctx.thread_id}.")
    told = [seen.body["messages"][0] for seen in endpoint.requests]
    assert told == [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": "You serve thread."},
    ]


def test_a_forced_tool_is_forced_once(endpoint: Endpoint) -> None:
    endpoint.answers = [calling(look()), GOOD]
    run(endpoint, weather, options={"tool_choice": "required", "top_k": 3})
    first, second = (seen.body for seen in endpoint.requests)
    assert (first["tool_choice"], first["top_k"]) == ("required", 3)
    assert "tool_choice" not in second
    assert second["top_k"] == 3


def test_the_authors_options_win_over_the_clients(endpoint: Endpoint) -> None:
    endpoint.answers = [GOOD]
    given = run_input("hello", forwardedProps={"temperature": 2, "seed": 1})
    run(endpoint, given=given, options={"temperature": 0})
    assert (endpoint.requests[0].body["temperature"], endpoint.requests[0].body["seed"]) == (0, 1)


def asked(events: list[Event]) -> list[dict[str, Any]]:
    outcome = wire(events[-1])["outcome"]
    assert outcome["type"] == "interrupt"
    return list(outcome["interrupts"])


def test_a_call_that_needs_approval_pauses_the_run_and_is_not_executed(endpoint: Endpoint) -> None:
    endpoint.answers = [calling(look('{"path": "/a"}', "d", "delete"))]
    events = run(endpoint, delete)
    (question,) = asked(events)
    assert results(events) == {}
    assert question["id"].startswith("run-int-1-")
    assert (question["reason"], question["toolCallId"]) == ("tool_call", "d")
    assert question["responseSchema"]["required"] == ["approved"]
    assert question["metadata"] == {"toolName": "delete", "arguments": {"path": "/a"}}


def decided(endpoint: Endpoint, *tools: Any, calls: Answer, **answer: Any) -> list[Event]:
    """A run that asks, and the next one, to which ``answer`` is the answer."""
    given = run_input("hello")
    endpoint.answers = [calls, GOOD]
    events = run(endpoint, *tools, given=given)
    resume = [{"interruptId": question["id"], **answer} for question in asked(events)]
    return run(endpoint, *tools, given=continued(events, given, resume=resume))


def test_an_approved_call_is_executed_under_its_own_id_and_not_repeated(endpoint: Endpoint) -> None:
    events = decided(
        endpoint,
        delete,
        calls=calling(look('{"path": "/a"}', "d", "delete")),
        status="resolved",
        payload={"approved": True},
    )
    assert types(events)[0] == "TOOL_CALL_RESULT"
    assert "TOOL_CALL_START" not in types(events)
    assert results(events) == {"d": "deleted /a"}
    assert wire(events[-1])["outcome"] == {"type": "success"}
    assert endpoint.requests[1].body["messages"][-1]["content"] == "deleted /a"


@pytest.mark.parametrize(
    "answer",
    [
        {"status": "resolved", "payload": {"approved": False, "reason": "Not that one."}},
        {"status": "cancelled"},
        {"status": "resolved", "payload": {"approved": "yes"}},
        {"status": "resolved", "payload": True},
        {"status": "cancelled", "payload": {"approved": True}},
    ],
)
def test_anything_but_an_approval_is_a_denial_that_the_model_reads(
    endpoint: Endpoint, answer: dict[str, Any]
) -> None:
    calls = calling(look('{"path": "/a"}', "d", "delete"))
    events = decided(endpoint, delete, calls=calls, **answer)
    assert "did not approve" in results(events)["d"]["error"]
    assert ("Not that one." in str(results(events))) is ("reason" in str(answer))
    assert "did not approve" in endpoint.requests[1].body["messages"][-1]["content"]
    assert wire(events[-1])["outcome"] == {"type": "success"}


def test_neighbours_that_need_no_approval_are_executed_before_the_question(endpoint: Endpoint) -> None:
    calls = calling(look(call_id="a"), look('{"path": "/a"}', "d", "delete", 1))
    endpoint.answers = [calls, GOOD]
    events = run(endpoint, weather, delete)
    assert list(results(events)) == ["a"]
    assert [question["toolCallId"] for question in asked(events)] == ["d"]
    events = decided(endpoint, weather, delete, calls=calls, status="resolved", payload={"approved": True})
    assert list(results(events)) == ["d"]
    told = endpoint.requests[-1].body["messages"][2:]
    assert [one["tool_call_id"] for one in told] == ["a", "d"]


@tool(needs_approval=True)
def reboot() -> str:
    """Reboots the machine."""
    return "rebooted"


@pytest.mark.parametrize("arguments", ["", " ", "null", "{}"])
def test_a_call_without_arguments_is_executed_once_it_is_approved(endpoint: Endpoint, arguments: str) -> None:
    calls = calling(look(arguments, "d", "reboot"))
    events = decided(endpoint, reboot, calls=calls, status="resolved", payload={"approved": True})
    assert results(events) == {"d": "rebooted"}


def test_a_person_is_shown_a_long_number_as_the_tool_gets_it(endpoint: Endpoint) -> None:
    @tool(needs_approval=True)
    def pay(cents: int) -> str:
        """Pays an amount."""
        return f"paid {cents}"

    cents = 12345678901234567891
    calls = calling(look(json.dumps({"cents": cents}), "d", "pay"))
    endpoint.answers = [calls]
    (question,) = asked(run(endpoint, pay))
    assert question["metadata"]["arguments"] == {"cents": cents}
    events = decided(endpoint, pay, calls=calls, status="resolved", payload={"approved": True})
    assert results(events) == {"d": f"paid {cents}"}


def test_several_questions_are_asked_at_once(endpoint: Endpoint) -> None:
    calls = calling(look('{"path": "/a"}', "d", "delete"), look('{"path": "/b"}', "e", "delete", 1))
    events = decided(endpoint, delete, calls=calls, status="resolved", payload={"approved": True})
    assert results(events) == {"d": "deleted /a", "e": "deleted /b"}


def test_a_call_that_does_not_fit_asks_nobody(endpoint: Endpoint) -> None:
    endpoint.answers = [calling(look('{"file": "/a"}', "d", "delete")), GOOD]
    events = run(endpoint, delete)
    assert "do not fit" in results(events)["d"]["error"]


@pytest.mark.parametrize("change", ["arguments", "name", "id", "gone"])
def test_an_approval_holds_for_exactly_the_call_that_was_asked_about(endpoint: Endpoint, change: str) -> None:
    given = run_input("hello")
    endpoint.answers = [calling(look('{"path": "/a"}', "d", "delete")), GOOD]
    events = run(endpoint, delete, given=given)
    resume = [
        {"interruptId": asked(events)[0]["id"], "status": "resolved", "payload": {"approved": True}},
    ]
    messages = [wire(message) for message in continued(events, given).messages]
    made = messages[-1]["toolCalls"][0]
    match change:
        case "arguments":
            made["function"]["arguments"] = '{"path": "/"}'
        case "name":
            made["function"]["name"] = "weather"
        case "id":
            made["id"] = "other"
        case _:
            del messages[-1]["toolCalls"]
    again = run(endpoint, delete, weather, given=run_input(run_id="run-2", messages=messages, resume=resume))
    assert results(again) == {}
    ending = wire(again[-1])
    assert (ending["type"], ending["code"]) == ("RUN_ERROR", "AGENT_ERROR")
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "answer", [{"status": "cancelled"}, {"status": "resolved", "payload": {"approved": False}}]
)
def test_a_denial_whose_call_the_client_has_dropped_is_no_failure(
    endpoint: Endpoint, answer: dict[str, Any]
) -> None:
    endpoint.answers = [calling(look('{"path": "/a"}', "d", "delete")), GOOD]
    (question,) = asked(run(endpoint, delete))
    resume = [{"interruptId": question["id"], **answer}]
    events = run(endpoint, delete, given=run_input("Something else.", run_id="run-2", resume=resume))
    assert results(events) == {}
    assert wire(events[-1])["outcome"] == {"type": "success"}


def test_an_unanswered_call_of_the_history_is_not_executed(endpoint: Endpoint) -> None:
    made = {"id": "d", "type": "function", "function": {"name": "delete", "arguments": '{"path": "/a"}'}}
    history = [{"id": "m1", "role": "assistant", "toolCalls": [made]}]
    endpoint.answers = [GOOD]
    assert results(run(endpoint, delete, given=run_input("and?", messages=history))) == {}


def test_a_cancel_inside_a_tool_ends_the_run_at_once(endpoint: Endpoint) -> None:
    token = CancellationToken()

    @tool
    async def waits() -> None:
        threading.Thread(target=token.trip, args=(StopCause.CLIENT,)).start()
        await asyncio.Event().wait()

    endpoint.answers = [calling(look("{}", name="waits")), GOOD]
    events = run(endpoint, waits, token=token)
    assert wire(events[-1])["outcome"] == {"type": "cancelled"}
    assert len(endpoint.requests) == 1


def test_a_cancel_between_two_tools_starts_no_other(endpoint: Endpoint) -> None:
    token = CancellationToken()
    begun: list[int] = []

    @tool(sequential=True)
    def trips() -> int:
        begun.append(1)
        token.trip(StopCause.CLIENT)
        return 1

    endpoint.answers = [calling(look("{}", "a", "trips"), look("{}", "b", "trips", 1)), GOOD]
    events = run(endpoint, trips, token=token)
    assert wire(events[-1])["outcome"] == {"type": "cancelled"}
    assert begun == [1]
    assert len(endpoint.requests) == 1


def test_the_author_gives_what_the_settings_do_not(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_CHAT_BASE_URL", endpoint.base_url)
    monkeypatch.setenv("OUTLAST_CHAT_MODEL", "of-the-settings")
    monkeypatch.setenv("OUTLAST_CHAT_API_KEY", "of-the-settings")
    # The process-wide settings were read before this test.
    monkeypatch.setattr(chat_agent, "load", Settings)
    endpoint.answers = [GOOD]
    for agent in (chat(), chat(model="mine", api_key="my-key", tools=[weather])):

        async def closing(ctx: RunContext, agent: Any = agent) -> None:
            await agent(ctx)
            await asyncio.to_thread(ctx.resources.close)

        record(closing, run_input("hello"))
    first, second = endpoint.requests
    assert (first.body["model"], first.headers["authorization"]) == (
        "of-the-settings",
        "Bearer of-the-settings",
    )
    assert (second.body["model"], second.headers["authorization"]) == ("mine", "Bearer my-key")
    assert "tools" not in first.body


def test_a_plain_function_is_a_tool_too(endpoint: Endpoint) -> None:
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    endpoint.answers = [calling(look('{"a": 1, "b": 2}', name="add")), GOOD]
    assert results(run(endpoint, add)) == {"a": 3}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"tools": [weather, weather]}, "two tools named weather"),
        ({"options": {"model": "other", "seed": 1}}, "chat fills model"),
        ({"max_answers": 0}, "max_answers"),
    ],
)
def test_an_agent_that_cannot_be_made_says_why(members: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_chat(Settings(chat_model="m"), **members)


def test_the_capabilities_name_the_tools_and_the_approval() -> None:
    told = make_chat(Settings(chat_model="m"), tools=[weather, delete]).capabilities
    assert [item["name"] for item in told["tools"]["items"]] == ["weather", "delete"]
    assert told["humanInTheLoop"] == {"supported": True, "approvals": True, "interrupts": True}
    assert "humanInTheLoop" not in make_chat(Settings(chat_model="m"), tools=[weather]).capabilities
