"""The Lua scripts, one file each, one typed attribute each; a script the server forgot is loaded again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from redis.exceptions import NoScriptError, RedisError

from shared.store.connection import Client

_FOLDER = Path(__file__).parent / "lua"
_INCLUDES = {
    "accept": ("_now", "_tally", "_server", "_open"),
    "claim": ("_now", "_tally", "_server", "_open"),
    "release": ("_now", "_open"),
    "retry": ("_now",),
    "expire": ("_now", "_open"),
    "survey": ("_now", "_server"),
    "append": ("_now", "_tally"),
    "finish": ("_now", "_tally", "_open", "_end"),
}

Argument = str | bytes | int | float


def execute(client: Any, *command: Argument) -> Any:
    """Sends one raw command; the client library leaves it untyped."""
    return client.execute_command(*command)


class Script:
    """One script; ``run`` asks at once, ``command`` is for a pipeline."""

    def __init__(self, name: str) -> None:
        body = (_FOLDER / f"{name}.lua").read_text()
        shebang, rest = body.split("\n", 1) if body.startswith("#!") else ("", body)
        shared = "".join((_FOLDER / f"{part}.lua").read_text() for part in _INCLUDES.get(name, ("_now",)))
        self.name = name
        self.text = f"{shebang}\n{shared}{rest}" if shebang else shared + rest
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def command(self, keys: Sequence[str], arguments: Sequence[Argument]) -> tuple[Argument, ...]:
        """The EVALSHA command."""
        return ("EVALSHA", self.digest, len(keys), *keys, *arguments)

    def run(self, client: Client, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Runs the script, loading it first when the server does not have it."""
        try:
            return execute(client, *self.command(keys, arguments))
        except NoScriptError:
            self.load(client)
            return execute(client, *self.command(keys, arguments))

    def load(self, client: Client) -> None:
        """Puts the script into the server's cache."""
        execute(client, "SCRIPT LOAD", self.text)


class Scripts:
    """All scripts by name."""

    def __init__(self) -> None:
        self.accept = Script("accept")
        self.claim = Script("claim")
        self.append = Script("append")
        self.page = Script("page")
        self.lead = Script("lead")
        self.beat = Script("beat")
        self.finish = Script("finish")
        self.release = Script("release")
        self.retry = Script("retry")
        self.request_cancel = Script("request_cancel")
        self.fence = Script("fence")
        self.renew = Script("renew")
        self.calling = Script("calling")
        self.survey = Script("survey")
        self.expire = Script("expire")
        self.terminate = Script("terminate")
        self.retried = Script("retried")
        self.live = Script("live")
        self.minutes = Script("minutes")
        self.search = Script("search")


@cache
def scripts() -> Scripts:
    """The scripts, read from disk once per process."""
    return Scripts()


def run_pipelined(
    client: Client, script: Script, calls: Sequence[tuple[Sequence[str], Sequence[Argument]]]
) -> list[Any]:
    """Runs one script many times in one round trip; an answer may be a ``RedisError`` instance.

    Raises the connection's own errors, after which no answer is known.
    """
    answers: list[Any] = []
    for _ in range(2):
        pipeline = client.pipeline(transaction=False)
        for keys, arguments in calls:
            execute(pipeline, *script.command(keys, arguments))
        answers = list(pipeline.execute(raise_on_error=False))
        if not any(isinstance(answer, NoScriptError) for answer in answers):
            break
        script.load(client)
    return answers


def run_each(
    client: Client, script: Script, calls: Sequence[tuple[Sequence[str], Sequence[Argument]]]
) -> list[Any]:
    """The same where one failure is a failure of all: raises the first error among the answers."""
    answers = run_pipelined(client, script, calls)
    for answer in answers:
        if isinstance(answer, RedisError):
            raise answer
    return answers
