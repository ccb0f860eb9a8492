"""The events with which a run starts over in its log after a worker was lost.

What the lost attempt opened is closed, one CUSTOM event says that another attempt begins, and snapshots
bring every reader back to the messages and the state of the request. There is no second RUN_STARTED.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import orjson

from shared.protocol.chunks import Wire
from shared.protocol.events import CustomEvent, Event, MessagesSnapshotEvent, RunAgentInput, dump, parse
from shared.protocol.fold import Fold
from shared.protocol.moves import CLINGING, snapshot_of
from shared.protocol.prelude import MOVED, loose
from shared.protocol.sse import data_of

ATTEMPT: Final = "outlast.attempt"
"""Name of the CUSTOM event; its value has ``attempt``, ``reason`` and, if there are any, ``unknownCalls``."""


def starting_over(
    run_input: RunAgentInput,
    frames: Sequence[bytes],
    closers: Sequence[Event],
    *,
    attempt: int,
    reason: str,
    unknown_calls: Sequence[dict[str, str]] = (),
) -> list[Event]:
    """What follows these frames of the run's log, ``closers`` first, so that attempt ``attempt`` may begin.

    Raises ValueError for frames that are not numbered events.
    """
    said, asked = Fold(run_input), Fold(run_input)
    asked.take_json(data_of(frames[0]))
    for frame in frames:
        said.take_json(data_of(frame))
    for event in closers:
        said.take(event)
    value = {"attempt": attempt, "reason": reason}
    if unknown_calls:
        value["unknownCalls"] = list(unknown_calls)
    reset = asked.prelude()[1:]
    if said.state != {} and not asked.tells_state:
        reset.append(parse(b'{"type":"STATE_SNAPSHOT","snapshot":{}}'))
    return [*closers, CustomEvent(name=ATTEMPT, value=value), *_cleared(said, asked), *reset]


def _cleared(said: Fold, asked: Fold) -> Iterable[Event]:
    """What takes away first that the snapshot of the request would leave standing, or out of order.

    Reasoning and activities stay in a client although a snapshot leaves them out (see ``prelude``).
    """
    before, wanted = _wire(said), _wire(asked)
    ids = [message["id"] for message in wanted]
    in_order = [message["id"] for message in before if message["id"] in ids] == ids
    kept = wanted if in_order else []
    left = {message["id"] for message in kept}
    clinging = {
        message["id"]: message.get("subagentRunId")
        for message in before
        if message["role"] in CLINGING and message["id"] not in left
    }
    standing = [loose(message_id, owner) for message_id, owner in clinging.items()]
    steps = [[*kept, *standing]] if standing else []
    steps += [kept] if standing or not in_order else []
    return [parse(orjson.dumps(snapshot_of(step, frozenset({MOVED})))) for step in steps]


def _wire(folded: Fold) -> list[Wire]:
    event: Wire = orjson.loads(dump(MessagesSnapshotEvent(messages=folded.messages)))
    messages: list[Wire] = event["messages"]
    return messages
