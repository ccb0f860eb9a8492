"""Checks the order of one run's events where they are made, and knows what is open."""

from collections.abc import Collection, Sequence

from shared.protocol.checks import Check, check_for
from shared.protocol.events import Event, Message
from shared.protocol.items import OpenItem, closing_event
from shared.protocol.ledger import Ledger
from shared.protocol.rules import Rule, VerificationError

__all__ = ["OpenItem", "Rule", "VerificationError", "Verifier"]

_CHECKS: dict[type[object], Check] = {}


class Verifier:
    """The order of one run's events; one instance per run, not thread-safe.

    The owner of an item is the ``subagentRunId`` of its first writer; absent is the parent agent,
    an empty string is an owner like any other. An untagged continuation is always right.

    ``input_messages`` are the request's: their tool calls may get results in this run, and so may the
    ``answerable`` calls, which an earlier run made whether or not the request repeats them. With
    ``thread_id`` and ``run_id`` the boundary events must carry them; without, RUN_FINISHED must
    agree with RUN_STARTED. With ``enforce=False`` only `run-ended` is refused, but everything is
    still tracked, so the run can be closed. ``debug`` adds what is open to every refusal.
    """

    __slots__ = ("_ledger",)

    def __init__(
        self,
        input_messages: Sequence[Message] = (),
        *,
        thread_id: str | None = None,
        run_id: str | None = None,
        enforce: bool = True,
        debug: bool = False,
        answerable: Collection[str] = (),
    ) -> None:
        self._ledger = Ledger(input_messages, thread_id, run_id, enforce, debug, answerable=answerable)

    @property
    def terminated(self) -> bool:
        """Whether RUN_FINISHED or RUN_ERROR was accepted; nothing is accepted any more."""
        return self._ledger.terminated

    @property
    def open_items(self) -> tuple[OpenItem, ...]:
        """Everything open, in opening order; RUN_ERROR leaves it as it was."""
        return self._ledger.open_items()

    @property
    def unanswered_calls(self) -> tuple[str, ...]:
        """Ids of tool calls this run opened and closed that have no result, in opening order.

        A call that is opened again after its result asks again.
        """
        opened = self._ledger.open
        return tuple(call for call in self._ledger.unanswered if ("tool-call", call, None) not in opened)

    def forget_unanswered(self) -> None:
        """No call so far waits for a result any more: a new attempt of the run makes its own."""
        self._ledger.unanswered.clear()

    def closing_events(
        self, *, subagent_code: str = "CANCELLED", subagent_message: str = "The subagent was stopped."
    ) -> list[Event]:
        """Events that close everything open, last opened first; this verifier accepts them in that order.

        They are not observed here. Empty after the terminal event.
        """
        if self._ledger.terminated:
            return []
        return [
            closing_event(item, subagent_code=subagent_code, subagent_message=subagent_message)
            for item in reversed(self._ledger.open_items())
        ]

    def observe(self, event: Event) -> None:
        """Accept the run's next event, or refuse it and stay as before.

        Raises VerificationError for an event that breaks a rule and TypeError for something that
        is not one of the protocol's events.
        """
        ledger = self._ledger
        if ledger.terminated:
            raise ledger.refusal(Rule.RUN_ENDED, event, "the run has its terminal event")
        check = _CHECKS.get(type(event))
        if check is None:
            check = _CHECKS[type(event)] = check_for(event)
        check(ledger, event)
