"""One check per event: what it needs, what it breaks, what it changes.

A check refuses before it changes anything, so a refused event leaves the ledger as it was. Where
two rules apply the order of the lines decides: an opener's owner before its being open already,
a continuation's being open before its owner, a result's call being known before its being closed.
"""

from collections.abc import Callable
from typing import Any, TypeVar, assert_never, get_args

from shared.protocol import events as ag
from shared.protocol.events import Event
from shared.protocol.items import MESSAGE, REASONING, REASONING_MESSAGE, STEP, SUBAGENT, TOOL_CALL, ItemKind
from shared.protocol.ledger import Key, Ledger
from shared.protocol.owners import OwnerRecord
from shared.protocol.rules import Rule, shown

Check = Callable[[Ledger, Any], None]
_E = TypeVar("_E")

_Opener = ag.TextMessageStartEvent | ag.ReasoningStartEvent | ag.ReasoningMessageStartEvent
_Continuation = (
    ag.TextMessageContentEvent
    | ag.TextMessageEndEvent
    | ag.ReasoningEndEvent
    | ag.ReasoningMessageContentEvent
    | ag.ReasoningMessageEndEvent
    | ag.ToolCallArgsEvent
    | ag.ToolCallEndEvent
)
_Chunk = ag.TextMessageChunkEvent | ag.ReasoningMessageChunkEvent
_Unordered = ag.StateSnapshotEvent | ag.StateDeltaEvent | ag.CustomEvent | ag.RawEvent
_Spoken = (
    _Opener
    | _Continuation
    | _Chunk
    | ag.ReasoningEncryptedValueEvent
    | ag.ToolCallStartEvent
    | ag.ToolCallChunkEvent
    | ag.ToolCallResultEvent
)
_EVENT_CLASSES: tuple[type[object], ...] = get_args(get_args(Event)[0])

# The run itself


def _run_started(ledger: Ledger, event: ag.RunStartedEvent) -> None:
    if ledger.started:
        ledger.refuse(Rule.DUPLICATE_RUN_STARTED, event, "the run has started already")
    _check_identity(ledger, event)
    ledger.started = True
    if ledger.thread_id is None:
        ledger.thread_id = event.thread_id
    if ledger.run_id is None:
        ledger.run_id = event.run_id
    if event.input is not None:
        ledger.owners.learn(event.input.messages)


def _run_finished(ledger: Ledger, event: ag.RunFinishedEvent) -> None:
    if ledger.open:
        kind, item_id, _ = next(iter(ledger.open))
        others = len(ledger.open) - 1
        detail = f"{kind} {shown(item_id)}" + (f" and {others} more are open" if others else " is open")
        ledger.refuse(Rule.OPEN_AT_FINISH, event, detail, item_id)
    _check_identity(ledger, event)
    if isinstance(event.outcome, ag.RunFinishedInterruptOutcome):
        seen: set[str] = set()
        for interrupt in event.outcome.interrupts:
            if interrupt.id in seen:
                detail = f"interrupt {shown(interrupt.id)} is listed twice"
                ledger.refuse(Rule.DUPLICATE_ID, event, detail, interrupt.id)
            seen.add(interrupt.id)
    ledger.terminated = True


def _check_identity(ledger: Ledger, event: ag.RunStartedEvent | ag.RunFinishedEvent) -> None:
    if event.thread_id != ledger.thread_id and ledger.thread_id is not None:
        detail = f"thread {shown(event.thread_id)} is not the run's"
        ledger.refuse(Rule.IDENTITY_MISMATCH, event, detail, event.thread_id)
    if event.run_id != ledger.run_id and ledger.run_id is not None:
        ledger.refuse(Rule.IDENTITY_MISMATCH, event, f"run {shown(event.run_id)} is another", event.run_id)


def _run_error(ledger: Ledger, _: ag.RunErrorEvent) -> None:
    ledger.terminated = True


# Messages and reasoning


def _text_start(ledger: Ledger, event: ag.TextMessageStartEvent) -> None:
    _start(ledger, event, MESSAGE, event.message_id, ledger.owners.messages)


