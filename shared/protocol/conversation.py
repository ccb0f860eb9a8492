"""The messages of a thread as a run's events build them, by the rules of the official client.

Where an event names nothing that exists the client ignores it, and so does this. Chunks are
expanded before they come here. Texts that arrive in pieces are joined when somebody reads.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from shared.protocol.chunks import Wire
from shared.protocol.moves import ACTIVITY_ROLE, CLINGING, REASONING_ROLE, Moves, complete_types
from shared.protocol.patch import PatchError, apply_patch


class Conversation:
    """All messages so far, in the client's order; its own copies, as JSON spells them.

    ``owners`` holds subagents that own a message (by role and id) which does not show it, because
    another event than the one that made it was tagged. ``moves`` is for clients that left earlier.
    """

    __slots__ = ("_arguments", "_by_id", "_calls", "_messages", "_texts", "moves", "owners")

    def __init__(self, messages: list[Wire]) -> None:
        self._messages = messages
        self._texts: dict[str, list[str]] = {}
        self._arguments: dict[str, list[str]] = {}
        self._by_id: dict[str, Wire] = {}
        self._calls: dict[str, tuple[Wire, Wire]] = {}
        self.owners: dict[tuple[bool, str], str] = {}
        self.moves = Moves(messages)
        self._index()

    @property
    def messages(self) -> list[Wire]:
        """The messages themselves, texts and arguments complete; not to be changed."""
        self._join()
        return self._messages

    def find(self, message_id: str) -> Wire | None:
        return self._by_id.get(message_id)

    def find_call(self, call_id: str) -> tuple[Wire, Wire] | None:
        """The message that a tool call is part of, and the call."""
        return self._calls.get(call_id)

    def owner_of(self, message: Wire) -> str | None:
        """The subagent that its continuations are tagged with, if any; None is the parent agent."""
        if "subagentRunId" in message:
            owner: str = message["subagentRunId"]
            return owner
        return self.owners.get((message["role"] == REASONING_ROLE, message["id"]))

    # Text and reasoning

    def start_text(self, event: Wire) -> None:
        self._start(event, event.get("role", "assistant"))

    def start_reasoning(self, event: Wire) -> None:
        self._start(event, REASONING_ROLE)

    def start_span(self, event: Wire) -> None:
        """A span makes no message, but the message with its id belongs to the span's owner."""
        if "subagentRunId" in event:
            self.owners.setdefault((True, event["messageId"]), event["subagentRunId"])

    def _start(self, event: Wire, role: str) -> None:
        message_id, owner = event["messageId"], event.get("subagentRunId")
        message = self._by_id.get(message_id)
        if message is None:
            message = {"id": message_id, "role": role, "content": ""}
            if "name" in event:
                message["name"] = event["name"]
            _tag(message, owner)
            self._insert(len(self._messages), message)
        elif message["role"] == ACTIVITY_ROLE:
            return
        if owner is not None:
            self.owners.setdefault((role == REASONING_ROLE, message_id), owner)
        _merge_metadata(message, event)

    def add_text(self, event: Wire) -> None:
        message_id = event["messageId"]
        pieces = self._texts.get(message_id)
        if pieces is None:
            message = self._by_id.get(message_id)
            if message is None or message["role"] == ACTIVITY_ROLE:
                return
            pieces = self._texts[message_id] = []
        pieces.append(event["delta"])
        if "metadata" in event:
            _merge_metadata(self._by_id[message_id], event)

    def end_text(self, event: Wire) -> None:
        message = self._by_id.get(event["messageId"])
        if message is not None and message["role"] != ACTIVITY_ROLE:
            _merge_metadata(message, event)

    # Tool calls

    def start_call(self, event: Wire) -> None:
        call_id, owner = event["toolCallId"], event.get("subagentRunId")
        known = self._calls.get(call_id)
        if known is None:
            message = self._message_for(event)
            call: Wire = {
                "id": call_id,
                "type": "function",
                "function": {"name": event["toolCallName"], "arguments": ""},
            }
            message.setdefault("toolCalls", []).append(call)
            self._calls[call_id] = (message, call)
        else:
            message, call = known
            call["function"]["name"] = event["toolCallName"]
        if owner is not None:
            self.owners.setdefault((False, message["id"]), owner)
        _merge_metadata(call, event)

    def _message_for(self, event: Wire) -> Wire:
        """The assistant message that a new call becomes part of; made if need be."""
        message_id = event.get("parentMessageId") or event["toolCallId"]
        existing = self._by_id.get(message_id) if event.get("parentMessageId") else None
        if existing is not None:
            if existing["role"] == "assistant":
                return existing
            message_id = event["toolCallId"]
            owner = self.owner_of(existing)
            if owner is not None and existing["role"] not in CLINGING:
                self.owners.setdefault((False, message_id), owner)
        message: Wire = {"id": message_id, "role": "assistant", "toolCalls": []}
        if message_id not in self._by_id:
            _tag(message, event.get("subagentRunId"))
        self._insert(len(self._messages), message)
        return message

    def add_arguments(self, event: Wire) -> None:
        call_id = event["toolCallId"]
        pieces = self._arguments.get(call_id)
        if pieces is None:
            if call_id not in self._calls:
                return
            pieces = self._arguments[call_id] = []
        pieces.append(event["delta"])
        if "metadata" in event:
            _merge_metadata(self._calls[call_id][1], event)

    def end_call(self, event: Wire) -> None:
        known = self._calls.get(event["toolCallId"])
        if known is not None:
            _merge_metadata(known[1], event)

    def add_result(self, event: Wire) -> None:
        """The result stands behind its call's message and the results that stand there already."""
        message: Wire = {
            "id": event["messageId"],
            "role": "tool",
            "toolCallId": event["toolCallId"],
            "content": event["content"],
        }
        _tag(message, event.get("subagentRunId"))
        _merge_metadata(message, event)
        known = self._calls.get(event["toolCallId"])
        at = len(self._messages)
        if known is not None and known[0]["role"] == "assistant":
            at = self._place_of(known[0]) + 1
            while at < len(self._messages) and self._messages[at]["role"] == "tool":
                at += 1
        self._insert(at, message)

    def set_encrypted_value(self, event: Wire) -> None:
        target: Wire | None
        if event["subtype"] == "tool-call":
            target = self._calls.get(event["entityId"], (None, None))[1]
        else:
            target = self._by_id.get(event["entityId"])
            if target is not None and target["role"] == ACTIVITY_ROLE:
                return
        if target is not None:
            target["encryptedValue"] = event["encryptedValue"]

    # Activities

    def set_activity(self, event: Wire) -> None:
        message_id, replace = event["messageId"], event.get("replace", True)
        fresh: Wire = {
            "id": message_id,
            "role": ACTIVITY_ROLE,
            "activityType": event["activityType"],
            "content": event["content"],
        }
        _tag(fresh, event.get("subagentRunId"))
        message = self._by_id.get(message_id)
        if message is None:
            self._insert(len(self._messages), fresh)
            message = fresh
        elif message["role"] == ACTIVITY_ROLE:
            if replace:
                _become(message, fresh, keep=("metadata",))
        elif replace:
            self._join()
            _become(message, fresh)
            self._index()
        else:
            return
        _merge_metadata(message, event)

    def patch_activity(self, event: Wire) -> None:
        message = self._by_id.get(event["messageId"])
        if message is None or message["role"] != ACTIVITY_ROLE:
            return
        _merge_metadata(message, event)
        try:
            content = apply_patch(message["content"], event["patch"])
        except PatchError:
            return
        # Anything but an object could not be told in a snapshot.
        if isinstance(content, dict):
            message["content"] = content
            message["activityType"] = event["activityType"]

    # The whole

    def add_missing(self, messages: Iterable[Wire]) -> None:
        """Takes the messages whose ids are not known yet."""
        for message in messages:
            if message["id"] not in self._by_id:
                self._insert(len(self._messages), message)

    def restate(self, event: Wire) -> None:
        """Merges a MESSAGES_SNAPSHOT: what it has is replaced in place, what it lacks goes, the rest follows.

        Reasoning that it does not speak of at all stays, and so do activities of other types.
        """
        told = event["messages"]
        by_id = {message["id"]: message for message in told}
        types = complete_types(told, event.get("metadata"))
        tells_reasoning = any(message["role"] == REASONING_ROLE for message in told)

        def stays(message: Wire) -> bool:
            if message["role"] == ACTIVITY_ROLE:
                return types is not None and message["activityType"] not in types
            return message["role"] == REASONING_ROLE and not tells_reasoning

        before = self.messages
        after = [by_id.get(one["id"], one) for one in before if one["id"] in by_id or stays(one)]
        known = {message["id"] for message in after}
        after += [message for message in told if message["id"] not in known]
        self.moves.restated(before, after, types)
        known |= by_id.keys()
        self.owners = {
            (reasoning, item_id): owner
            for (reasoning, item_id), owner in self.owners.items()
            if item_id not in by_id and (reasoning or item_id in known)
        }
        self._messages = after
        self._index()

    def _insert(self, at: int, message: Wire) -> None:
        self.moves.appeared((message["id"],))
        doubled = self._by_id.get(message["id"])
        if doubled is not None:
            self._join()
            self.moves.inserted(self._place_of(doubled))
        if at < len(self._messages):
            self.moves.inserted(at)
        self._messages.insert(at, message)
        if doubled is None:
            self._by_id[message["id"]] = message
        else:
            self._index()

    def _place_of(self, message: Wire) -> int:
        # From the end, because what is looked for was said lately.
        for at in range(len(self._messages) - 1, -1, -1):
            if self._messages[at] is message:
                return at
        raise LookupError("not a message of this conversation")

    def _index(self) -> None:
        # Of several with one id the first one is meant, as in the client.
        self._by_id = {}
        self._calls = {}
        for message in self._messages:
            self._by_id.setdefault(message["id"], message)
            for call in message.get("toolCalls") or ():
                self._calls.setdefault(call["id"], (message, call))

    def _join(self) -> None:
        for message_id, pieces in self._texts.items():
            message = self._by_id[message_id]
            said = message.get("content")
            message["content"] = "".join([said if isinstance(said, str) else "", *pieces])
        for call_id, pieces in self._arguments.items():
            function = self._calls[call_id][1]["function"]
            function["arguments"] = "".join([function["arguments"], *pieces])
        self._texts.clear()
        self._arguments.clear()


