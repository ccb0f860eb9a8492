"""The snapshots that bring any client of a run to the same conversation, whatever it read before.

The official client merges a MESSAGES_SNAPSHOT into what it has: messages that it knows stay where
they stand, and reasoning and activities may stay although the snapshot leaves them out. So what
moved since the run began is taken away first and told anew.
"""

from typing import Final

from shared.protocol.chunks import Wire
from shared.protocol.conversation import Conversation
from shared.protocol.moves import ACTIVITY_ROLE, CLINGING, REASONING_ROLE, snapshot_of
from shared.protocol.openings import Openings

MOVED: Final = "@outlast/moved"
"""Type of the activities that stand for what must go; a snapshot can say that it names all of them."""


def snapshots(conversation: Conversation, openings: Openings) -> list[Wire]:
    """One MESSAGES_SNAPSHOT for a conversation that only grew, else what prepares for it and then it.

    A first one makes of reasoning and activities that must go or move what a later one can remove;
    a second one leaves nothing but the messages that never moved. Before all of them come openers of
    what is open but has no place in the conversation any more; the snapshots remove what those make.
    """
    moves = conversation.moves
    messages = [_shown(message, conversation) for message in conversation.messages]
    settled = messages if moves.settled is None else messages[: moves.settled]
    moved = messages[len(settled) :]
    clinging = _lost(conversation)
    clinging |= {
        message["id"]: message.get("subagentRunId")
        for message in moved
        if message["role"] in CLINGING or any(message["id"] in lost for lost in moves.lost.values())
    }
    own_types = frozenset({MOVED} if clinging else ())
    events = openings.missing(conversation)
    if clinging:
        standing = [loose(message_id, owner) for message_id, owner in clinging.items()]
        events.append(snapshot_of([*settled, *standing], own_types))
    if moved:
        events.append(snapshot_of(settled, own_types))
    types = moves.activity_types
    events.append(snapshot_of(messages, None if types is None else types | own_types))
    return events


def _lost(conversation: Conversation) -> dict[str, str | None]:
    """Reasoning and activities that some client may have and that the last snapshot would not remove."""
    moves = conversation.moves
    lost: dict[str, str | None] = {}
    if not any(message["role"] == REASONING_ROLE for message in conversation.messages):
        lost |= moves.lost[REASONING_ROLE]
    if moves.activity_types is not None:
        lost |= moves.lost[ACTIVITY_ROLE]
    return {item_id: owner for item_id, owner in lost.items() if conversation.find(item_id) is None}


def _shown(message: Wire, conversation: Conversation) -> Wire:
    owner = conversation.owner_of(message)
    return message if owner is None else {**message, "subagentRunId": owner}


def loose(message_id: str, owner: str | None) -> Wire:
    """The activity that stands for a message which must go, until a snapshot removes it."""
    message: Wire = {"id": message_id, "role": ACTIVITY_ROLE, "activityType": MOVED, "content": {}}
    if owner is not None:
        message["subagentRunId"] = owner
    return message