def _text_content(ledger: Ledger, event: ag.TextMessageContentEvent) -> None:
    _continue(ledger, event, (MESSAGE, event.message_id, None), ledger.owners.messages)


def _text_end(ledger: Ledger, event: ag.TextMessageEndEvent) -> None:
    _end(ledger, event, (MESSAGE, event.message_id, None), ledger.owners.messages)


def _text_chunk(ledger: Ledger, event: ag.TextMessageChunkEvent) -> None:
    _chunk(ledger, event, MESSAGE, event.message_id, ledger.owners.messages)


def _reasoning_start(ledger: Ledger, event: ag.ReasoningStartEvent) -> None:
    _start(ledger, event, REASONING, event.message_id, ledger.owners.reasoning)


def _reasoning_end(ledger: Ledger, event: ag.ReasoningEndEvent) -> None:
    _end(ledger, event, (REASONING, event.message_id, None), ledger.owners.reasoning)


def _thought_start(ledger: Ledger, event: ag.ReasoningMessageStartEvent) -> None:
    _start(ledger, event, REASONING_MESSAGE, event.message_id, ledger.owners.reasoning)


def _thought_content(ledger: Ledger, event: ag.ReasoningMessageContentEvent) -> None:
    _continue(ledger, event, (REASONING_MESSAGE, event.message_id, None), ledger.owners.reasoning)


def _thought_end(ledger: Ledger, event: ag.ReasoningMessageEndEvent) -> None:
    _end(ledger, event, (REASONING_MESSAGE, event.message_id, None), ledger.owners.reasoning)


def _thought_chunk(ledger: Ledger, event: ag.ReasoningMessageChunkEvent) -> None:
    _chunk(ledger, event, REASONING_MESSAGE, event.message_id, ledger.owners.reasoning)


def _encrypted_value(ledger: Ledger, event: ag.ReasoningEncryptedValueEvent) -> None:
    entity = event.entity_id
    if event.subtype == "tool-call":
        record = ledger.owners.calls
    elif entity in ledger.owners.messages:
        record = ledger.owners.messages
    else:
        record = ledger.owners.reasoning
    tag = event.subagent_run_id
    if tag is not None and record.get(entity, tag) != tag:
        ledger.refuse_owner(event, "entity", entity)


# Tool calls


def _call_start(ledger: Ledger, event: ag.ToolCallStartEvent) -> None:
    call = event.tool_call_id
    owner = _call_owner(ledger, event, call)
    key: Key = (TOOL_CALL, call, None)
    if key in ledger.open:
        ledger.refuse(Rule.DUPLICATE_START, event, f"tool-call {shown(call)} is open", call)
    ledger.open[key] = None
    ledger.owners.calls.setdefault(call, owner)
    ledger.unanswered.setdefault(call)


def _call_args(ledger: Ledger, event: ag.ToolCallArgsEvent) -> None:
    _continue(ledger, event, (TOOL_CALL, event.tool_call_id, None), ledger.owners.calls)


def _call_end(ledger: Ledger, event: ag.ToolCallEndEvent) -> None:
    _end(ledger, event, (TOOL_CALL, event.tool_call_id, None), ledger.owners.calls)


def _call_chunk(ledger: Ledger, event: ag.ToolCallChunkEvent) -> None:
    call = event.tool_call_id
    if call is None:
        return
    owner = _call_owner(ledger, event, call)
    ledger.open.pop((TOOL_CALL, call, None), None)
    ledger.owners.calls.setdefault(call, owner)
    ledger.unanswered.setdefault(call)


def _call_owner(
    ledger: Ledger, event: ag.ToolCallStartEvent | ag.ToolCallChunkEvent, call: str
) -> str | None:
    owner, calls = event.subagent_run_id, ledger.owners.calls
    parent = event.parent_message_id
    if parent is not None and parent in ledger.owners.messages:
        parents_owner = ledger.owners.messages[parent]
        if owner is None:
            owner = parents_owner
        elif owner != parents_owner:
            ledger.refuse_owner(event, "parent message", parent)
    elif owner is None:
        owner = calls.get(call)
    if calls.get(call, owner) != owner:
        ledger.refuse_owner(event, TOOL_CALL, call)
    return owner


