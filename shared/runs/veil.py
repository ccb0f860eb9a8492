"""What a record tells to whom: what agents and people said in a run is for those with the payload right."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shared.runs.access import Actor, may_see_payloads
from shared.runs.outcome import FailureCode
from shared.runs.record import RunRecord

HIDDEN = "(hidden: needs the right payloads)"

_ASKED = ("id", "reason", "expiresAt")
"""Members of a question to people that tell nothing of its content."""

_GROUP = re.compile(r" *[|+] ")
"""Before each line of an exception that is in a group."""

_FRAME = re.compile(r' *File "[^"]*", line \d+, in .*')
_STATUS = re.compile(r"provider status \d+")
_KIND = re.compile(r"([A-Za-z_][\w.]*)(: .*)?")


def public_to(actor: Actor, record: RunRecord) -> dict[str, Any]:
    """The public record as this actor may read it."""
    return _for(actor, record, record.public())


def operator_view_to(actor: Actor, record: RunRecord) -> dict[str, Any]:
    """The operators' record as this one may read it."""
    return _for(actor, record, record.operator_view())


def _for(actor: Actor, record: RunRecord, shown: dict[str, Any]) -> dict[str, Any]:
    return shown if may_see_payloads(actor, record.identity.actor) else veiled(shown)


def veiled(shown: Mapping[str, Any]) -> dict[str, Any]:
    """A record's document without what was asked of people and without the words of exceptions."""
    told = dict(shown)
    outcome = told.get("outcome") or {}
    if "interrupts" in outcome:
        told["outcome"] = {"type": outcome.get("type"), "interrupts": asked(outcome["interrupts"])}
    # The detail of a lost worker was written by an operator or a sweep, every other by an exception.
    if "detail" in told and told.get("code") != FailureCode.WORKER_LOST:
        told["detail"] = bare_traceback(str(told["detail"]))
    return told


def asked(interrupts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Questions to people without their content."""
    return [{name: one[name] for name in _ASKED if name in one} for one in interrupts]


def bare_traceback(text: str) -> str:
    """Where exceptions were raised and of which kind, without their words, which may quote anything."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        bare = _GROUP.sub("", line, count=1)
        if not kept and _STATUS.fullmatch(bare):
            kept.append(bare)
        elif bare.endswith("Traceback (most recent call last):") or _FRAME.fullmatch(bare):
            inside = True
            kept.append(line)
        elif inside and not bare.startswith(" "):
            inside = False
            kind = _KIND.fullmatch(bare)
            kept.append(f"{line[: len(line) - len(bare)]}{kind[1]}: {HIDDEN}" if kind else HIDDEN)
    return "\n".join(kept) or HIDDEN
