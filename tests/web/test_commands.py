"""The shell commands against a real Redis."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from flask import Flask

from shared.runs.access import Role
from shared.settings import child_environment
from shared.store.store import Store
from tests.web.producer import Producer

ROOT = Path(__file__).parents[2]
NO_RUN = "b0" + "a" * 26
Shell = Callable[..., Result]


@pytest.fixture
def shell(app: Flask) -> Shell:
    """``shell("runs", "list")`` runs a command and gives its result."""
    runner = app.test_cli_runner()
    return lambda *words: runner.invoke(args=words)


def test_runs_are_listed_newest_first(store: Store, shell: Shell, eventually: Callable[..., Any]) -> None:
    first = Producer(store, run_id="one", thread_id="a").start()
    before = store.runs.now_ms()
    eventually(lambda: store.runs.now_ms() > before + 1)
    second = Producer(store, run_id="two", thread_id="b").accept()
    lines = shell("runs", "list").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["KEY", "STATUS"],
        [second.key, "queued"],
        [first.key, "running"],
    ]


def test_a_list_is_filtered_and_bounded(store: Store, shell: Shell) -> None:
    running = Producer(store, run_id="one", thread_id="a").start()
    for n in range(4):
        Producer(store, run_id=f"q{n}", thread_id=f"q{n}").accept()
    listed = shell("runs", "list", "--status", "running", "--json").stdout.splitlines()
    assert [json.loads(line)["key"] for line in listed] == [running.key]
    assert len(shell("runs", "list", "--limit", "2", "--json").stdout.splitlines()) == 2
    assert len(shell("runs", "list", "--actor", "ada", "--json").stdout.splitlines()) == 5
    assert shell("runs", "list", "--actor", "bob", "--json").stdout == ""
    assert shell("runs", "list", "--agent", "other", "--json").stdout == ""


def test_a_run_is_shown_with_what_operators_may_read(store: Store, shell: Shell) -> None:
    run = Producer(store).start()
    shown = json.loads(shell("runs", "show", run.key, "--json").stdout)
    assert (shown["status"], shown["host"], shown["thread_id"]) == ("running", "h", "thread")
    assert ["key", run.key] in [line.split() for line in shell("runs", "show", run.key).stdout.splitlines()]


@pytest.mark.parametrize("command", ["show", "cancel", "events"])
def test_an_unknown_run_is_a_sentence_and_a_failure(shell: Shell, command: str) -> None:
    result = shell("runs", command, NO_RUN)
    assert result.exit_code == 1
    assert f"There is no run {NO_RUN}." in result.stderr
    assert shell("runs", command, "nonsense").exit_code == 2


def test_a_queued_run_is_cancelled_at_once(store: Store, shell: Shell) -> None:
    run = Producer(store).accept()
    result = shell("runs", "cancel", run.key, "--reason", "not needed")
    assert result.stdout == "The run ended: cancelled.\n"
    record = store.runs.get(run.key)
    assert record is not None
    assert (record.texts["cancel_by"], record.texts["cancel_reason"]) == ("shell", "not needed")


def test_a_running_run_is_asked_and_waited_for(
    store: Store, shell: Shell, eventually: Callable[..., Any]
) -> None:
    run = Producer(store).start()
    assert shell("runs", "cancel", run.key).stdout == "The run was asked to stop.\n"
    results: list[Result] = []
    waiting = threading.Thread(
        target=lambda: results.append(shell("runs", "cancel", run.key, "--wait", "10"))
    )
    waiting.start()
    run.finish()
    waiting.join(10)
    assert results[0].output in {"The run ended: succeeded.\n", "Error: The run had ended: succeeded.\n"}


def test_an_ended_run_is_not_cancelled(store: Store, shell: Shell) -> None:
    run = Producer(store).start()
    run.finish()
    result = shell("runs", "cancel", run.key)
    assert result.exit_code == 1
    assert "The run had ended: succeeded." in result.stderr


def test_events_are_printed_as_json_lines(store: Store, shell: Shell) -> None:
    run = Producer(store).start()
    run.say("a", "b")
    lines = [json.loads(line) for line in shell("runs", "events", run.key).stdout.splitlines()]
    assert [line["type"] for line in lines] == ["RUN_STARTED", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT"]
    assert json.loads(shell("runs", "events", run.key, "--after", "2").stdout)["delta"] == "b"


def test_events_are_followed_to_the_end(store: Store, shell: Shell) -> None:
    run = Producer(store).start()
    results: list[Result] = []
    following = threading.Thread(target=lambda: results.append(shell("runs", "events", run.key, "--follow")))
    following.start()
    run.say("later")
    run.finish()
    following.join(10)
    assert json.loads(results[0].stdout.splitlines()[-1])["type"] == "RUN_FINISHED"
    assert len(results[0].stdout.splitlines()) == 3


def test_a_sweep_from_the_shell_ends_a_lost_run(
    store: Store, shell: Shell, eventually: Callable[..., Any]
) -> None:
    run = Producer(store).start()

    def swept() -> bool:
        return shell("runs", "sweep").stdout == (
            "Ended 1 lost and 0 timed-out runs, put 0 back, enqueued 0 again, expired 0.\n"
        )

    eventually(swept, seconds=15, pause=0.3)
    record = store.runs.get(run.key)
    assert record is not None
    assert record.texts["code"] == "worker_lost"


def test_a_key_is_shown_once_and_can_be_revoked(store: Store, shell: Shell) -> None:
    made = shell("keys", "create", "ada", "--role", "operator", "--role", "payloads")
    secret = made.stdout.strip()
    found = store.api_keys.find(secret)
    assert found is not None
    assert (found.actor.name, found.actor.roles) == ("ada", {Role.OPERATOR, Role.PAYLOADS})
    listed = shell("keys", "list").stdout
    assert found.key_id in listed
    assert secret not in listed
    assert shell("keys", "revoke", found.key_id).exit_code == 0
    assert store.api_keys.find(secret) is None
    assert shell("keys", "revoke", found.key_id).exit_code == 1
    assert shell("keys", "create", "ada", "--role", "emperor").exit_code == 2
    assert shell("keys", "create", " ").exit_code == 2


def test_the_agents_of_the_workers_are_listed(store: Store, shell: Shell) -> None:
    assert shell("agents").exit_code == 1
    store.workers.beat("w@h", {"host": "h"}, {"echo": {"description": "Says it again.", "policy": "enqueue"}})
    assert "echo   enqueue  Says it again." in shell("agents").stdout


def test_without_redis_a_command_says_so_in_a_sentence(make_app: Callable[..., Flask]) -> None:
    app = make_app(redis_url="redis://127.0.0.1:1/0")
    for words in (("runs", "list"), ("keys", "list"), ("agents",)):
        result = app.test_cli_runner().invoke(args=words)
        assert result.exit_code == 1
        assert "Redis does not serve us: Redis cannot be reached" in result.stderr


def test_the_commands_are_found_by_the_flask_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flask", "--app", "web", "--help"],
        cwd=ROOT,
        env=child_environment(OUTLAST_AUTH="none"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"runs", "keys", "agents", "doctor"} <= {
        line.split()[0] for line in done.stdout.splitlines() if line.strip()
    }