def _call_result(ledger: Ledger, event: ag.ToolCallResultEvent) -> None:
    call = event.tool_call_id
    if call not in ledger.owners.calls and call not in ledger.answerable:
        ledger.refuse(Rule.UNKNOWN_ID, event, f"tool-call {shown(call)} was never introduced", call)
    if (TOOL_CALL, call, None) in ledger.open:
        ledger.refuse(Rule.OUT_OF_ORDER, event, f"tool-call {shown(call)} is still open", call)
    # The executor may be somebody else than the caller, so the tag is recorded, not checked.
    ledger.owners.messages[event.message_id] = event.subagent_run_id
    ledger.unanswered.pop(call, None)


# Steps and subagents


def _step_started(ledger: Ledger, event: ag.StepStartedEvent) -> None:
    key: Key = (STEP, event.step_name, event.subagent_run_id)
    if key in ledger.open:
        detail = f"step {shown(event.step_name)} is open"
        ledger.refuse(Rule.DUPLICATE_START, event, detail, event.step_name)
    ledger.open[key] = None


def _step_finished(ledger: Ledger, event: ag.StepFinishedEvent) -> None:
    key: Key = (STEP, event.step_name, event.subagent_run_id)
    if key not in ledger.open:
        detail = f"step {shown(event.step_name)} is not open under this owner"
        ledger.refuse(Rule.NOT_OPEN, event, detail, event.step_name)
    ledger.open.pop(key, None)


def _subagent_started(ledger: Ledger, event: ag.SubagentStartedEvent) -> None:
    subagent, parent = event.subagent_run_id, event.parent_subagent_run_id
    if subagent in ledger.subagents:
        detail = f"subagent {shown(subagent)} was announced already"
        ledger.refuse(Rule.DUPLICATE_START, event, detail, subagent)
    if parent is not None and parent not in ledger.subagents:
        detail = f"parent subagent {shown(parent)} was never announced"
        ledger.refuse(Rule.UNKNOWN_ID, event, detail, parent)
    ledger.subagents.add(subagent)
    ledger.open[SUBAGENT, subagent, None] = parent


def _subagent_ended(ledger: Ledger, event: ag.SubagentFinishedEvent | ag.SubagentErrorEvent) -> None:
    key: Key = (SUBAGENT, event.subagent_run_id, None)
    if key not in ledger.open:
        detail = f"subagent {shown(event.subagent_run_id)} is not active"
        ledger.refuse(Rule.NOT_OPEN, event, detail, event.subagent_run_id)
    ledger.open.pop(key, None)


# Activities, snapshots and what has no order


def _activity_snapshot(ledger: Ledger, event: ag.ActivitySnapshotEvent) -> None:
    # An absent `replace` means true, so only an explicit false leaves the owner.
    if event.replace is False:
        ledger.owners.activities.setdefault(event.message_id, event.subagent_run_id)
    else:
        ledger.owners.activities[event.message_id] = event.subagent_run_id


def _activity_delta(ledger: Ledger, event: ag.ActivityDeltaEvent) -> None:
    tag = event.subagent_run_id
    if tag is not None and ledger.owners.activities.get(event.message_id, tag) != tag:
        ledger.refuse_owner(event, "activity", event.message_id)


def _messages_snapshot(ledger: Ledger, event: ag.MessagesSnapshotEvent) -> None:
    ledger.owners.overwrite(event.messages)
    for message in event.messages:
        if isinstance(message, ag.ToolMessage):
            ledger.unanswered.pop(message.tool_call_id, None)


def _unordered(ledger: Ledger, _: _Unordered) -> None:
    """State, CUSTOM and RAW may appear anywhere before the end."""


# What items of every kind share


def _start(ledger: Ledger, event: _Opener, kind: ItemKind, item_id: str, owners: OwnerRecord) -> None:
    tag = event.subagent_run_id
    if tag is not None and owners.get(item_id, tag) != tag:
        ledger.refuse_owner(event, kind, item_id)
    key: Key = (kind, item_id, None)
    if key in ledger.open:
        ledger.refuse(Rule.DUPLICATE_START, event, f"{kind} {shown(item_id)} is open", item_id)
    ledger.open[key] = None
    owners.setdefault(item_id, tag)


