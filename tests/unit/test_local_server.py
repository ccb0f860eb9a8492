from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil
import pytest

from shared.local import server as server_module
from shared.local.program import ServerProgram, bundled_program
from shared.local.server import EmbeddedServer, ServerStartError


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="outlast-") as path:
        yield Path(path)


@pytest.fixture
def server(folder):
    made = EmbeddedServer(folder)
    made.start()
    yield made
    made.stop()


def ask(server: EmbeddedServer, *words: str) -> bytes:
    """One command over the address that the server gives out."""
    parts = urlsplit(server.url)
    if parts.scheme == "unix":
        client = socket.socket(socket.AF_UNIX)
        client.connect(unquote(parts.path))
    else:
        client = socket.create_connection((parts.hostname, parts.port))
    with client:
        client.settimeout(5)
        client.sendall((" ".join(words) + "\r\nQUIT\r\n").encode())
        return b"".join(iter(lambda: client.recv(65536), b""))


def setting(server: EmbeddedServer, name: str) -> str:
    return ask(server, "CONFIG", "GET", name).decode().split("\r\n")[4]


def test_data_is_kept_safe_and_the_socket_is_private(server, folder):
    assert setting(server, "appendonly") == "yes"
    assert setting(server, "appendfsync") == "everysec"
    assert setting(server, "maxmemory-policy") == "noeviction"
    assert setting(server, "port") == "0"
    assert stat.S_IMODE((folder / "redis.sock").stat().st_mode) == 0o700


def test_it_runs_in_a_session_of_its_own(server):
    assert os.getsid(server.pid) == server.pid


def test_data_survives_a_stop(folder):
    server = EmbeddedServer(folder)
    server.start()
    ask(server, "SET", "kept", "yes")
    server.stop()
    server.start()
    assert b"yes" in ask(server, "GET", "kept")
    server.stop()


def test_after_a_kill_it_comes_back_at_the_same_address_with_flushed_data(server):
    before = server.url
    ask(server, "SET", "kept", "yes")
    ask(server, "BGREWRITEAOF")
    pid = server.pid
    server.restart()
    server.kill()
    assert not server.is_running()
    assert server.is_gone()
    server.restart()
    assert server.url == before
    assert server.pid != pid
    assert b"yes" in ask(server, "GET", "kept")


def test_a_stop_leaves_no_process_and_no_address(folder):
    server = EmbeddedServer(folder)
    server.start()
    pid = server.pid
    assert (folder / "redis.url").read_text().strip() == server.url
    server.stop()
    assert not psutil.pid_exists(pid)
    assert not (folder / "redis.url").exists()


def test_a_second_user_attaches_and_the_last_one_stops_it(server, folder):
    second = EmbeddedServer(folder)
    second.start()
    assert second.pid == server.pid
    second.stop()
    assert server.is_running()


def test_the_one_who_started_it_may_leave_first(folder):
    first, second = EmbeddedServer(folder), EmbeddedServer(folder)
    first.start()
    second.start()
    first.stop()
    assert second.is_running()
    second.stop()
    assert second.is_gone()


STARTER = """
import sys
from pathlib import Path
from shared.local.server import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]))
server.start()
print(server.pid, flush=True)
sys.stdin.read()
server.stop()
"""


def test_six_starters_at_once_start_one(folder):
    command = [sys.executable, "-c", STARTER, str(folder)]
    starters = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)
    ]
    pids = {int(starter.stdout.readline()) for starter in starters}
    for starter in starters:
        starter.communicate("")
    assert len(pids) == 1
    assert not psutil.pid_exists(pids.pop())
    assert [starter.returncode for starter in starters] == [0] * 6


def test_a_long_path_gets_a_short_private_socket_elsewhere(folder):
    deep = folder / ("deep" * 30)
    server = EmbeddedServer(deep)
    server.start()
    path = Path(unquote(urlsplit(server.url).path))
    assert len(os.fsencode(path)) <= server_module.LONGEST_SOCKET_PATH
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert (deep / "redis.url").read_text().strip() == server.url
    assert EmbeddedServer(deep).is_running()
    server.stop()
    assert not path.parent.exists()


def test_a_socket_folder_of_somebody_else_is_refused(folder, monkeypatch):
    deep = folder / ("deep" * 30)
    elsewhere = folder / "theirs"
    elsewhere.mkdir()
    (folder / "link").symlink_to(elsewhere)
    monkeypatch.setattr(server_module, "_socket_path", lambda _: folder / "link" / "redis.sock")
    with pytest.raises(ServerStartError, match="somebody else"):
        EmbeddedServer(deep).start()


def test_a_port_is_kept_over_restarts(folder):
    server = EmbeddedServer(folder, port=0)
    server.start()
    before = server.url
    assert ask(server, "PING").startswith(b"+PONG")
    server.kill()
    server.restart()
    assert server.url == before
    assert ask(server, "PING").startswith(b"+PONG")
    server.stop()


def test_a_running_server_without_the_wanted_port_is_a_sentence(server, folder):
    with pytest.raises(ServerStartError, match="without port 6399"):
        EmbeddedServer(folder, port=6399).start()


def test_a_server_that_cannot_start_tells_the_end_of_its_log(folder):
    aof = folder / "appendonlydir"
    aof.mkdir()
    (aof / "appendonly.aof.manifest").write_text("nonsense\n")
    server = EmbeddedServer(folder)
    with pytest.raises(ServerStartError) as caught:
        server.start()
    assert "manifest" in str(caught.value)
    assert "redis.log" in str(caught.value)


def test_the_program_that_wrote_the_data_is_used_again(folder):
    bundled = bundled_program()
    server = EmbeddedServer(folder, program=ServerProgram(bundled, "9"))
    server.start()
    server.stop()
    again = EmbeddedServer(folder)
    again.start()
    assert again.program.path == bundled
    again.stop()
