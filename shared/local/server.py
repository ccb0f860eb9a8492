"""The embedded Redis-compatible server of one data folder: attach to it, start it, stop it.

Whoever comes first starts it, others attach; the last one who leaves stops it. All of that is decided under a
lock on a file in the folder, so any number of processes may come at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from urllib.parse import quote, unquote

from shared.local.program import ServerProgram, find_program

LONGEST_SOCKET_PATH = 100
"""Bytes; macOS takes 103 and Linux 107."""

START_SECONDS = 60.0
"""A large append-only file takes its time to load."""

STOP_SECONDS = 30.0
ANSWER_SECONDS = 2.0


class ServerStartError(RuntimeError):
    """The server did not come up; the text carries the last lines of its log."""


class EmbeddedServer:
    """A server with its data in ``folder``, reached by a Unix socket, or on loopback if ``port`` is given.

    Port 0 takes a free one and keeps it over restarts. Data survives a restart: append-only file, flushed
    every second; no eviction. The server runs in a session of its own: a terminal's Ctrl-C does not reach it.
    """

    def __init__(
        self, folder: Path, *, port: int | None = None, program: ServerProgram | None = None
    ) -> None:
        self.folder = folder.absolute()
        self.program = program
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._use: IO[bytes] | None = None
        self._log = self.folder / "redis.log"
        self._socket = self._noted_socket() or _socket_path(self.folder)

    @property
    def url(self) -> str:
        """The address in the form that ``OUTLAST_REDIS_URL`` takes."""
        return f"redis://127.0.0.1:{self.port}/0" if self.port else f"unix://{quote(str(self._socket))}"

    @property
    def pid(self) -> int | None:
        """The live server's process id by its own word, or ``None`` when it does not answer."""
        value = self._info("process_id")
        return int(value) if value else None

    def is_running(self) -> bool:
        """Whether the server answers commands (a server that is still loading its data does not)."""
        return self._ask(b"PING").startswith(b"+PONG")

    @property
    def description(self) -> str:
        """What serves, for a person."""
        what = (
            f"{self.program.name} {self.program.version}" if self.program else "attached to the one that runs"
        )
        return f"{what}, data in {self.folder}"

    def is_gone(self) -> bool:
        """Whether no process listens (one that is busy or still loading does listen)."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(ANSWER_SECONDS)
            try:
                client.connect(str(self._socket))
            except (ConnectionRefusedError, FileNotFoundError):
                return True
            except OSError:
                return False
        return False

    def start(self) -> None:
        """Attach to the folder's live server, or start one and wait until it answers.

        Raises:
            NoServerProgramError: there is no program to start.
            ServerStartError: it ended, did not answer within a minute, or serves another port than asked.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock():
            if self.is_running():
                self._check_port()
            else:
                self._launch()
            self._take_use()
            (self.folder / "redis.url").write_text(self.url + "\n")

    def stop(self) -> None:
        """Leave; if nobody else uses the server, end it (its data is flushed) and wait until it is gone."""
        if not self.folder.is_dir():
            return
        with self._lock():
            if not self._drop_use():
                self._forget()
            else:
                self._end(signal.SIGTERM)
                (self.folder / "redis.url").unlink(missing_ok=True)
                if self._socket.parent != self.folder:
                    with suppress(OSError):
                        self._socket.parent.rmdir()

    def kill(self) -> None:
        """End the server as a crash would, whoever uses it; up to a second of writes is lost."""
        with self._lock():
            self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Bring the server back at the same address with its data: after a crash, or after ending it now."""
        with self._lock():
            self._end(signal.SIGTERM)
            self._launch()
            self._take_use()

    # --- launching and ending ---------------------------------------------------------------------------

    def _launch(self) -> None:
        program = self.program or find_program(self._noted_program())
        if self.port == 0:
            self.port = _free_port()
        _private_folder(self._socket.parent)
        with self._log.open("ab") as output:
            begin = output.tell()
            self._process = subprocess.Popen(
                [program.path, *self._options()],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.program = program
        self._wait_until_it_answers(self._process, program.name, begin)
        (self.folder / "redis.program").write_text(f"{program.path}\n")

    def _options(self) -> list[str]:
        pairs = {
            "port": str(self.port or 0),
            "bind": "127.0.0.1",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        return [word for name, value in pairs.items() for word in (f"--{name}", value)]

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes], name: str, begin: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self.is_running():
            code = process.poll()
            if code is None and time.monotonic() < deadline:
                time.sleep(0.01)
                continue
            if code is None:
                process.kill()
                process.wait()
            what = "did not answer in time" if code is None else f"ended with exit code {code}"
            lines = self._log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
            raise ServerStartError(
                f"{name} {what}. Its log, {self._log}, ends with:\n  " + "\n  ".join(lines[-6:])
            )

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        pid = process.pid if process is not None and process.poll() is None else self.pid
        for number in (how, signal.SIGKILL):
            if pid is None or not _send(pid, number):
                return
            deadline = time.monotonic() + STOP_SECONDS
            while time.monotonic() < deadline:
                if _is_gone(pid):
                    if process is not None:
                        process.wait()
                    return
                time.sleep(0.01)

    def _forget(self) -> None:
        """Leave the process to those who still use it."""
        if self._process is not None:
            # Or Python would complain of a child that nobody waited for.
            self._process.returncode = 0
            self._process = None

    def _check_port(self) -> None:
        serves = int(self._info("tcp_port") or 0)
        if self.port == 0 and serves:
            self.port = serves
        if self.port is not None and self.port != serves:
            raise ServerStartError(
                f"The server of {self.folder} already runs without port {self.port}; stop it first."
            )

    # --- who uses it ------------------------------------------------------------------------------------

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with (self.folder / "redis.lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _take_use(self) -> None:
        if self._use is None:
            self._use = (self.folder / "redis.users").open("ab")
            fcntl.flock(self._use, fcntl.LOCK_SH)

    def _drop_use(self) -> bool:
        """Let go, and tell whether nobody is left."""
        if self._use is not None:
            self._use.close()
            self._use = None
        with (self.folder / "redis.users").open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    # --- what the folder and the server say -------------------------------------------------------------

    def _noted_socket(self) -> Path | None:
        try:
            scheme, _, path = (self.folder / "redis.url").read_text().strip().partition("://")
        except OSError:
            return None
        return Path(unquote(path)) if scheme == "unix" else None

    def _noted_program(self) -> Path | None:
        """The program that wrote the data here: another one may be too old to read it."""
        if not (self.folder / "appendonlydir").is_dir():
            return None
        try:
            return Path((self.folder / "redis.program").read_text().strip())
        except OSError:
            return None

    def _info(self, name: str) -> str | None:
        for line in self._ask(b"INFO server").decode(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return value
        return None

    def _ask(self, command: bytes) -> bytes:
        """One inline command and its answer as it comes; empty when nobody answers."""
        answer = b""
        with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.settimeout(ANSWER_SECONDS)
            client.connect(str(self._socket))
            client.sendall(command + b"\r\nQUIT\r\n")
            while chunk := client.recv(65536):
                answer += chunk
        return answer


def _socket_path(folder: Path) -> Path:
    path = folder / "redis.sock"
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
        return path
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"outlast-{os.getuid()}-{digest}" / "redis.sock"


def _private_folder(folder: Path) -> None:
    """Make sure that the folder is ours: in a shared temp directory somebody else may have made it first."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.lstat()
    if folder.is_symlink() or facts.st_uid != os.getuid():
        raise ServerStartError(f"{folder} belongs to somebody else; the server's socket cannot live there.")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _is_gone(pid: int) -> bool:
    """Whether the process ended; a child of ours is reaped on the way, or it would seem to live on."""
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
