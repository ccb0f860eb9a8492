"""What the official AG-UI client 1.0.0 makes of a stream: its chunk, order and message rules in Python.

Written from the client's behaviour, naive on purpose and sharing nothing with the product, so that
the two can be compared. Events and messages are dicts as JSON spells them.
"""

from __future__ import annotations

import copy

import jsonpatch


class ClientRefused(Exception):
    """The client would have failed the run here."""


CHUNKS = {
    "TEXT_MESSAGE_CHUNK": ("text", "messageId", ["role", "name"]),
    "TOOL_CALL_CHUNK": ("tool", "toolCallId", ["toolCallName", "parentMessageId"]),
    "REASONING_MESSAGE_CHUNK": ("reasoning", "messageId", []),
}
STARTS = {"text": "TEXT_MESSAGE_START", "tool": "TOOL_CALL_START", "reasoning": "REASONING_MESSAGE_START"}
PIECES = {"text": "TEXT_MESSAGE_CONTENT", "tool": "TOOL_CALL_ARGS", "reasoning": "REASONING_MESSAGE_CONTENT"}
ENDS = {"text": "TEXT_MESSAGE_END", "tool": "TOOL_CALL_END", "reasoning": "REASONING_MESSAGE_END"}
CLOSES_ALL = {"RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT"}
CLOSES_NONE = {
    "RAW",
    "ACTIVITY_SNAPSHOT",
    "ACTIVITY_DELTA",
    "REASONING_ENCRYPTED_VALUE",
    "SUBAGENT_STARTED",
}


class Expander:
    """Chunks become starts, pieces and ends; one assembly per tag."""

    def __init__(self):
        self.lanes = {}

    def close(self, lane):
        if lane not in self.lanes:
            return []
        kind, fields = self.lanes.pop(lane)
        id_name = "toolCallId" if kind == "tool" else "messageId"
        end = {"type": ENDS[kind], id_name: fields[id_name]}
        if "subagentRunId" in fields:
            end["subagentRunId"] = fields["subagentRunId"]
        return [end]

    def __call__(self, event):
        name = event["type"]
        if name in CHUNKS:
            return self.chunk(event, *CHUNKS[name])
        if name in CLOSES_ALL:
            return [end for lane in list(self.lanes) for end in self.close(lane)] + [event]
        if name in CLOSES_NONE:
            return [event]
        return [*self.close(event.get("subagentRunId")), event]

    def chunk(self, event, kind, id_name, repeated):
        named, tag = event.get(id_name), event.get("subagentRunId")
        lane = self.find_lane(kind, id_name, named, tag)
        current = self.lanes.get(lane)
        result = []
        if current and current[0] == kind and named in {None, current[1][id_name]}:
            fields = current[1]
            for field in repeated:
                if field in event and event[field] != fields.get(field):
                    raise ClientRefused(f"{field} was different before")
        else:
            result += self.close(lane)
            if named is None or (kind == "tool" and "toolCallName" not in event):
                raise ClientRefused("a first chunk lacks its id or name")
            fields = {key: event[key] for key in [id_name, *repeated, "subagentRunId"] if key in event}
            if kind == "text":
                fields.setdefault("role", "assistant")
            self.lanes[lane] = (kind, fields)
            result.append({"type": STARTS[kind], **fields, **part_of(event, "metadata")})
        if "delta" in event or "rawEvent" in event or (not result and "metadata" in event):
            owner = {"subagentRunId": fields["subagentRunId"]} if "subagentRunId" in fields else {}
            owner |= part_of(event, "subagentRunId")
            delta = event.get("delta", "")
            piece = {"type": PIECES[kind], id_name: fields[id_name], "delta": delta, **owner}
            result.append({**piece, **part_of(event, "metadata")})
        return result

    def find_lane(self, kind, id_name, named, tag):
        same_kind = [lane for lane, (other, _) in self.lanes.items() if other == kind]
        if named is not None:
            for lane in same_kind:
                if self.lanes[lane][1][id_name] == named:
                    if tag is not None and tag != lane:
                        raise ClientRefused("the tag is not the lane's")
                    return lane
            return tag
        if tag is not None or None in same_kind:
            return tag
        if len(same_kind) > 1:
            raise ClientRefused("ambiguous")
        return same_kind[0] if same_kind else None


