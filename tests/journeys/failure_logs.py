"""A pytest hook for folders whose tests run stacks; their conftest imports it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.journeys.stack import Stack


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failure shows the ends of all logs."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        for stack in Stack.open_stacks:
            report.sections.append((f"logs in {stack.folder}", stack.report()))
