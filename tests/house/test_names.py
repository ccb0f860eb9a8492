"""The file list is the architecture: one noun per file, and none that could hold anything."""

from __future__ import annotations

from pathlib import PurePosixPath

FORBIDDEN = {"base_utils", "common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}


def test_no_module_or_folder_is_named_for_anything_and_nothing(texts):
    found = [
        path
        for path in texts
        if path.endswith(".py") and {*PurePosixPath(path).with_suffix("").parts} & FORBIDDEN
    ]
    assert found == []


def test_a_test_folder_has_no_init_because_it_would_shadow_a_room(texts):
    assert [path for path in texts if path.startswith("tests/") and path.endswith("__init__.py")] == []


def test_no_room_has_a_module_that_only_python_could_read(texts):
    """Underscored modules hide a room's structure; a private name belongs inside a module."""
    rooms = ("shared/", "worker/", "web/")
    modules = [PurePosixPath(path) for path in texts if path.startswith(rooms) and path.endswith(".py")]
    known = {"__init__", "__main__"}
    assert [str(path) for path in modules if path.stem.startswith("_") and path.stem not in known] == []
