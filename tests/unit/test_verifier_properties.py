"""What holds for the verifier after any stream whatever."""

from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.protocol import events as ag
from shared.protocol.rules import VerificationError
from shared.protocol.verifier import Verifier

IDS = st.sampled_from(["a", "b", ""])
TAGS = st.sampled_from([None, None, "a", "b", ""])
MAYBE_ID = st.none() | IDS
BUILT = set()


def build(cls, *, tagged=True, **fields):
    BUILT.add(cls)
    if tagged:
        fields["subagent_run_id"] = TAGS
    return st.builds(cls, **fields)


def message(cls, **fields):
    return build(cls, id=IDS, content=st.just("text"), **fields)


CALL = st.builds(ag.ToolCall, id=IDS, function=st.just(ag.FunctionCall(name="f", arguments="{}")))
MESSAGES = st.lists(
    message(ag.AssistantMessage, tool_calls=st.lists(CALL, max_size=2))
    | message(ag.UserMessage)
    | message(ag.ReasoningMessage)
    | message(ag.ToolMessage, tool_call_id=IDS)
    | build(ag.ActivityMessage, id=IDS, activity_type=st.just("P"), content=st.just({})),
    max_size=3,
)
NOT_TERMINAL = st.one_of(
    build(
        ag.RunStartedEvent,
        tagged=False,
        thread_id=st.just("th"),
        run_id=st.just("run"),
        input=st.none()
        | st.builds(ag.RunAgentInput, thread_id=st.just("th"), run_id=st.just("run"), messages=MESSAGES),
    ),
    *(
        build(cls, message_id=IDS)
        for cls in (
            ag.TextMessageStartEvent,
            ag.TextMessageEndEvent,
            ag.ReasoningStartEvent,
            ag.ReasoningEndEvent,
            ag.ReasoningMessageStartEvent,
            ag.ReasoningMessageEndEvent,
        )
    ),
    *(
        build(cls, message_id=IDS, delta=st.just("d"))
        for cls in (ag.TextMessageContentEvent, ag.ReasoningMessageContentEvent)
    ),
    *(build(cls, message_id=MAYBE_ID) for cls in (ag.TextMessageChunkEvent, ag.ReasoningMessageChunkEvent)),
    build(ag.ToolCallStartEvent, tool_call_id=IDS, tool_call_name=st.just("f"), parent_message_id=MAYBE_ID),
    build(ag.ToolCallChunkEvent, tool_call_id=MAYBE_ID, parent_message_id=MAYBE_ID),
    build(ag.ToolCallArgsEvent, tool_call_id=IDS, delta=st.just("{")),
    build(ag.ToolCallEndEvent, tool_call_id=IDS),
    build(ag.ToolCallResultEvent, message_id=IDS, tool_call_id=IDS, content=st.just("r")),
    build(
        ag.ReasoningEncryptedValueEvent,
        subtype=st.sampled_from(["message", "tool-call"]),
        entity_id=IDS,
        encrypted_value=st.just("v"),
    ),
    build(ag.StepStartedEvent, step_name=IDS),
    build(ag.StepFinishedEvent, step_name=IDS),
    build(
        ag.SubagentStartedEvent,
        tagged=False,
        subagent_run_id=IDS,
        name=st.just("n"),
        parent_subagent_run_id=MAYBE_ID,
    ),
    build(ag.SubagentFinishedEvent, tagged=False, subagent_run_id=IDS),
    build(ag.SubagentErrorEvent, tagged=False, subagent_run_id=IDS, message=st.just("m")),
    build(
        ag.ActivitySnapshotEvent,
        message_id=IDS,
        activity_type=st.just("P"),
        content=st.just({}),
        replace=st.sampled_from([None, True, False]),
    ),
    build(ag.ActivityDeltaEvent, message_id=IDS, activity_type=st.just("P"), patch=st.just([])),
    build(ag.MessagesSnapshotEvent, tagged=False, messages=MESSAGES),
    build(ag.StateSnapshotEvent, snapshot=st.just({})),
    build(ag.StateDeltaEvent, delta=st.just([])),
    build(ag.CustomEvent, name=st.just("n"), value=st.none()),
    build(ag.RawEvent, event=st.just({})),
)
STREAMS = st.lists(NOT_TERMINAL, max_size=40)
FINISHED = ag.run_finished("th", "run", {"type": "cancelled"})


def facts(verifier):
    """Everything that the verifier remembers, copied."""
    ledger = verifier._ledger
    owners = ledger.owners
    records = (owners.messages, owners.reasoning, owners.calls, owners.activities)
    return (
        list(ledger.open.items()),
        [dict(record) for record in records],
        list(ledger.unanswered),
        set(ledger.subagents),
        (ledger.started, ledger.terminated, ledger.thread_id, ledger.run_id),
    )


def close(verifier):
    for event in verifier.closing_events():
        verifier.observe(event)
    assert verifier.open_items == ()
    verifier.observe(FINISHED)
    assert verifier.terminated


@settings(max_examples=400, deadline=None)
@given(STREAMS, MESSAGES)
def test_every_run_can_be_closed_in_order_and_finished(stream, history):
    verifier = Verifier(history, thread_id="th", run_id="run")
    for event in stream:
        before = facts(verifier)
        try:
            verifier.observe(event)
        except VerificationError:
            assert facts(verifier) == before
    close(verifier)


@settings(max_examples=200, deadline=None)
@given(STREAMS)
def test_without_enforcement_every_run_can_be_closed_too(stream):
    verifier = Verifier(enforce=False)
    for event in stream:
        verifier.observe(event)
    close(verifier)


@settings(max_examples=200, deadline=None)
@given(STREAMS)
def test_enforcement_makes_no_difference_to_streams_that_break_no_rule(stream):
    strict, lenient = Verifier(), Verifier(enforce=False)
    for event in stream:
        try:
            strict.observe(event)
        except VerificationError:
            continue
        lenient.observe(event)
    assert facts(strict) == facts(lenient)


def test_the_random_streams_may_hold_every_event_but_the_terminal_ones():
    everything = set(get_args(get_args(ag.Event)[0]))
    assert everything - BUILT == {ag.RunFinishedEvent, ag.RunErrorEvent}
