"""The audit as a file."""

from __future__ import annotations

import csv
import io
import json

from shared.store.audit import Entry
from tests.web.operators import Desk, desk
from tests.web.played_worker import problem_of
from web.ops import board

__all__ = ["desk"]

RUN = f"b1{'0' * 26}"


def test_every_entry_is_a_line_newest_first_beyond_one_page(desk: Desk, monkeypatch):
    monkeypatch.setattr(board, "AUDIT_PAGE", 3)
    for number in range(8):
        desk.store.audit.write(Entry("cancel", "olga", "requested", reason=f"n{number}"))
    answer = desk.viewer.get("/ops/api/audit/export")
    assert answer.content_type == "application/x-ndjson"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="audit.ndjson"'
    assert [json.loads(line)["reason"] for line in answer.text.splitlines()] == [
        f"n{number}" for number in reversed(range(8))
    ]


def test_the_table_has_a_heading_and_no_formula(desk: Desk):
    desk.store.audit.write(
        Entry("cancel", "=cmd()", "requested", run=RUN, reason='a "b", c', roles=("operator",))
    )
    desk.store.audit.write(Entry("bulk_cancel", "olga", "running", counts={"total": 3}))
    answer = desk.viewer.get("/ops/api/audit/export?format=csv")
    assert answer.content_type == "text/csv; charset=utf-8"
    counted, formula = list(csv.DictReader(io.StringIO(answer.text)))
    assert json.loads(counted["counts"]) == {"total": 3}
    assert (formula["by"], formula["reason"], formula["run"]) == ("'=cmd()", 'a "b", c', RUN)


def test_an_empty_audit_is_an_empty_file(desk: Desk):
    assert desk.viewer.get("/ops/api/audit/export").text == ""
    assert desk.viewer.get("/ops/api/audit/export?format=csv").text.count("\n") == 1


def test_other_forms_and_other_people_are_refused(desk: Desk):
    problem_of(desk.viewer.get("/ops/api/audit/export?format=xml"), 400, "INVALID_INPUT")
    problem_of(desk.ann.get("/ops/api/audit/export"), 403, "FORBIDDEN")