def part_of(event, key):
    return {key: event[key]} if key in event else {}


class Checker:
    """The order that the client demands."""

    def __init__(self):
        self.began = self.over = self.failed = False
        self.open = {"message": set(), "call": set(), "span": set(), "thought": set()}
        self.owners = {"message": {}, "call": {}, "activity": {}, "reasoning": {}}
        self.steps = set()
        self.subagents = {}

    def __call__(self, event):
        name = event["type"]
        if self.failed or (self.over and name != "RUN_ERROR"):
            raise ClientRefused("the run is over")
        if self.began == (name == "RUN_STARTED") and (self.began or name != "RUN_ERROR"):
            raise ClientRefused("RUN_STARTED comes first and once")
        self.began = True
        check = getattr(self, name.lower(), None)
        if check is not None:
            check(event)

    def agree(self, event, owners, item):
        if "subagentRunId" in event and owners.get(item, event["subagentRunId"]) != event["subagentRunId"]:
            raise ClientRefused(f"{event['type']} {item!r} belongs to another owner")

    def starts(self, event, kind, owners):
        item = event["messageId"]
        if item in self.open[kind]:
            raise ClientRefused(f"{kind} {item!r} is open")
        self.agree(event, owners, item)
        self.open[kind].add(item)
        owners.setdefault(item, event.get("subagentRunId"))

    def goes_on(self, event, kind, owners, id_name="messageId", *, ends=False):
        item = event[id_name]
        if item not in self.open[kind]:
            raise ClientRefused(f"{kind} {item!r} is not open")
        self.agree(event, owners, item)
        if ends:
            self.open[kind].remove(item)

    def text_message_start(self, event):
        self.starts(event, "message", self.owners["message"])

    def text_message_content(self, event):
        self.goes_on(event, "message", self.owners["message"])

    def text_message_end(self, event):
        self.goes_on(event, "message", self.owners["message"], ends=True)

    def reasoning_start(self, event):
        self.starts(event, "span", self.owners["reasoning"])

    def reasoning_end(self, event):
        self.goes_on(event, "span", self.owners["reasoning"], ends=True)

    def reasoning_message_start(self, event):
        self.starts(event, "thought", self.owners["reasoning"])

    def reasoning_message_content(self, event):
        self.goes_on(event, "thought", self.owners["reasoning"])

    def reasoning_message_end(self, event):
        self.goes_on(event, "thought", self.owners["reasoning"], ends=True)

    def tool_call_start(self, event):
        call, owners, parents = event["toolCallId"], self.owners["call"], self.owners["message"]
        if call in self.open["call"]:
            raise ClientRefused(f"call {call!r} is open")
        owner = event.get("subagentRunId")
        parent = event.get("parentMessageId")
        if parent in parents:
            self.agree(event, parents, parent)
            if owner is None:
                owner = parents[parent]
                if call in owners and owners[call] != owner:
                    raise ClientRefused("the call and its parent have different owners")
        self.agree(event, owners, call)
        self.open["call"].add(call)
        owners.setdefault(call, owner)

    def tool_call_args(self, event):
        self.goes_on(event, "call", self.owners["call"], "toolCallId")

    def tool_call_end(self, event):
        self.goes_on(event, "call", self.owners["call"], "toolCallId", ends=True)

    def tool_call_result(self, event):
        self.owners["message"][event["messageId"]] = event.get("subagentRunId")

    def reasoning_encrypted_value(self, event):
        entity = event["entityId"]
        if event["subtype"] == "tool-call":
            self.agree(event, self.owners["call"], entity)
        elif entity in self.owners["message"]:
            self.agree(event, self.owners["message"], entity)
        else:
            self.agree(event, self.owners["reasoning"], entity)

    def activity_snapshot(self, event):
        item, owners = event["messageId"], self.owners["activity"]
        if item not in owners or event.get("replace", True):
            owners[item] = event.get("subagentRunId")

    def activity_delta(self, event):
        self.agree(event, self.owners["activity"], event["messageId"])

    def step_started(self, event):
        key = (event.get("subagentRunId"), event["stepName"])
        if key in self.steps:
            raise ClientRefused(f"step {key} is open")
        self.steps.add(key)

    def step_finished(self, event):
        key = (event.get("subagentRunId"), event["stepName"])
        if key not in self.steps:
            raise ClientRefused(f"step {key} is not open")
        self.steps.remove(key)

    def subagent_started(self, event):
        parent = event.get("parentSubagentRunId")
        if event["subagentRunId"] in self.subagents or (parent is not None and parent not in self.subagents):
            raise ClientRefused("a subagent starts twice, or its parent never did")
        self.subagents[event["subagentRunId"]] = True

    def subagent_finished(self, event):
        if not self.subagents.get(event["subagentRunId"]):
            raise ClientRefused("no such subagent is active")
        self.subagents[event["subagentRunId"]] = False

    subagent_error = subagent_finished

    def seed(self, messages, *, overwrite):
        for message in messages:
            role, owner = message["role"], message.get("subagentRunId")
            family = self.owners[role if role in {"reasoning", "activity"} else "message"]
            if overwrite or message["id"] not in family:
                family[message["id"]] = owner
            for call in message.get("toolCalls", []):
                if overwrite or call["id"] not in self.owners["call"]:
                    self.owners["call"][call["id"]] = owner

    def messages_snapshot(self, event):
        self.seed(event["messages"], overwrite=True)

    def run_started(self, event):
        self.seed(event.get("input", {}).get("messages", []), overwrite=False)

    def run_finished(self, event):
        if self.steps or any(self.open.values()) or any(self.subagents.values()):
            raise ClientRefused("something is open at the end")
        self.over = True

    def run_error(self, event):
        self.failed = True