def _continue(ledger: Ledger, event: _Continuation, key: Key, owners: OwnerRecord) -> None:
    if key not in ledger.open:
        ledger.refuse(Rule.NOT_OPEN, event, f"{key[0]} {shown(key[1])} is not open", key[1])
    tag = event.subagent_run_id
    if tag is not None and owners.get(key[1], tag) != tag:
        ledger.refuse_owner(event, key[0], key[1])


def _end(ledger: Ledger, event: _Continuation, key: Key, owners: OwnerRecord) -> None:
    _continue(ledger, event, key, owners)
    ledger.open.pop(key, None)


def _chunk(ledger: Ledger, event: _Chunk, kind: ItemKind, item_id: str | None, owners: OwnerRecord) -> None:
    if item_id is None:
        return
    tag = event.subagent_run_id
    if tag is not None and owners.get(item_id, tag) != tag:
        ledger.refuse_owner(event, kind, item_id)
    ledger.open.pop((kind, item_id, None), None)
    owners.setdefault(item_id, tag)


def check_for(event: Event) -> Check:
    """The check for events of this class (subclasses of a protocol event count as that event).

    Raises TypeError for anything else. An event that the protocol gains is a type error here.
    """
    if not isinstance(event, _EVENT_CLASSES):
        raise TypeError(f"{type(event).__name__} is not an event of the protocol")
    match event:
        case ag.RunStartedEvent():
            return _paired(event, _run_started)
        case ag.RunFinishedEvent():
            return _paired(event, _run_finished)
        case ag.RunErrorEvent():
            return _paired(event, _run_error)
        case ag.StepStartedEvent():
            return _paired(event, _step_started)
        case ag.StepFinishedEvent():
            return _paired(event, _step_finished)
        case ag.SubagentStartedEvent():
            return _paired(event, _subagent_started)
        case ag.SubagentFinishedEvent() | ag.SubagentErrorEvent():
            return _paired(event, _subagent_ended)
        case ag.ActivitySnapshotEvent():
            return _paired(event, _activity_snapshot)
        case ag.ActivityDeltaEvent():
            return _paired(event, _activity_delta)
        case ag.MessagesSnapshotEvent():
            return _paired(event, _messages_snapshot)
        case ag.StateSnapshotEvent() | ag.StateDeltaEvent() | ag.CustomEvent() | ag.RawEvent():
            return _paired(event, _unordered)
        case _:
            return _check_for_spoken(event)


def _check_for_spoken(event: _Spoken) -> Check:
    match event:
        case ag.TextMessageStartEvent():
            return _paired(event, _text_start)
        case ag.TextMessageContentEvent():
            return _paired(event, _text_content)
        case ag.TextMessageEndEvent():
            return _paired(event, _text_end)
        case ag.TextMessageChunkEvent():
            return _paired(event, _text_chunk)
        case ag.ReasoningStartEvent():
            return _paired(event, _reasoning_start)
        case ag.ReasoningEndEvent():
            return _paired(event, _reasoning_end)
        case ag.ReasoningMessageStartEvent():
            return _paired(event, _thought_start)
        case ag.ReasoningMessageContentEvent():
            return _paired(event, _thought_content)
        case ag.ReasoningMessageEndEvent():
            return _paired(event, _thought_end)
        case ag.ReasoningMessageChunkEvent():
            return _paired(event, _thought_chunk)
        case ag.ReasoningEncryptedValueEvent():
            return _paired(event, _encrypted_value)
        case ag.ToolCallStartEvent():
            return _paired(event, _call_start)
        case ag.ToolCallArgsEvent():
            return _paired(event, _call_args)
        case ag.ToolCallEndEvent():
            return _paired(event, _call_end)
        case ag.ToolCallChunkEvent():
            return _paired(event, _call_chunk)
        case ag.ToolCallResultEvent():
            return _paired(event, _call_result)
        case _:
            assert_never(event)


def _paired(_: _E, check: Callable[[Ledger, _E], None]) -> Check:
    # Only for the type checker: a check paired with another event's class does not pass it.
    return check
