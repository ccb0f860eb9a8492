"""Tables in the docs come from code."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_DOCS = Path(__file__).parents[2] / "docs"
_SPEC = importlib.util.spec_from_file_location("docs_tables", _DOCS / "tables.py")
tables = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(tables)


@pytest.mark.parametrize("page", sorted(tables.TABLES))
def test_the_tables_of_a_page_are_those_of_the_code(page):
    assert (_DOCS / page).read_text() == tables.rendered(page)