def _tag(message: Wire, owner: str | None) -> None:
    if owner is not None:
        message["subagentRunId"] = owner


def _become(message: Wire, other: Wire, keep: tuple[str, ...] = ()) -> None:
    kept = {name: message[name] for name in keep if name in message}
    message.clear()
    message.update(other, **kept)


def _merge_metadata(target: Wire, event: Wire) -> None:
    metadata: dict[str, Any] | None = event.get("metadata")
    if metadata is not None:
        target["metadata"] = {**target.get("metadata", {}), **metadata}


APPLY: Final[dict[str, Callable[[Conversation, Wire], None]]] = {
    "TEXT_MESSAGE_START": Conversation.start_text,
    "TEXT_MESSAGE_CONTENT": Conversation.add_text,
    "TEXT_MESSAGE_END": Conversation.end_text,
    "REASONING_START": Conversation.start_span,
    "REASONING_MESSAGE_START": Conversation.start_reasoning,
    "REASONING_MESSAGE_CONTENT": Conversation.add_text,
    "REASONING_MESSAGE_END": Conversation.end_text,
    "REASONING_ENCRYPTED_VALUE": Conversation.set_encrypted_value,
    "TOOL_CALL_START": Conversation.start_call,
    "TOOL_CALL_ARGS": Conversation.add_arguments,
    "TOOL_CALL_END": Conversation.end_call,
    "TOOL_CALL_RESULT": Conversation.add_result,
    "ACTIVITY_SNAPSHOT": Conversation.set_activity,
    "ACTIVITY_DELTA": Conversation.patch_activity,
    "MESSAGES_SNAPSHOT": Conversation.restate,
}
"""What an event does to the messages, by its type; other types do nothing to them."""
