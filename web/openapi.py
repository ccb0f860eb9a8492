"""The OpenAPI 3.1 document, generated from the routes and from what each view declares about itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flask import Flask
from pydantic import TypeAdapter
from werkzeug.routing import Rule

from shared.protocol.events import Event, RunAgentInput
from web import schemas
from web.problems import KINDS, Code
from web.schemas import Schema

VERSION = "3.1.0"
_ATTRIBUTE = "openapi_operation"
_LEFT_OUT = "outlast-openapi-left-out"
_ARGUMENT = re.compile(r"<(?:[^:<>]+:)?([^<>]+)>")

View = TypeVar("View", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query value or a header that a view reads."""

    name: str
    schema: Schema
    description: str
    place: str = "query"

    def document(self) -> Schema:
        return {"name": self.name, "in": self.place, "description": self.description, "schema": self.schema}


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer: media type -> schema, and the headers it carries."""

    description: str
    content: dict[str, Schema] = field(default_factory=dict)
    headers: tuple[str, ...] = ()

    def document(self) -> Schema:
        shown: Schema = {"description": self.description}
        if self.content:
            shown["content"] = {kind: {"schema": schema} for kind, schema in self.content.items()}
        if self.headers:
            shown["headers"] = {name: {"schema": schemas.TEXT} for name in self.headers}
        return shown


@dataclass(frozen=True, slots=True)
class Operation:
    """What a view declares: the method's meaning, what it reads, what it answers, how it refuses."""

    summary: str
    tag: str
    answers: dict[int, Answer]
    parameters: tuple[Parameter, ...] = ()
    body: Schema | None = None
    body_required: bool = True
    problems: tuple[Code, ...] = ()
    public: bool = False


def operation(declared: Operation) -> Callable[[View], View]:
    """Declares a view for the document."""

    def mark(view: View) -> View:
        setattr(view, _ATTRIBUTE, declared)
        return view

    return mark


def leave_out(app: Flask, blueprint: str) -> None:
    """Keeps a blueprint's routes out of the document: pages for people, and their files."""
    app.extensions[_LEFT_OUT] = app.extensions.get(_LEFT_OUT, frozenset()) | {blueprint}


def document(app: Flask) -> Schema:
    """The whole document; a view that declares nothing is listed with its docstring."""
    paths: dict[str, Schema] = {}
    hidden = app.extensions.get(_LEFT_OUT, frozenset())
    for rule in sorted(app.url_map.iter_rules(), key=lambda rule: rule.rule):
        if rule.endpoint.partition(".")[0] in hidden:
            continue
        view = app.view_functions[rule.endpoint]
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            path = _ARGUMENT.sub(r"{\1}", rule.rule)
            paths.setdefault(path, {})[method.lower()] = _operation(rule, method, view)
    return {
        "openapi": VERSION,
        "info": {
            "title": "Outlast",
            "version": "1.0",
            "description": "A durable run executor for AG-UI agents. Every refusal has the form of Problem.",
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": _components(),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key or a signed token (JWT).",
                }
            },
        },
    }


def _operation(rule: Rule, method: str, view: Callable[..., Any]) -> Schema:
    declared: Operation = getattr(view, _ATTRIBUTE, None) or _undeclared(view)
    shown: Schema = {
        "operationId": f"{method.lower()}_{rule.endpoint.replace('.', '_')}",
        "summary": declared.summary,
        "tags": [declared.tag],
        "parameters": [
            *(_path_parameter(name) for name in _ARGUMENT.findall(rule.rule)),
            *(parameter.document() for parameter in declared.parameters),
        ],
        "responses": {str(status): answer.document() for status, answer in declared.answers.items()}
        | _refusals(declared),
    }
    if declared.body is not None:
        shown["requestBody"] = {
            "required": declared.body_required,
            "content": {"application/json": {"schema": declared.body}},
        }
    if declared.public:
        shown["security"] = []
    return shown


def _undeclared(view: Callable[..., Any]) -> Operation:
    first_line = (inspect.getdoc(view) or "Undescribed.").split("\n", 1)[0]
    return Operation(first_line, "operations", {200: Answer("As the summary says.")})


_PATH_ARGUMENTS = {
    "agent": "The name of an agent, as GET /agents lists it.",
    "thread": "The thread id, percent-encoded; one that holds a slash travels by run key only.",
    "run": "The run id, percent-encoded; one that holds a slash travels by run key only.",
    "key": "The run key, as the record and the header Outlast-Run-Key name it.",
}


def _path_parameter(name: str) -> Schema:
    shown: Schema = {"name": name, "in": "path", "required": True, "schema": schemas.TEXT}
    return shown | ({"description": _PATH_ARGUMENTS[name]} if name in _PATH_ARGUMENTS else {})


def _refusals(declared: Operation) -> Schema:
    always: Iterable[Code] = () if declared.public else (Code.UNAUTHENTICATED, Code.FORBIDDEN)
    store: Iterable[Code] = () if declared.public else (Code.STORE_UNAVAILABLE,)
    by_status: dict[int, list[Code]] = {}
    for code in (*always, *declared.problems, *store):
        by_status.setdefault(KINDS[code].status, []).append(code)
    return {
        str(status): {
            "description": " · ".join(f"{code}: {KINDS[code].title}" for code in codes),
            "content": {"application/json": {"schema": schemas.ref("Problem")}},
        }
        for status, codes in sorted(by_status.items())
    }


def _components() -> dict[str, Schema]:
    shapes, definitions = TypeAdapter.json_schemas(
        [
            ("input", "validation", TypeAdapter(RunAgentInput)),
            ("event", "serialization", TypeAdapter(Event)),
        ],
        ref_template="#/components/schemas/{model}",
    )
    components: dict[str, Schema] = {**definitions["$defs"], "Event": shapes["event", "serialization"]}
    identifiers = components["RunAgentInput"]["properties"]
    for name in ("threadId", "runId"):
        identifiers[name] |= {"minLength": 1, "maxLength": 256}
    return components | schemas.COMPONENTS
