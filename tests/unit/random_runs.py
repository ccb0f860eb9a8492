"""Random runs that both the client and the verifier take: each event is one that may come next."""

from __future__ import annotations

import copy
import pickle

import orjson

from shared.protocol import events as ag
from shared.protocol.verifier import VerificationError, Verifier
from tests.client_rules import Checker, Client, ClientRefused, Expander

TAGS = [None, None, None, "s1", "s2", "s3", ""]
KINDS = ["PLAN", "MAP"]
PIECES = ["", "a", "bc"]
VALUES = [None, 0, "v", [], {}, [1, {"a": 2}], {"a": {"b": 1}}]
PLACES = ["/a", "/a", "/a/b", "/0", "/1", "/-", "/1/a", "/b"]
OWNED = "@ag-ui/client", "authoritativeActivityTypes"


class OwnedChecker(Checker):
    """The client's order, and: a message that a tool call makes belongs to the call's owner.

    The client does not hold that against a stream, but a snapshot has no way to say otherwise.
    """

    def tool_call_start(self, event):
        super().tool_call_start(event)
        message = event.get("parentMessageId") or event["toolCallId"]
        self.owners["message"].setdefault(message, self.owners["call"][event["toolCallId"]])


class Author:
    """Writes a run with the choices of ``random``."""

    def __init__(self, random, history, *, restates):
        self.random = random
        self.verifier = Verifier(history)
        self.history = [
            orjson.loads(one.model_dump_json(by_alias=True, exclude_none=True)) for one in history
        ]
        self.expand, self.check = Expander(), OwnedChecker()
        # As a server knows it; the client is not told who owns what in the request's messages.
        self.check.seed(self.history, overwrite=False)
        self.restates = restates
        self.removed = set()
        self.thoughts = set()
        self.events = []
        self.write({"type": "RUN_STARTED", "threadId": "thread", "runId": "run"})

    def run(self, length):
        moves = [self.text, self.thought, self.span, self.call, self.text_chunk, self.call_chunk]
        moves += [self.thought_chunk, self.result, self.value, self.step, self.subagent, self.activity]
        moves += [self.state, self.text, self.call, self.other]
        if self.restates:
            moves += [self.restate]
        for _ in range(length):
            self.random.choice(moves)()
        if self.random.random() < 0.7:
            for closing in self.verifier.closing_events():
                self.write(orjson.loads(ag.dump(closing)))
        if not self.write({"type": "RUN_FINISHED", "threadId": "thread", "runId": "run"}):
            self.write({"type": "RUN_ERROR", "message": "cut"})
        return self.events

    def write(self, event):
        if self.random.random() < 0.15 and event["type"] not in {"RUN_STARTED", "MESSAGES_SNAPSHOT"}:
            event["metadata"] = {self.pick("xy"): self.pick([None, 1, {"z": []}])}
        event = {
            key: value for key, value in event.items() if value is not None or key in {"snapshot", "value"}
        }
        if self.relies_on_the_forgotten(event):
            return False
        expand, check = pickle.loads(pickle.dumps((self.expand, self.check)))
        try:
            for each in expand(event):
                check(each)
            self.verifier.observe(ag.parse(orjson.dumps(event)))
        except (ClientRefused, VerificationError):
            return False
        self.expand, self.check = expand, check
        self.events.append(copy.deepcopy(event))
        if event["type"] in {"REASONING_MESSAGE_START", "REASONING_MESSAGE_CHUNK"}:
            self.thoughts.add(event.get("messageId"))
        if event["type"] == "MESSAGES_SNAPSHOT":
            self.thoughts &= {message["id"] for message in event["messages"]}
            self.removed = self.ids_ever() - self.ids_of(self.told())
        return True

    def told(self):
        return Client(self.history).run(self.events).messages

    def ids_ever(self):
        return {item for owners in self.check.owners.values() for item in owners}

    @staticmethod
    def ids_of(messages):
        calls = {call["id"] for message in messages for call in message.get("toolCalls", [])}
        return calls | {message["id"] for message in messages}

    def relies_on_the_forgotten(self, event):
        """Whether it opens what a snapshot removed, and leaves it to the client to remember the owner."""
        if self.restates and "subagentRunId" not in event:
            ids = {
                "messageId": ["message", "reasoning", "activity"],
                "parentMessageId": ["message"],
                "toolCallId": ["call"],
            }
            for id_name, families in ids.items():
                item = event.get(id_name)
                owned = any(self.check.owners[family].get(item) is not None for family in families)
                if (
                    owned
                    and item in self.removed
                    and event["type"].endswith(("START", "CHUNK", "ACTIVITY_SNAPSHOT"))
                ):
                    return True
        return False

    def pick(self, choices):
        return self.random.choice(sorted(choices) if isinstance(choices, set) else list(choices))

    def name(self, family):
        return f"{family}{self.random.randrange(1, 4)}"

    def tag(self, family, item):
        owners = self.check.owners[family]
        return self.pick([None, owners[item]]) if item in owners else self.pick(TAGS)

    def bracket(self, item, family, id_name, kind, names, **members):
        """Opens the item, or goes on with it if it is open."""
        start, pieces, end = names
        owner = {id_name: item, "subagentRunId": self.tag(family, item)}
        if item not in self.check.open[kind]:
            self.write({"type": start, **owner, **members})
        elif pieces is None or self.random.random() < 0.35:
            self.write({"type": end, **owner})
        else:
            self.write({"type": pieces, "delta": self.pick(PIECES), **owner})

    def text(self):
        told = {"role": self.pick([None, None, "user"]), "name": self.pick([None, None, "Bot"])}
        names = "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"
        self.bracket(
            self.pick([self.name("m"), self.name("p")]), "message", "messageId", "message", names, **told
        )

    def thought(self):
        names = "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END"
        self.bracket(self.name("r"), "reasoning", "messageId", "thought", names, role="reasoning")

    def span(self):
        item = self.pick([self.name("r"), self.name("q")])
        self.bracket(item, "reasoning", "messageId", "span", ("REASONING_START", None, "REASONING_END"))

    def call(self):
        told = {"toolCallName": self.pick("fg"), "parentMessageId": self.parent()}
        names = "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"
        self.bracket(self.name("c"), "call", "toolCallId", "call", names, **told)

    def parent(self):
        """Mostly a message that may have calls; sometimes one that cannot."""
        thought = self.name("r")
        known = [thought] if thought in self.thoughts else []
        return self.pick([None, self.name("p"), self.name("m"), *known])

    def text_chunk(self):
        told = {"type": "TEXT_MESSAGE_CHUNK", "role": self.pick([None, "user"])}
        self.say_chunk("text", "messageId", self.name("m"), "message", told)

    def call_chunk(self):
        told = {"type": "TOOL_CALL_CHUNK", "toolCallName": "f", "parentMessageId": self.parent()}
        self.say_chunk("tool", "toolCallId", self.name("c"), "call", told)

    def thought_chunk(self):
        told = {"type": "REASONING_MESSAGE_CHUNK"}
        self.say_chunk("reasoning", "messageId", self.name("r"), "reasoning", told)

    def say_chunk(self, kind, id_name, item, family, told):
        going_on = any(other == kind for other, _ in self.expand.lanes.values())
        event = {
            "type": told["type"],
            "delta": self.pick([None, *PIECES]),
            "rawEvent": self.pick([None, None, {}]),
        }
        if going_on and self.random.random() < 0.7:
            event["subagentRunId"] = self.pick([None, *self.expand.lanes])
        else:
            event |= {**told, id_name: item, "subagentRunId": self.tag(family, item)}
        self.write(event)

    def result(self):
        event = {"type": "TOOL_CALL_RESULT", "toolCallId": self.name("c"), "content": self.pick(PIECES)}
        self.write({**event, "messageId": self.pick([self.name("t"), f"t{len(self.events)}"])})

    def value(self):
        event = {"type": "REASONING_ENCRYPTED_VALUE", "encryptedValue": self.pick(PIECES)}
        family = self.pick(["message", "reasoning", "call"])
        item = self.name({"message": "m", "reasoning": "r", "call": "c"}[family])
        subtype = "tool-call" if family == "call" else "message"
        self.write({**event, "subtype": subtype, "entityId": item, "subagentRunId": self.tag(family, item)})

    def step(self):
        event = {"stepName": self.pick(PIECES), "subagentRunId": self.pick(TAGS)}
        if not self.write({"type": "STEP_FINISHED", **event}):
            self.write({"type": "STEP_STARTED", **event})

    def subagent(self):
        event = {"subagentRunId": self.pick(["s1", "s2", "s3", "s4"])}
        started = {"type": "SUBAGENT_STARTED", "name": "n", "parentSubagentRunId": self.pick(TAGS), **event}
        if not self.write(started):
            self.write(
                self.pick(
                    [
                        {"type": "SUBAGENT_FINISHED", **event},
                        {"type": "SUBAGENT_ERROR", "message": "no", **event},
                    ]
                )
            )

    def activity(self):
        item = self.name("a")
        event = {
            "messageId": item,
            "activityType": self.pick(KINDS),
            "subagentRunId": self.tag("activity", item),
        }
        if self.random.random() < 0.5:
            content = {"a": self.pick(VALUES)}
            self.write(
                {
                    "type": "ACTIVITY_SNAPSHOT",
                    **event,
                    "content": content,
                    "replace": self.pick([None, True, False]),
                }
            )
        else:
            self.write({"type": "ACTIVITY_DELTA", **event, "patch": self.patch()})

    def patch(self):
        patch = []
        for _ in range(self.random.randrange(1, 4)):
            place, op = self.pick(PLACES), self.pick(["add", "add", "replace", "remove", "copy"])
            operation = {"op": op, "path": place}
            if op in {"add", "replace"}:
                operation["value"] = self.pick(VALUES)
            if op == "copy":
                operation |= {"from": self.pick(["/a", "/0"]), "path": self.pick(["/b", "/-"])}
            patch.append(operation)
        return patch

    def state(self):
        if self.random.random() < 0.3:
            self.write({"type": "STATE_SNAPSHOT", "snapshot": self.pick(VALUES)})
        else:
            self.write({"type": "STATE_DELTA", "delta": self.patch(), "subagentRunId": self.pick(TAGS)})

    def other(self):
        self.write(self.pick([{"type": "CUSTOM", "name": "n", "value": None}, {"type": "RAW", "event": {}}]))

    def restate(self):
        """A snapshot of the agent: some messages kept, some changed, some left out, some new."""
        messages = self.random.sample(
            copy.deepcopy(self.history), self.random.randrange(len(self.history) + 1)
        )
        for _ in range(self.random.randrange(4)):
            messages.append(self.message())
        by_id = {message["id"]: message for message in messages}
        calls = set()
        for message in by_id.values():
            mine = {call["id"] for call in message.get("toolCalls", [])}
            if not mine.isdisjoint(calls):
                del message["toolCalls"]
            calls |= mine
        metadata = self.pick([None, None, {OWNED[0]: {OWNED[1]: self.pick([None, [], ["MAP"], "wrong"])}}])
        self.write({"type": "MESSAGES_SNAPSHOT", "messages": list(by_id.values()), "metadata": metadata})

    def message(self):
        family = self.pick("mmprat")
        role = {
            "m": self.pick(["user", "assistant"]),
            "p": "assistant",
            "r": "reasoning",
            "a": "activity",
            "t": "tool",
        }
        message = {"id": self.name(family), "role": role[family], "content": self.pick(PIECES)}
        tag = self.pick(TAGS)
        if tag is not None:
            message["subagentRunId"] = tag
        if message["role"] == "assistant" and self.random.random() < 0.6:
            call = {"id": self.name("c"), "type": "function", "function": {"name": "f", "arguments": "{"}}
            message["toolCalls"] = [call]
        if family == "t":
            message["toolCallId"] = self.name("c")
        if family == "a":
            message |= {"content": {}, "activityType": self.pick(KINDS)}
        return message


def same(joined, whole):
    """Equal, but for tags that only the join shows: those of an owner that the message did not name."""
    return len(joined) == len(whole) and all(
        one == other or ("subagentRunId" not in other and one | other == one)
        for one, other in zip(joined, whole, strict=True)
    )
