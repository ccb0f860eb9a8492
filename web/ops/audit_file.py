"""The audit as a file to keep elsewhere: one JSON object or one CSV line per entry."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

from flask import Response, stream_with_context

from web.ops.board import Board
from web.problems import Code, Problem

COLUMNS = (
    *("at", "by", "roles", "action", "result", "run", "bulk", "worker", "filter"),
    *("reason", "detail", "counts", "request_id", "id"),
)


def answer(board: Board, form: str) -> Response:
    """Every entry, newest first; raises the 400 for a form that is none."""
    if form not in {"ndjson", "csv"}:
        raise Problem(Code.INVALID_INPUT, "format must be ndjson or csv.", field="format")
    entries = board.whole_audit()
    # Asked here, so that a Redis that is away answers with its refusal and not with half a file.
    first = next(entries, None)
    every = chain([] if first is None else [first], entries)
    lines = _csv(every) if form == "csv" else (f"{json.dumps(each, ensure_ascii=False)}\n" for each in every)
    kind = "text/csv; charset=utf-8" if form == "csv" else "application/x-ndjson"
    response = Response(stream_with_context(lines), content_type=kind)
    response.headers["Content-Disposition"] = f'attachment; filename="audit.{form}"'
    return response


def _csv(entries: Iterator[dict[str, Any]]) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(COLUMNS)
    for entry in entries:
        writer.writerow([_cell(entry.get(name)) for name in COLUMNS])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    # A spreadsheet would take it for a formula.
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text
