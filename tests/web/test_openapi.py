"""The OpenAPI document: valid, complete, and true of what is sent."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask import Flask
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from shared.protocol.events import EventType
from shared.runs.outcome import FailureCode, Outcome
from tests.web.played_worker import Caller, PlayedWorker, events_of, key_of, run_input
from web.identity import SESSION_PAGES
from web.problems import KINDS, Code


@pytest.fixture
def document(app: Flask) -> dict[str, Any]:
    return app.test_client().get("/openapi.json").get_json()


def _check(document: dict[str, Any], name: str, body: Any) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    Draft202012Validator(schema).validate(body)


def test_the_document_is_valid_openapi(document: dict[str, Any]):
    assert document["openapi"].startswith("3.1")
    OpenAPIV31SpecValidator(document).validate()


def test_every_route_and_method_but_the_pages_for_people_is_in_it(app: Flask, document: dict[str, Any]):
    routes = {
        (re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule), method.lower())
        for rule in app.url_map.iter_rules()
        if not rule.endpoint.startswith(f"{SESSION_PAGES}.")
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    described = {(path, method) for path, item in document["paths"].items() for method in item}
    assert described == routes
    assert ("/ops/api/runs", "get") in described


def test_every_operation_has_a_summary_and_an_id_of_its_own(document: dict[str, Any]):
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    assert all(operation["summary"] for operation in operations)
    assert len({operation["operationId"] for operation in operations}) == len(operations)


def test_the_stream_is_described_as_the_union_of_all_events(document: dict[str, Any]):
    stream = document["paths"]["/agents/{agent}"]["post"]["responses"]["200"]["content"]["text/event-stream"]
    assert stream["schema"] == {"$ref": "#/components/schemas/Event"}
    named = set(document["components"]["schemas"]["Event"]["discriminator"]["mapping"])
    assert named == {kind.value for kind in EventType}


def test_what_is_sent_fits_what_is_described(caller: Caller, worker: PlayedWorker, document: dict[str, Any]):
    _check(document, "RunAgentInput", run_input())
    _check(document, "Agents", caller.get("/agents").get_json())
    _check(document, "Run", caller.start_in_background().get_json())
    worker.claim(key_of("run"))
    _check(document, "CancelRequested", caller.post("/threads/thread/runs/run/cancel").get_json())
    caller.start_in_background(run_input("failed", "other"))
    worker.run(key_of("failed", "other"), "x", outcome=Outcome.failed(FailureCode.AGENT_ERROR, incident="i"))
    path = "/threads/other/runs/failed"
    _check(document, "Run", caller.get(path).get_json())
    _check(document, "Runs", caller.get("/runs?limit=1").get_json())
    _check(document, "Events", caller.get(f"{path}/events?limit=1", Accept="application/json").get_json())
    _check(document, "Problem", caller.post(f"{path}/cancel").get_json())
    for _, event in events_of(caller.get(f"{path}/events")):
        _check(document, "Event", event)


def test_every_code_has_its_place_in_the_table():
    assert set(KINDS) == set(Code)
    assert all(kind.retry_after for kind in KINDS.values() if kind.status in {429, 503})
