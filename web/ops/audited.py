"""What every action of an operator has in common: a role it needs, and an entry in the audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from shared.logs import get_logger
from shared.runs.access import Actor, Role
from shared.runs.identity import KEY_PATTERN
from shared.runs.record import RunRecord
from shared.runs.veil import operator_view_to
from shared.store.audit import Entry
from shared.store.bulk import Bulk
from shared.store.errors import StoreError
from web.ops.rights import require
from web.problems import Code, Problem
from web.services import Services

T = TypeVar("T")

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """What an action came to: one word, a sentence for people, and the run as it stands afterwards."""

    action: str
    result: str
    detail: str
    record: RunRecord | None = None

    def document(self, actor: Actor) -> dict[str, Any]:
        """As the API answers it to this actor."""
        shown: dict[str, Any] = {"action": self.action, "result": self.result, "detail": self.detail}
        return shown | ({"run": operator_view_to(actor, self.record)} if self.record else {})


class Audited:
    """One actor's actions within one request. They raise ``Problem`` when refused, and ``StoreError``."""

    def __init__(self, services: Services, actor: Actor, request_id: str | None = None) -> None:
        self.services = services
        self.store = services.store
        self.actor = actor
        self.request_id = request_id

    def audited(self, action: str, role: Role, act: Callable[[], T], **target: Any) -> T:
        """Carries out an action and writes down what came of it; a failed one is audited if Redis lets us."""
        named = target.get("run")
        if named is not None and not KEY_PATTERN.fullmatch(named):
            # No key of Redis can be made of it.
            target = target | {"run": None}
        try:
            require(self.actor, role)
            done = act()
        except Problem as problem:
            self._write(action, "refused", target | {"detail": f"{problem.code}: {problem.detail}"})
            raise
        except StoreError as error:
            try:
                self._write(action, "failed", target | {"detail": type(error).__name__})
            except StoreError:
                log.warning("audit.not_written", action=action, by=self.actor.name, **_logged(target))
            raise
        self._write(action, *_told(done, target))
        return done

    def _write(self, action: str, result: str, target: dict[str, Any]) -> None:
        log.info("operator.acted", action=action, by=self.actor.name, result=result, **_logged(target))
        roles = tuple(sorted(map(str, self.actor.roles)))
        self.store.audit.write(
            Entry(action, self.actor.name, result, request_id=self.request_id, roles=roles, **target)
        )

    def run(self, key: str) -> RunRecord:
        """The run of this key; raises the 404."""
        found = self.store.runs.get(key) if KEY_PATTERN.fullmatch(key) else None
        if found is None:
            raise unknown_run()
        return found


def _told(done: object, target: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(done, Bulk):
        counts = {"matched": done.matched, "total": done.total} | done.counts
        return done.state, target | {"bulk": done.bulk_id, "counts": counts}
    if isinstance(done, Done):
        retry = done.record.key if done.action == "retry" and done.record else None
        return done.result, target | {"detail": f"{done.detail} {retry}" if retry else done.detail}
    return "done", target


def _logged(target: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in target.items() if name in {"run", "bulk", "worker", "filter"}}


def unknown_run() -> Problem:
    """The 404 for a key that names no run."""
    return Problem(Code.UNKNOWN_RUN, "There is no such run; ended ones are kept for the retention time.")
