"""What is asked before an action: one page for each, which a script may show as a dialog instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared.runs.access import Role
from web.ops.actions import Done, Operator
from web.ops.look import Look
from web.ops.rights import require

SHORT_KEY = 8
"""So many characters of a run key are typed where a slip of the hand must not be enough."""


@dataclass(frozen=True, slots=True)
class Act:
    """One action: what it is called, the role it needs, what it says before, and how it is done."""

    name: str
    role: Role
    title: str
    button: str
    sentence: str
    do: Callable[[Operator, str, str | None], Done]
    danger: bool = False
    reason: bool = True
    needs_why: bool = False
    typed: bool = False

    def typed_for(self, target: str) -> str | None:
        """What has to be typed before it is done, if anything."""
        return target[:SHORT_KEY] if self.typed else None


RUN_ACTS = {
    act.name: act
    for act in (
        Act(
            "cancel",
            Role.OPERATOR,
            "Cancel this run?",
            "Cancel the run",
            "The agent is asked to stop and may tidy up. A queued run ends at once; a running one shows "
            "“cancelling” until its outcome is recorded.",
            lambda operator, key, reason: operator.cancel(key, reason),
        ),
        Act(
            "terminate",
            Role.ADMIN,
            "Force this run to stop?",
            "Force stop",
            "The record ends now as cancelled. Tools that the agent called may have acted already.",
            lambda operator, key, reason: operator.terminate(key, reason),
            danger=True,
            needs_why=True,
        ),
        Act(
            "mark-lost",
            Role.ADMIN,
            "Mark this run as lost?",
            "Mark lost",
            "The record ends now as failed, worker_lost. No worker is told: should one still be at it, what "
            "it writes is refused, and its tools may go on acting. The sweep does the same once it is sure.",
            lambda operator, key, reason: operator.mark_lost(key, reason),
            danger=True,
            needs_why=True,
            typed=True,
        ),
        Act(
            "retry",
            Role.OPERATOR,
            "Retry as a new run?",
            "Retry as new run",
            "A new run of the same thread gets the same input. What the old one did, its tools may do again.",
            lambda operator, key, reason: operator.retry(key, reason),
        ),
        Act(
            "requeue",
            Role.OPERATOR,
            "Send the queue message again?",
            "Requeue",
            "For a queued run whose message was lost. Harmless otherwise: one message too many is dropped.",
            lambda operator, key, _reason: operator.requeue(key),
            reason=False,
        ),
    )
}

PLANT_ACTS = {
    act.name: act
    for act in (
        Act(
            "pause",
            Role.ADMIN,
            "Pause the intake?",
            "Pause",
            "No worker takes a run until you resume. Runs are still accepted and wait without timing out; "
            "running ones go on.",
            lambda operator, _target, reason: operator.pause(reason),
        ),
        Act(
            "resume",
            Role.ADMIN,
            "Resume the intake?",
            "Resume",
            "Workers take runs again.",
            lambda operator, _target, _reason: operator.resume(),
            reason=False,
        ),
        Act(
            "drain",
            Role.ADMIN,
            "Drain this worker?",
            "Drain",
            "It takes no more runs until it is undrained or restarted. The runs it has go on.",
            lambda operator, worker, reason: operator.drain(worker, reason),
        ),
        Act(
            "shutdown",
            Role.ADMIN,
            "Shut this worker down?",
            "Shut down",
            "It takes no more runs, and its process ends as after SIGTERM. Runs that go on past the drain "
            "time end as worker_shutdown. It comes back only if something starts it again.",
            lambda operator, worker, reason: operator.shut_down(worker, reason),
            danger=True,
        ),
        Act(
            "undrain",
            Role.ADMIN,
            "Let this worker take runs again?",
            "Undrain",
            "It takes runs from its next heartbeat on.",
            lambda operator, worker, _reason: operator.undrain(worker),
            reason=False,
        ),
    )
}


def question(look: Look, act: Act, target: str) -> dict[str, Any]:
    """What the confirmation says; raises the 403 for who may not do it."""
    require(look.actor, act.role)
    asked: dict[str, Any] = {"act": act, "target": target, "sentences": [act.sentence]}
    if act.name not in RUN_ACTS:
        return asked
    page = look.board.run(target)
    allowed = page["actions"][act.name.replace("-", "_")]
    asked["typed"] = act.typed_for(target)
    asked["run"] = page["run"]
    if act.name == "terminate" and "effect" in allowed:
        asked["sentences"].append(allowed["effect"])
    if not allowed["allowed"]:
        asked["refused"] = allowed["why"]
    return asked
