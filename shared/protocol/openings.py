"""What is open in a run, as the events that open it once more for somebody who was not there."""

from typing import Final

from shared.protocol.chunks import ChunkLanes, Wire
from shared.protocol.conversation import Conversation
from shared.protocol.items import MESSAGE, REASONING, REASONING_MESSAGE, STEP, SUBAGENT, TOOL_CALL, ItemKind
from shared.protocol.ledger import Key
from shared.protocol.moves import CLINGING, REASONING_ROLE

_ID: Final[dict[ItemKind, str]] = {
    MESSAGE: "messageId",
    REASONING: "messageId",
    REASONING_MESSAGE: "messageId",
    TOOL_CALL: "toolCallId",
    STEP: "stepName",
    SUBAGENT: "subagentRunId",
}
_OPENS: Final[dict[str, ItemKind]] = {
    "TEXT_MESSAGE_START": MESSAGE,
    "REASONING_START": REASONING,
    "REASONING_MESSAGE_START": REASONING_MESSAGE,
    "TOOL_CALL_START": TOOL_CALL,
    "STEP_STARTED": STEP,
    "SUBAGENT_STARTED": SUBAGENT,
}
_CLOSES: Final[dict[str, ItemKind]] = {
    "TEXT_MESSAGE_END": MESSAGE,
    "REASONING_END": REASONING,
    "REASONING_MESSAGE_END": REASONING_MESSAGE,
    "TOOL_CALL_END": TOOL_CALL,
    "STEP_FINISHED": STEP,
    "SUBAGENT_FINISHED": SUBAGENT,
    "SUBAGENT_ERROR": SUBAGENT,
}
OPENING_TYPES: Final = frozenset({*_OPENS, *_CLOSES})
# Members that the thing opened has taken up, or that describe the first arrival only.
_TAKEN_UP = {"metadata", "rawEvent"}


class Openings:
    """Openers in opening order; chunks are expanded before they come here.

    A subagent is kept when it has ended, because later ones may name it as their parent, and so is
    a subagent's reasoning span, because its id keeps its owner.
    """

    __slots__ = ("_ended", "_openers")

    def __init__(self) -> None:
        self._openers: dict[Key, Wire] = {}
        self._ended: dict[Key, Wire] = {}

    def take(self, event: Wire, conversation: Conversation) -> None:
        """Takes an event of OPENING_TYPES that the conversation has taken already."""
        name = event["type"]
        kind = _OPENS.get(name)
        if kind is not None:
            key = _key(kind, event)
            if self._ended.pop(key, None) is not None:
                former = self._openers.pop(key)
                event = {**_tag_of(former), **event}
            self._openers.setdefault(key, _owned(kind, event, conversation))
            return
        key = _key(_CLOSES[name], event)
        opener = self._openers.get(key)
        if opener is None:
            return
        if key[0] == SUBAGENT or (key[0] == REASONING and "subagentRunId" in opener):
            self._ended.setdefault(key, event)
        else:
            del self._openers[key]

    def restated(self, conversation: Conversation) -> None:
        """A snapshot of the agent changed the conversation, and with it perhaps who owns what is open."""
        for key, opener in self._openers.items():
            self._openers[key] = _owned(key[0], opener, conversation)

    def missing(self, conversation: Conversation) -> list[Wire]:
        """Openers of what is open though a snapshot of the agent removed it from the conversation.

        They would bring it back, so they belong before a snapshot that lacks it.
        """
        return [
            _apart(opener, conversation) if kind == TOOL_CALL else _bare(opener)
            for (kind, item_id, _), opener in self._openers.items()
            if _is_missing(kind, item_id, conversation)
        ]

    def present(self, conversation: Conversation, lanes: ChunkLanes) -> list[Wire]:
        """The other openers, made to agree with a snapshot of the conversation and to change none of it.

        Those of chunks come last, where no opener closes their lane.
        """
        events: list[Wire] = []
        chunks: list[Wire] = []
        for key, opener in self._openers.items():
            kind, item_id, _ = key
            if _is_missing(kind, item_id, conversation):
                continue
            ended = self._ended.get(key)
            if kind in {STEP, SUBAGENT}:
                events += [opener] if ended is None else [opener, ended]
            elif ended is None:
                chunk = lanes.opener(kind, item_id)
                if chunk is None:
                    events.append(_agreeing(kind, opener, conversation))
                else:
                    chunks.append(_with_fitting_parent(chunk, conversation))
            else:
                message = conversation.find(item_id)
                if message is None or not _tells_of(kind, message):
                    events += [opener, {**_untagged(ended), **_tag_of(opener)}]
        return events + chunks


def _key(kind: ItemKind, event: Wire) -> Key:
    return kind, event[_ID[kind]], event.get("subagentRunId") if kind == STEP else None


def _is_missing(kind: ItemKind, item_id: str, conversation: Conversation) -> bool:
    if kind == TOOL_CALL:
        return conversation.find_call(item_id) is None
    return kind in {MESSAGE, REASONING_MESSAGE} and conversation.find(item_id) is None


def _tells_of(kind: ItemKind, message: Wire) -> bool:
    """Whether the message is of the family that this kind of item opens."""
    return message["role"] not in CLINGING if kind == MESSAGE else message["role"] == REASONING_ROLE


def _bare(opener: Wire) -> Wire:
    return {name: value for name, value in opener.items() if name not in _TAKEN_UP}


def _owned(kind: ItemKind, opener: Wire, conversation: Conversation) -> Wire:
    """The opener tagged with the owner that a snapshot of the conversation tells of what it opens."""
    if kind in {STEP, SUBAGENT}:
        return opener
    if kind == TOOL_CALL:
        known = conversation.find_call(opener["toolCallId"])
        message = None if known is None else known[0]
    else:
        message = conversation.find(opener["messageId"])
        if message is not None and not _tells_of(kind, message):
            message = None
    if message is None:
        return opener
    owner = conversation.owner_of(message)
    return _untagged(opener) if owner is None else {**opener, "subagentRunId": owner}


def _tag_of(event: Wire) -> Wire:
    return {name: value for name, value in event.items() if name == "subagentRunId"}


def _untagged(event: Wire) -> Wire:
    return {name: value for name, value in event.items() if name != "subagentRunId"}


def _apart(opener: Wire, conversation: Conversation) -> Wire:
    """A call's opener that makes a message of its own, which the next snapshot takes away."""
    message_id = opener["toolCallId"]
    while conversation.find(message_id) is not None:
        message_id += "-"
    return _bare(opener) | {"parentMessageId": message_id}


def _agreeing(kind: ItemKind, opener: Wire, conversation: Conversation) -> Wire:
    """The opener without what a snapshot, which decides, tells otherwise."""
    event = _bare(_owned(kind, opener, conversation))
    known = conversation.find_call(event["toolCallId"]) if kind == TOOL_CALL else None
    if known is not None:
        message, call = known
        event["toolCallName"] = call["function"]["name"]
        if event.get("parentMessageId", message["id"]) != message["id"]:
            del event["parentMessageId"]
    return event


def _with_fitting_parent(chunk: Wire, conversation: Conversation) -> Wire:
    """A chunk without a parent that by now belongs to somebody else than the call does."""
    parent = conversation.find(chunk.get("parentMessageId", ""))
    known = conversation.find_call(chunk.get("toolCallId", ""))
    if parent is None or known is None or parent["role"] in CLINGING:
        return chunk
    if conversation.owner_of(parent) == conversation.owner_of(known[0]):
        return chunk
    return {name: value for name, value in chunk.items() if name != "parentMessageId"}
