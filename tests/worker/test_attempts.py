"""A run that is executed again after its worker was lost: what its second attempt starts with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shared.protocol import events as ag
from shared.protocol import sse
from shared.settings import Settings
from shared.store import keys
from shared.store.log import Batch
from shared.store.retrying import retry_lost
from shared.store.store import Store
from tests.worker.stage import accept, log_of, process_with, record_of, types_of
from worker.agents import RunContext, agent
from worker.agents.entries import entry_for
from worker.agents.registry import Registry, RegistryError
from worker.driver import Driver

LOST_CALL = (
    ag.ToolCallStartEvent(tool_call_id="c1", tool_call_name="draw"),
    ag.ToolCallEndEvent(tool_call_id="c1"),
)
DRAW = {"name": "draw", "description": "", "parameters": {}}


def lost_once(store: Store, *told: ag.Event, **members: Any) -> str:
    """A run whose first attempt said this before its worker died; it waits for the second."""
    key = accept(store, "agent", **members)
    claim = store.runs.claim(key, "e1", worker="w", host="h", pid=1, retries={"agent": 3})
    assert claim is not None
    frames = tuple(sse.frame(2 + index, ag.dump(event)) for index, event in enumerate(told))
    if frames:
        assert store.log.append(Batch(key, "e1", 2, frames)).state == "ok"
    store.client.zadd(keys.leases(key[:2]), {key: 1})
    assert retry_lost(store.runs, store.log, key, guard="late")
    return key


def execute(settings: Settings, store: Store, body: Callable[..., Any], key: str) -> None:
    with process_with(settings, agent=body) as process:
        Driver(process).execute(key)
    assert record_of(store, key).ended


def test_ids_of_the_context_carry_the_attempt(settings: Settings, store: Store):
    async def body(ctx: RunContext) -> None:
        assert ctx.attempt == 2
        ctx.say("hello")

    key = lost_once(store, ag.TextMessageStartEvent(message_id="half", role="assistant"))
    execute(settings, store, body, key)
    (said,) = [event for event in log_of(store, key) if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert said["messageId"].endswith("-a2-msg-1")
    assert record_of(store, key).status == "succeeded"


def test_an_agent_may_use_its_own_ids_again(settings: Settings, store: Store):
    opener = ag.TextMessageStartEvent(message_id="mine", role="assistant")

    async def body(ctx: RunContext) -> None:
        ctx.emit(opener)
        ctx.emit(ag.TextMessageEndEvent(message_id="mine"))

    key = lost_once(store, opener)
    execute(settings, store, body, key)
    assert record_of(store, key).status == "succeeded"


def test_calls_of_the_lost_attempt_are_not_left_to_the_client(settings: Settings, store: Store):
    async def body(ctx: RunContext) -> None:
        ctx.say("without a call")

    key = lost_once(store, *LOST_CALL, tools=[DRAW])
    execute(settings, store, body, key)
    assert record_of(store, key).outcome == {"type": "success"}


def test_its_own_calls_are(settings: Settings, store: Store):
    async def body(ctx: RunContext) -> None:
        for event in LOST_CALL:
            ctx.emit(event)

    key = lost_once(store, *LOST_CALL, tools=[DRAW])
    execute(settings, store, body, key)
    assert record_of(store, key).outcome == {"type": "success", "pendingToolCallIds": ["c1"]}


@pytest.mark.parametrize("limit", [{"max_events_per_run": 40}, {"max_bytes_per_run": 4096}])
def test_the_limits_of_the_log_span_the_attempts(settings: Settings, store: Store, limit: dict[str, int]):
    async def body(ctx: RunContext) -> None:
        for number in range(20):
            ctx.custom("word", f"{number:0100}")

    words = [ag.CustomEvent(name="word", value=f"{number:0100}") for number in range(20)]
    bounded = settings.model_copy(update=limit)
    fresh = accept(store, "agent")
    execute(bounded, store, body, fresh)
    assert record_of(store, fresh).status == "succeeded"
    key = lost_once(store, *words)
    execute(bounded, store, body, key)
    assert record_of(store, key).texts["code"] == "EVENT_BUFFER_FULL"


def test_a_run_whose_deadline_passed_while_it_waited_is_not_executed(settings: Settings, store: Store):
    executed = []

    async def body(ctx: RunContext) -> None:
        executed.append(ctx.attempt)

    key = lost_once(store)
    store.client.hset(keys.record(key), "deadline_at", 1)
    execute(settings, store, body, key)
    assert (record_of(store, key).texts["code"], executed) == ("deadline_exceeded", [])


def test_a_worker_without_the_agent_hands_the_second_attempt_back(settings: Settings, store: Store):
    key = lost_once(store, ag.CustomEvent(name="word", value=1))
    with process_with(settings) as process:
        Driver(process).execute(key)
    record = record_of(store, key)
    assert (record.status, record.attempt) == ("queued", 1)


def test_what_the_agent_declares_is_kept_by_the_claim(settings: Settings, store: Store):
    async def body(ctx: RunContext) -> None:
        ctx.say("done")

    key = accept(store, "agent")
    execute(settings, store, agent(body, retry_on_worker_lost=2), key)
    assert record_of(store, key).retries == 2
    other = accept(store, "agent")
    execute(settings, store, body, other)
    assert "retries" not in record_of(store, other).operator_view()
    assert "CUSTOM" not in types_of(store, other)


# --- declaring it -------------------------------------------------------------------------------------


async def plain(ctx: RunContext) -> None:
    """Says nothing."""


class Careful:
    retry_on_worker_lost = 4

    async def run(self, ctx: RunContext) -> None:
        """Says nothing."""


def test_it_is_declared_by_the_decorator_or_an_attribute():
    assert entry_for("plain", plain).retry_on_worker_lost == 0
    assert agent(plain, retry_on_worker_lost=2).retry_on_worker_lost == 2
    assert entry_for("careful", Careful()).retry_on_worker_lost == 4
    assert agent(retry_on_worker_lost=1)(plain).facts()["retry_on_worker_lost"] == 1
    assert "retry_on_worker_lost" not in entry_for("plain", plain).facts()


@pytest.mark.parametrize("told", [-1, 11, True, "2", 1.0, None])
def test_anything_but_a_small_number_is_refused(told: Any):
    with pytest.raises(TypeError, match="from 0 to 10"):
        agent(plain, retry_on_worker_lost=told)


def test_the_registry_names_the_agent_that_declares_nonsense():
    class Careless(Careful):
        retry_on_worker_lost = 99

    with pytest.raises(RegistryError, match=r"'careless'.*from 0 to 10"):
        Registry().add("careless", Careless(), "a test")
