"""Transformers see everything that a run says, in order, and cannot keep it from ending well."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from functools import partial

import pytest

from shared.protocol import events as ag
from shared.protocol.events import Event, EventType
from shared.protocol.verifier import VerificationError, Verifier
from worker.agents import RunContext, Timestamps, TransformerFailed, agent
from worker.agents.testing import (
    CancellationToken,
    RecordingSink,
    StopCause,
    record,
    recorded_context,
    run_input,
)
from worker.races import on_event_loop


def types(recorded: list[Event]) -> list[str]:
    return [event.type.value for event in recorded]


def dropping(*kinds: EventType):
    return lambda event: [] if event.type in kinds else [event]


class FailsAt:
    def __init__(self, kind: EventType) -> None:
        self.kind = kind
        self.seen = 0

    def __call__(self, event: Event) -> Iterable[Event]:
        self.seen += 1
        if event.type is self.kind:
            raise KeyError("secret")
        yield event


def speaks(ctx: RunContext) -> None:
    ctx.say("hi")


def test_each_run_gets_transformers_of_its_own():
    made = []

    def factory():
        made.append(FailsAt(EventType.RAW))
        return made[-1]

    entry = agent(speaks, transformers=[factory])
    record(entry)
    record(entry)
    assert [one.seen for one in made] == [4, 4]


def test_a_later_transformer_sees_what_an_earlier_one_made():
    def twice(event: Event) -> list[Event]:
        return [event, event] if event.type is EventType.CUSTOM else [event]

    seen = []

    def looks(event: Event) -> list[Event]:
        seen.append(event.type)
        return [event]

    ctx, _ = recorded_context(transformers=[twice, looks])
    ctx.custom("n", 1)
    assert seen == [EventType.CUSTOM, EventType.CUSTOM]


def test_what_they_make_is_verified():
    ctx, _ = recorded_context(transformers=[dropping(EventType.TEXT_MESSAGE_START)])
    with pytest.raises(VerificationError):
        ctx.say("hi")


# The worker's own events


def test_the_workers_own_events_pass_them_too():
    def agent(ctx: RunContext) -> None:
        ctx.message().open()

    recorded = record(agent, transformers=[Timestamps(lambda: 7)])
    assert types(recorded[1:]) == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert [event.timestamp for event in recorded] == [None, 7, 7, 7]


def test_a_failures_terminal_event_passes_them_too():
    def agent(ctx: RunContext) -> None:
        raise RuntimeError

    assert record(agent, transformers=[Timestamps(lambda: 7)])[-1].timestamp == 7


def test_a_swallowed_terminal_event_of_the_worker_is_put_back_and_seen_by_later_ones():
    recorded = record(speaks, transformers=[dropping(EventType.RUN_FINISHED), Timestamps(lambda: 7)])
    assert (recorded[-1].type, recorded[-1].timestamp) == (EventType.RUN_FINISHED, 7)


def test_what_closes_the_run_is_put_back_too():
    def agent(ctx: RunContext) -> None:
        ctx.step("s").open()
        ctx.say("hi")

    recorded = record(agent, transformers=[dropping(EventType.TEXT_MESSAGE_END, EventType.STEP_FINISHED)])
    assert types(recorded)[-3:] == ["TEXT_MESSAGE_END", "STEP_FINISHED", "RUN_FINISHED"]
    assert recorded[-1].outcome.type == "success"


def test_they_may_say_something_before_the_end_and_nothing_after_it():
    def chatty(event: Event) -> list[Event]:
        said = ag.CustomEvent(name="n", value=1)
        return [said, event, said] if event.type is EventType.RUN_FINISHED else [event]

    assert types(record(speaks, transformers=[chatty]))[-2:] == ["CUSTOM", "RUN_FINISHED"]


def test_they_cannot_change_how_the_worker_ends_a_run():
    def rosy(event: Event) -> list[Event]:
        finished = ag.run_finished("thread", "run", {"type": "success"})
        return [finished if event.type is EventType.RUN_ERROR else event]

    def agent(ctx: RunContext) -> None:
        raise RuntimeError

    assert record(agent, transformers=[rosy])[-1].code == "AGENT_ERROR"


def test_they_may_add_to_the_terminal_event():
    def stamped(event: Event) -> list[Event]:
        return [event.model_copy(update={"metadata": {"cost": 3}})]

    assert record(speaks, transformers=[stamped])[-1].metadata == {"cost": 3}


def test_a_closing_event_made_twice_fails_the_run_in_order():
    def twice(event: Event) -> list[Event]:
        return [event, event] if event.type is EventType.STEP_FINISHED else [event]

    def agent(ctx: RunContext) -> None:
        ctx.step("s").open()

    recorded = record(agent, transformers=[twice])
    assert types(recorded)[1:] == ["STEP_STARTED", "STEP_FINISHED", "RUN_ERROR"]
    assert recorded[-1].code == "PROTOCOL_VIOLATION"


# One that raises


def test_one_that_raises_fails_the_run_and_the_stream_ends_well():
    recorded = record(speaks, transformers=[FailsAt(EventType.TEXT_MESSAGE_CONTENT)])
    assert types(recorded)[1:] == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "RUN_ERROR"]
    assert recorded[-1].code == "AGENT_ERROR"
    assert "secret" not in recorded[-1].message


def test_it_fails_the_run_also_when_the_agent_goes_on_regardless():
    refusals = []

    def stubborn(ctx: RunContext) -> None:
        for _ in range(3):
            try:
                ctx.custom("n", 1)
            except TransformerFailed as error:
                refusals.append(error)

    failing = FailsAt(EventType.CUSTOM)
    recorded = record(stubborn, transformers=[failing])
    assert types(recorded) == ["RUN_STARTED", "RUN_ERROR"]
    assert (len(refusals), failing.seen) == (3, 1)


def test_one_that_raises_at_the_end_fails_a_success_but_not_a_cancel():
    assert record(speaks, transformers=[FailsAt(EventType.RUN_FINISHED)])[-1].code == "AGENT_ERROR"

    def stopped(ctx: RunContext) -> None:
        ctx.token.trip(StopCause.CLIENT)
        ctx.say("x")

    token = CancellationToken()
    recorded = record(stopped, token=token, transformers=[FailsAt(EventType.RUN_FINISHED)])
    assert recorded[-1].outcome.type == "cancelled"


def test_one_that_raises_while_an_agents_failure_is_told_leaves_that_failure():
    def agent(ctx: RunContext) -> None:
        raise TimeoutError("of the agent's own")

    assert record(agent, transformers=[FailsAt(EventType.RUN_ERROR)])[-1].code == "AGENT_ERROR"


@pytest.mark.parametrize("made", [None, ["text"], 5], ids=["none", "a text", "a number"])
def test_one_that_makes_no_events_fails_the_run(made):
    assert record(speaks, transformers=[lambda event: made])[-1].code == "AGENT_ERROR"


def test_one_that_leaves_through_system_exit_fails_the_run():
    def leaves(event: Event) -> list[Event]:
        raise SystemExit(3)

    assert record(speaks, transformers=[leaves])[-1].code == "AGENT_ERROR"


# Threads, and the state


def test_what_one_event_becomes_stays_together_among_threads():
    def pair(event: Event) -> list[Event]:
        return [event, event] if event.type is EventType.CUSTOM else [event]

    ctx, recorded = recorded_context(transformers=[pair])
    threads = [
        threading.Thread(target=lambda name=name: [ctx.custom(name, 1) for _ in range(50)]) for name in "abcd"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [event.name for event in recorded[1:]]
    assert names[::2] == names[1::2]
    assert len(names) == 400


def test_a_state_that_a_transformer_sent_makes_the_next_publishing_a_snapshot():
    def other(event: Event) -> list[Event]:
        told = ag.StateSnapshotEvent(snapshot={"other": 1})
        return [event, told] if event.type is EventType.CUSTOM else [event]

    ctx, recorded = recorded_context(transformers=[other])
    ctx.update_state(text="x" * 100)
    ctx.custom("n", 1)
    ctx.update_state(more=1)
    assert recorded[-1] == ag.StateSnapshotEvent(snapshot={"text": "x" * 100, "more": 1})


class Crowded(RecordingSink):
    """Keeps threads waiting, as a full buffer does before an event and Redis after it."""

    def __init__(self, verifier: Verifier, moment: str) -> None:
        super().__init__(verifier)
        self.moment = moment
        self.waiting, self.go_on = threading.Event(), threading.Event()

    def await_room(self) -> None:
        self.hold_up("before")

    def flush(self) -> None:
        self.hold_up("after")

    def hold_up(self, moment: str) -> None:
        if moment == self.moment and not on_event_loop():
            self.waiting.set()
            assert self.go_on.wait(5)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "say",
    [
        lambda ctx: ctx.custom("n", 1),
        lambda ctx: ctx.update_state(n=1),
        lambda ctx: ctx.activity("PLAN", {}),
    ],
    ids=["event", "state", "activity"],
)
def test_a_thread_that_has_to_wait_does_not_hold_up_the_loop(say: Callable[[RunContext], None], moment: str):
    given = run_input()
    sink = Crowded(Verifier(given.messages), moment)
    sink.take(ag.run_started(given.thread_id, given.run_id))
    ctx = RunContext(given, sink=sink, token=CancellationToken(), transformers=[lambda event: [event]])

    async def both() -> None:
        thread = asyncio.create_task(asyncio.to_thread(say, ctx))
        await asyncio.to_thread(partial(sink.waiting.wait, 5))
        ctx.emit(ag.StateSnapshotEvent(snapshot={}))
        sink.go_on.set()
        await thread

    asyncio.run(asyncio.wait_for(both(), 4))
    assert EventType.STATE_SNAPSHOT.value in types(sink.events)
