"""The stock client that leaves in the middle of a run and comes back ends like one that never left."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.journeys.rich_run import BODIES, HISTORY, QUIET, STATE, event
from tests.journeys.stack import Stack
from tests.stock_client import ask, needs_client

pytestmark = [
    pytest.mark.timeout(300),
    needs_client,
]

SCRIPTS = [script for script in BODIES if script != "rich"]
FORMS = ["post", "snapshot", "connect", "fresh", "cursor"]


class Visitor:
    """One client of one run: after how many events it leaves, once or several times, and how it comes back.

    The run is held after ``hold`` events of its log until the answer to the last request has begun; without
    it runs as fast as it can.
    """

    def __init__(
        self, stack: Stack, script: str, form: str, *leave: int, hold: int | None = None, **plan: Any
    ) -> None:
        self.script, self.form, self.leave, self.hold = script, form, leave, hold
        self.after_the_end = plan.get("afterTheEnd", False)
        self.run = stack.prepare("plays")
        ending = "error" if script == "failed" else "success"
        props: dict[str, Any] = {"events": BODIES[script], "ending": ending}
        if hold is not None:
            plan["gate"] = str(stack.folder / f"gate-{self.run.run_id}")
            props |= {"hold": hold - 1, "gate": plan["gate"]}
        self.run.body |= {"messages": HISTORY, "state": STATE, "forwardedProps": props}
        names = ("threadId", "runId", "messages", "state", "forwardedProps")
        given = {name: self.run.body[name] for name in names}
        self.plan = {"agent": "plays", "form": form, "leave": leave, **given, **plan}
        self.seen: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<{self.script} by {self.form}: left after {self.leave}, held after {self.hold}>"

    def check(self, stayed: Visitor) -> None:
        """That nobody can tell it from the client that never left, and that the run ran once."""
        seen, expected = self.seen, stayed.seen
        assert "rejected" not in seen, (self, seen)
        assert seen["messages"] == expected["messages"], self
        assert seen["state"] == expected["state"], self
        assert set(seen["warnings"]) <= set(expected["warnings"]), self
        assert seen["events"][-1] == expected["events"][-1], (self, seen["events"])
        assert self.run.effects() == ["START", "END"], self
        self._check_ids(expected["ids"][-1])

    def _check_ids(self, total: int) -> None:
        """Only the prelude's last frame and what follows it have ids, from where the run stood."""
        ids = self.seen["ids"]
        if self.form == "cursor":
            assert ids == list(range(self.leave[-1] + 1, total + 1)), (self, ids)
            return
        numbered = [number for number in ids if number is not None]
        assert ids[: -len(numbered)] == [None] * (len(ids) - len(numbered)), (self, ids)
        assert len(ids) > len(numbered), (self, ids)
        assert numbered == list(range(numbered[0], total + 1)), (self, ids)
        if self.hold is not None:
            assert self.leave[0] <= numbered[0] <= self.hold, (self, ids)
        if self.after_the_end:
            assert numbered == [total], (self, ids)


def play(stack: Stack, visitors: list[Visitor]) -> None:
    """Has one Node process play them all, many at once."""
    asked = {"base": f"http://127.0.0.1:{stack.port}", "atOnce": 20, "plans": [one.plan for one in visitors]}
    told = ask("join.mjs", asked, seconds=250)
    assert told["nobodys"] == []
    for one, seen in zip(visitors, told["results"], strict=True):
        one.seen = seen


def places(script: str) -> range:
    """After how many events a client can leave: none to all but the terminal one."""
    return range(len(BODIES[script]) + 2)


def held(script: str, leave: int) -> int:
    """A place in the log at which the client has not read everything, in two of three cases."""
    return max(1, min(leave + leave % 3, len(BODIES[script]) + 1))


def cursor_in(leave: int) -> str:
    return "query" if leave % 2 else "header"


EVERYTHING = len(BODIES["rich"]) + 2
SPEAKING = event("TEXT_MESSAGE_CONTENT", messageId="x-sm", delta="sub", subagentRunId="x-s")
INSIDE = BODIES["rich"].index(SPEAKING) + 2
TOLD_INSIDE = 7
"""A prelude there: RUN_STARTED, messages, state; open are a call, a subagent, its step and message."""


@pytest.fixture(scope="module")
def visits(stack: Stack) -> dict[str, list[Visitor]]:
    """Clients of the rich run by what they do, ``stayed`` first; all played."""
    make = partial(Visitor, stack, "rich")
    groups = {"stayed": [make("post")], "fast": [make("post", at) for at in places("rich")]}
    for form in FORMS:
        groups[f"mid-run {form}"] = [
            make(form, at, hold=held("rich", at), cursorIn=cursor_in(at)) for at in places("rich")
        ]
        thinly = places("rich") if form == "post" else places("rich")[::6]
        groups[f"ended {form}"] = [
            make(form, at, afterTheEnd=True, cursorIn=cursor_in(at)) for at in [*thinly, EVERYTHING]
        ]
    groups["twice"] = [make("post", INSIDE, at, 1, hold=INSIDE) for at in range(TOLD_INSIDE + 1)]
    play(stack, [one for group in groups.values() for one in group])
    return groups


def test_the_rich_run_shows_a_client_everything_without_a_warning(visits: dict[str, list[Visitor]]):
    seen = visits["stayed"][0].seen
    assert {message["role"] for message in seen["messages"]} > {"reasoning", "assistant", "tool", "activity"}
    assert seen["state"] == {"by": "x", "list": [{"three": 3}]}
    assert seen["warnings"] == []


@pytest.mark.parametrize("form", FORMS)
def test_a_client_that_left_after_any_event_and_comes_back_in_mid_run_has_the_whole(
    visits: dict[str, list[Visitor]], form: str
):
    for one in visits[f"mid-run {form}"]:
        one.check(visits["stayed"][0])


@pytest.mark.parametrize("form", FORMS)
def test_a_client_that_comes_back_after_the_end_has_the_whole(visits: dict[str, list[Visitor]], form: str):
    for one in visits[f"ended {form}"]:
        one.check(visits["stayed"][0])


def test_a_client_of_a_fast_run_that_comes_back_whenever_has_the_whole(visits: dict[str, list[Visitor]]):
    for one in visits["fast"]:
        one.check(visits["stayed"][0])


def test_a_client_that_leaves_again_inside_what_it_is_told_on_return_has_the_whole(
    visits: dict[str, list[Visitor]],
):
    for one in visits["twice"]:
        one.check(visits["stayed"][0])
        assert one.seen["ids"].index(INSIDE) == TOLD_INSIDE - 1


def test_whatever_a_run_does_to_the_conversation_a_client_that_comes_back_has_the_whole(stack: Stack):
    stayed = {script: Visitor(stack, script, "post") for script in SCRIPTS}
    visitors = [
        Visitor(stack, script, FORMS[at % len(FORMS)], at, hold=held(script, at), cursorIn=cursor_in(at))
        for script in SCRIPTS
        for at in places(script)
    ]
    # Where the agent restates the conversation, what the client sends is not what was accepted.
    again = [Visitor(stack, "restated", "post", at, hold=held("restated", at)) for at in places("restated")]
    play(stack, [*stayed.values(), *visitors, *again])
    assert all(stayed[script].seen["warnings"] == [] for script in SCRIPTS if script in QUIET)
    for one in [*visitors, *again]:
        one.check(stayed[one.script])
