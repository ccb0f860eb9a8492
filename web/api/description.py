"""The description of this interface for programs."""

from __future__ import annotations

import json

from flask import Blueprint, Response, current_app, request

from web.api.answers import json_answer
from web.negotiation import JSON
from web.openapi import Answer, Operation, document, operation

blueprint = Blueprint("description", __name__)

_EXTENSION = "outlast-openapi"


@blueprint.get("/openapi.json")
@operation(
    Operation(
        "This document",
        "description",
        answers={200: Answer("OpenAPI 3.1.", {JSON: {"type": "object"}})},
        public=True,
    )
)
def openapi() -> Response:
    """The OpenAPI document, built once per process."""
    app = current_app
    if _EXTENSION not in app.extensions:
        app.extensions[_EXTENSION] = document(app._get_current_object())  # type: ignore[attr-defined] # noqa: SLF001
    described = {**app.extensions[_EXTENSION], "servers": [{"url": request.script_root or "/"}]}
    return json_answer(json.dumps(described).encode())