class Client:
    """A client with its messages and state; it may run again with what it has."""

    def __init__(self, messages, state=None):
        self.messages = copy.deepcopy(messages)
        self.state = copy.deepcopy({} if state is None else state)
        self.warnings = []

    def run(self, events):
        """Takes a stream, which may break off. Raises ClientRefused."""
        expand, check = Expander(), Checker()
        for event in events:
            for each in expand(event):
                check(each)
                self.apply(copy.deepcopy(each))
        return self

    def apply(self, event):
        handler = getattr(self, event["type"].lower(), None)
        if handler is not None:
            handler(event)

    def warn(self, event):
        self.warnings.append(event["type"])

    def first(self, message_id):
        return next((message for message in self.messages if message["id"] == message_id), None)

    def holder(self, call_id):
        for message in self.messages:
            for call in message.get("toolCalls", []):
                if call["id"] == call_id:
                    return message, call
        return None, None

    def begin(self, event, fresh):
        message = self.first(event["messageId"])
        if message is None:
            message = fresh | part_of(event, "subagentRunId")
            self.messages.append(message)
        elif message["role"] == "activity":
            self.warn(event)
            return
        annotate(message, event)

    def text_message_start(self, event):
        role = event.get("role", "assistant")
        self.begin(event, {"id": event["messageId"], "role": role, "content": "", **part_of(event, "name")})

    def reasoning_message_start(self, event):
        self.begin(event, {"id": event["messageId"], "role": "reasoning", "content": ""})

    def text_message_content(self, event):
        message = self.first(event["messageId"])
        if message is None or message["role"] == "activity":
            self.warn(event)
            return
        before = message.get("content")
        message["content"] = (before if isinstance(before, str) else "") + event["delta"]
        annotate(message, event)

    reasoning_message_content = text_message_content

    def text_message_end(self, event):
        message = self.first(event["messageId"])
        if message is None or message["role"] == "activity":
            self.warn(event)
        else:
            annotate(message, event)

    reasoning_message_end = text_message_end

    def tool_call_start(self, event):
        call_id, parent = event["toolCallId"], event.get("parentMessageId")
        _, call = self.holder(call_id)
        if call is not None:
            if call["function"]["name"] != event["toolCallName"]:
                self.warn(event)
                call["function"]["name"] = event["toolCallName"]
            annotate(call, event)
            return
        message = self.first(parent) if parent else None
        if message is not None and message["role"] != "assistant":
            self.warn(event)
            parent, message = call_id, None
        if message is None:
            message = {"id": parent or call_id, "role": "assistant", "toolCalls": []}
            if self.first(message["id"]) is None:
                message |= part_of(event, "subagentRunId")
            self.messages.append(message)
        function = {"name": event["toolCallName"], "arguments": ""}
        call = {"id": call_id, "type": "function", "function": function}
        message.setdefault("toolCalls", []).append(call)
        annotate(call, event)

    def tool_call_args(self, event):
        _, call = self.holder(event["toolCallId"])
        if call is None:
            self.warn(event)
            return
        call["function"]["arguments"] += event["delta"]
        annotate(call, event)

    def tool_call_end(self, event):
        _, call = self.holder(event["toolCallId"])
        if call is None:
            self.warn(event)
        else:
            annotate(call, event)

    def tool_call_result(self, event):
        message = {"id": event["messageId"], "role": "tool"}
        message |= {key: event[key] for key in ("toolCallId", "content")} | part_of(event, "subagentRunId")
        annotate(message, event)
        places = [
            at
            for at, other in enumerate(self.messages)
            if other["role"] == "assistant"
            and any(call["id"] == event["toolCallId"] for call in other.get("toolCalls", []))
        ]
        at = places[0] + 1 if places else len(self.messages)
        while at < len(self.messages) and self.messages[at]["role"] == "tool":
            at += 1
        self.messages.insert(at, message)

    def reasoning_encrypted_value(self, event):
        if event["subtype"] == "tool-call":
            _, target = self.holder(event["entityId"])
        else:
            target = self.first(event["entityId"])
        if target is not None and target.get("role") != "activity":
            target["encryptedValue"] = event["encryptedValue"]

    def activity_snapshot(self, event):
        item = {"id": event["messageId"], "role": "activity", "activityType": event["activityType"]}
        item |= {"content": event["content"], **part_of(event, "subagentRunId")}
        message = self.first(event["messageId"])
        replaces = event.get("replace", True)
        if message is None:
            self.messages.append(item)
            annotate(item, event)
        elif message["role"] == "activity" or replaces:
            if replaces:
                kept = part_of(message, "metadata") if message["role"] == "activity" else {}
                at = next(at for at, other in enumerate(self.messages) if other is message)
                message = self.messages[at] = item | kept
            annotate(message, event)

    def activity_delta(self, event):
        message = self.first(event["messageId"])
        if message is None:
            return
        if message["role"] != "activity":
            self.warn(event)
            return
        annotate(message, event)
        try:
            message["content"] = jsonpatch.apply_patch(message["content"], event["patch"])
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
            self.warn(event)
            return
        message["activityType"] = event["activityType"]

    def state_snapshot(self, event):
        self.state = event["snapshot"]

    def state_delta(self, event):
        try:
            self.state = jsonpatch.apply_patch(self.state, event["delta"])
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError):
            self.warn(event)

    def run_started(self, event):
        for message in event.get("input", {}).get("messages", []):
            if self.first(message["id"]) is None:
                self.messages.append(message)

    def messages_snapshot(self, event):
        told = event["messages"]
        last = {message["id"]: message for message in told}
        declared = event.get("metadata", {}).get("@ag-ui/client", {})
        types = declared.get("authoritativeActivityTypes", "unsaid")
        if types == "wrong":
            types = []
        speaks = {message["role"] for message in told}

        def survives(message):
            if message["role"] == "activity":
                if isinstance(types, list):
                    return message["activityType"] not in types
                return types is not None and "activity" not in speaks
            return message["role"] == "reasoning" and "reasoning" not in speaks

        merged = [
            last.get(message["id"], message)
            for message in self.messages
            if message["id"] in last or survives(message)
        ]
        known = {message["id"] for message in merged}
        self.messages = merged + [message for message in told if message["id"] not in known]


def annotate(target, event):
    if "metadata" in event:
        target["metadata"] = target.get("metadata", {}) | event["metadata"]
