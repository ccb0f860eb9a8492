"""What one run has said so far, as far as its order depends on it."""

from collections.abc import Collection, Sequence
from typing import assert_never

from shared.protocol.events import Event, Message
from shared.protocol.items import ItemKind, OpenItem
from shared.protocol.owners import Owners
from shared.protocol.rules import Rule, VerificationError, shown

Key = tuple[ItemKind, str, str | None]


class Ledger:
    """The open items, the owners and the known ids of one run; the checks read and write it.

    ``open`` is in opening order; the third part of a key is the owner of a step (None for every
    other kind), a value is the parent of a subagent. ``unanswered`` holds the calls of this run
    that have no result, open ones too. ``answerable`` calls may get a result though nobody here made them.
    """

    __slots__ = (
        "answerable",
        "debug",
        "enforce",
        "open",
        "owners",
        "run_id",
        "started",
        "subagents",
        "terminated",
        "thread_id",
        "unanswered",
    )

    def __init__(
        self,
        history: Sequence[Message],
        thread_id: str | None,
        run_id: str | None,
        enforce: bool,
        debug: bool,
        *,
        answerable: Collection[str] = (),
    ) -> None:
        self.answerable = frozenset(answerable)
        self.owners = Owners()
        self.owners.learn(history)
        self.thread_id = thread_id
        self.run_id = run_id
        self.enforce = enforce
        self.debug = debug
        self.started = False
        self.terminated = False
        self.open: dict[Key, str | None] = {}
        self.subagents: set[str] = set()
        self.unanswered: dict[str, None] = {}

    def open_items(self) -> tuple[OpenItem, ...]:
        return tuple(
            OpenItem(kind, item_id, self._owner(kind, item_id, scope)) for kind, item_id, scope in self.open
        )

    def refuse(self, rule: Rule, event: Event, detail: str, item_id: str | None = None) -> None:
        """Raise VerificationError if rules are enforced; otherwise the caller goes on with the effects."""
        if self.enforce:
            raise self.refusal(rule, event, detail, item_id)

    def refuse_owner(self, event: Event, noun: str, item_id: str) -> None:
        self.refuse(Rule.OWNER_MISMATCH, event, f"{noun} {shown(item_id)} belongs to another owner", item_id)

    def refusal(self, rule: Rule, event: Event, detail: str, item_id: str | None = None) -> VerificationError:
        return VerificationError(rule, event.type, detail, item_id, self.open_items() if self.debug else None)

    def _owner(self, kind: ItemKind, item_id: str, scope: str | None) -> str | None:
        # Looked up late, because a MESSAGES_SNAPSHOT may have given an open item another owner.
        match kind:
            case "message":
                return self.owners.messages.get(item_id)
            case "reasoning" | "reasoning-message":
                return self.owners.reasoning.get(item_id)
            case "tool-call":
                return self.owners.calls.get(item_id)
            case "step":
                return scope
            case "subagent":
                return self.open[kind, item_id, None]
            case _:
                assert_never(kind)
