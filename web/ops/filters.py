"""Reads what an operator looks for from a query, a form or a JSON body."""

from __future__ import annotations

import math
from typing import Any

from werkzeug.datastructures import MultiDict

from shared.runs.attention import Kind
from shared.runs.lifecycle import Status
from shared.runs.outcome import FailureCode
from shared.store.search import Filter
from web import schemas
from web.openapi import Parameter
from web.problems import Code, Problem

_LISTS = ("status", "attention")
_TEXTS = ("agent", "actor", "thread", "code", "q")
_AGES = ("older_than", "newer_than")
_LONGEST = 512


def read_filter(args: MultiDict[str, str]) -> Filter:
    """The filter that a query or form names; blank values count as absent. Raises the 400 by field."""
    document: dict[str, Any] = {name: [word for word in args.getlist(name) if word] for name in _LISTS}
    document |= {name: args[name].strip() for name in (*_TEXTS, *_AGES) if args.get(name, "").strip()}
    return filter_from(document)


def filter_from(document: Any) -> Filter:
    """The filter that a JSON object names, members as in the query. Raises the 400 by field."""
    if not isinstance(document, dict):
        raise Problem(Code.INVALID_INPUT, "filter must be an object.", field="filter")
    unknown = set(document) - {*_LISTS, *_TEXTS, *_AGES}
    if unknown:
        # A misspelt member would widen what is stopped.
        name = min(unknown)
        raise Problem(Code.INVALID_INPUT, f"The filter does not know {name}.", field=name)
    texts = {name: _text(document, name) for name in _TEXTS}
    if texts["code"] is not None:
        _one_of([texts["code"]], "code", set(map(str, FailureCode)))
    return Filter(
        statuses=_one_of(_words(document, "status"), "status", set(map(str, Status))),
        attention=_one_of(_words(document, "attention"), "attention", set(map(str, Kind))),
        agent=texts["agent"],
        actor=texts["actor"],
        thread=texts["thread"],
        code=texts["code"],
        text=texts["q"],
        older_than=_seconds(document, "older_than"),
        newer_than=_seconds(document, "newer_than"),
    )


def _words(document: dict[str, Any], name: str) -> list[str]:
    value = document.get(name, [])
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(word, str) for word in listed):
        raise Problem(Code.INVALID_INPUT, f"{name} must be a word or a list of words.", field=name)
    return listed


def _one_of(words: list[str], name: str, known: set[str]) -> frozenset[str]:
    if not known.issuperset(words):
        allowed = ", ".join(sorted(known))
        raise Problem(Code.INVALID_INPUT, f"{name} must be one of {allowed}.", field=name)
    return frozenset(words)


def _text(document: dict[str, Any], name: str) -> str | None:
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise Problem(
            Code.INVALID_INPUT, f"{name} must be a text of at most {_LONGEST} characters.", field=name
        )
    return value or None


def _seconds(document: dict[str, Any], name: str) -> float | None:
    value = document.get(name)
    if value is None:
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if isinstance(value, bool) or not math.isfinite(seconds) or not 0 <= seconds <= 10**9:
        raise Problem(Code.INVALID_INPUT, f"{name} must be a number of seconds, 0 or more.", field=name)
    return seconds


def _listed(known: type[Status | Kind]) -> schemas.Schema:
    return {"type": "array", "items": {"type": "string", "enum": [str(word) for word in known]}}


PARAMETERS = (
    Parameter("status", _listed(Status), "Only runs with this status; may be repeated."),
    Parameter("attention", _listed(Kind), "Only live runs with this trouble; may be repeated."),
    Parameter("agent", schemas.TEXT, "Only runs of this agent."),
    Parameter("actor", schemas.TEXT, "Only runs of this actor."),
    Parameter("thread", schemas.TEXT, "Only runs of this thread id."),
    Parameter("code", schemas.TEXT, "Only runs that failed with this code."),
    Parameter("older_than", schemas.SECONDS, "Only runs accepted at least so many seconds ago."),
    Parameter("newer_than", schemas.SECONDS, "Only runs accepted at most so many seconds ago."),
    Parameter("q", schemas.TEXT, "Only runs whose run key, run id or thread id holds this text."),
)

FILTER: schemas.Schema = {
    "type": "object",
    "description": "What is looked for; members as in the query of GET /ops/api/runs.",
    "additionalProperties": False,
    "properties": {parameter.name: parameter.schema for parameter in PARAMETERS},
}
