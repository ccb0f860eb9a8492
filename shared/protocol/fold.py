"""A run's log folded into the snapshot with which a client that joins it is answered.

A join is the prelude and then the events that follow. Whatever the client had read of the run
before, it ends with the messages and the state of a client that never left.
"""

from collections.abc import Iterable
from typing import Any

import orjson

from shared.protocol.chunks import CHUNK_TYPES, ChunkLanes, Wire
from shared.protocol.conversation import APPLY, Conversation
from shared.protocol.events import (
    Event,
    Message,
    MessagesSnapshotEvent,
    RunAgentInput,
    SerializationError,
    dump,
    dump_input,
    parse,
    run_started,
)
from shared.protocol.openings import OPENING_TYPES, Openings
from shared.protocol.patch import PatchError, apply_patch
from shared.protocol.prelude import snapshots
from shared.protocol.sse import data_of, prelude_frame, seq_of

_TERMINALS = ("RUN_FINISHED", "RUN_ERROR")


class Fold:
    """Where a run stands after the events taken so far. Events are taken in their order.

    It accepts what no client would, such as content without a start, and makes the best of it;
    what follows the terminal event is ignored.
    """

    __slots__ = (
        "_conversation",
        "_has_state",
        "_input",
        "_lanes",
        "_openings",
        "_started",
        "_state",
        "_taken",
        "_terminal",
    )

    def __init__(self, run_input: RunAgentInput) -> None:
        self._input = run_input
        document = orjson.loads(dump_input(run_input))
        self._conversation = Conversation(document["messages"])
        self._openings = Openings()
        self._lanes = ChunkLanes()
        self._state: Any = document.get("state", {})
        # An empty state is what a client starts with, so it is not worth telling.
        self._has_state = self._state != {}
        self._started: Wire | None = None
        self._terminal: Wire | None = None
        self._taken = False

    @property
    def messages(self) -> list[Message]:
        """The input's messages and everything said so far, unfinished messages included."""
        return MessagesSnapshotEvent.model_validate({"messages": self._conversation.messages}).messages

    @property
    def state(self) -> Any:
        """The state as JSON values, not to be changed; an empty object if nobody said anything of it."""
        return self._state

    @property
    def tells_state(self) -> bool:
        """Whether anybody said anything of the state."""
        return bool(self._has_state)

    @property
    def ended(self) -> bool:
        """Whether the terminal event was taken."""
        return self._terminal is not None

    def take(self, event: Event) -> None:
        """Takes the next event. Raises SerializationError for one that could not have travelled."""
        self.take_json(dump(event))

    def take_json(self, data: bytes) -> None:
        """Takes the next event as it travels. Raises ValueError if it is not JSON."""
        event: Wire = orjson.loads(data)
        if self._terminal is not None:
            return
        self._taken = True
        if self._lanes or event["type"] in CHUNK_TYPES:
            for part in self._lanes.expand(event):
                self._take(part)
        else:
            self._take(event)

    def prelude(self) -> list[Event]:
        """What a joining client is told before the events that follow; nothing before the first event.

        RUN_STARTED, the messages, the state if there is one, then the openers of what is open; for
        a run that ended its terminal event instead of those. Raises SerializationError for a state
        that patches have nested too deeply.
        """
        try:
            return [parse(orjson.dumps(event)) for event in self._prelude()]
        except orjson.JSONEncodeError:
            raise SerializationError("a join has no JSON form: it nests too deeply") from None

    def _prelude(self) -> list[Wire]:
        if not self._taken:
            return []
        events = [self._opening()]
        events += snapshots(self._conversation, self._openings)
        if self._has_state:
            events.append({"type": "STATE_SNAPSHOT", "snapshot": self._state})
        if self._terminal is not None:
            events.append(self._terminal)
        else:
            events += self._openings.present(self._conversation, self._lanes)
        return events

    def _opening(self) -> Wire:
        """RUN_STARTED without the echo of the input, whose messages the snapshot tells."""
        if self._started is None:
            given = self._input
            event: Wire = orjson.loads(dump(run_started(given.thread_id, given.run_id, given.parent_run_id)))
            return event
        return {name: value for name, value in self._started.items() if name != "input"}

    def _take(self, event: Wire) -> None:
        name = event["type"]
        apply = APPLY.get(name)
        if apply is not None:
            apply(self._conversation, event)
        if name in OPENING_TYPES:
            self._openings.take(event, self._conversation)
        elif name == "MESSAGES_SNAPSHOT":
            self._openings.restated(self._conversation)
        elif apply is None:
            self._take_of_run(name, event)

    def _take_of_run(self, name: str, event: Wire) -> None:
        if name == "STATE_SNAPSHOT":
            self._state = event["snapshot"]
            self._has_state = True
        elif name == "STATE_DELTA":
            self._has_state = True
            try:
                self._state = apply_patch(self._state, event["delta"])
            except PatchError:
                return
        elif name == "RUN_STARTED":
            self._started = self._started or event
            self._conversation.add_missing(event.get("input", {}).get("messages", ()))
        elif name in _TERMINALS:
            self._terminal = event


def fold(run_input: RunAgentInput, events: Iterable[Event]) -> Fold:
    """The fold of the first events of a run."""
    folded = Fold(run_input)
    for event in events:
        folded.take(event)
    return folded


def prelude_frames(run_input: RunAgentInput, frames: Iterable[bytes]) -> tuple[list[bytes], int]:
    """The prelude to what follows these frames of a run's log, as frames, and the last one's number.

    Only the last frame carries that number as its id, so a client whose connection breaks before it
    joins anew and a later one goes on exactly behind it. No frames give no prelude and 0. Raises
    ValueError for a frame that is not a numbered event, and as `Fold.prelude`.
    """
    folded = Fold(run_input)
    last: bytes | None = None
    for framed in frames:
        folded.take_json(data_of(framed))
        last = framed
    if last is None:
        return [], 0
    seq = seq_of(last)
    *leading, final = (dump(event) for event in folded.prelude())
    return [*(prelude_frame(data) for data in leading), prelude_frame(final, seq)], seq
