"""The committed gunicorn configuration."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys

import pytest
from gunicorn.app.wsgiapp import WSGIApplication


@pytest.fixture
def config(root, monkeypatch):
    """gunicorn's own reading of the file, as it finds it in the working folder."""
    monkeypatch.chdir(root)
    monkeypatch.setattr(sys, "argv", ["gunicorn"])
    for name in ("WEB_CONCURRENCY", "PORT", "GUNICORN_CMD_ARGS"):
        monkeypatch.delenv(name, raising=False)
    return WSGIApplication("%(prog)s").cfg


def test_streams_are_greenlets_of_one_process(config):
    assert config.worker_class_str == "gevent"
    assert config.workers == 1
    assert config.worker_connections >= 5000


def test_the_app_is_loaded_after_gevent_has_patched(config):
    assert config.wsgi_app == "web:create_app()"
    assert config.preload_app is False


def test_no_control_socket_is_opened(config):
    assert config.control_socket_disable is True


def test_a_stop_is_quick(config):
    assert config.graceful_timeout == 5


def test_gunicorn_accepts_the_file_and_the_app(root):
    done = subprocess.run(
        [sys.executable, "-m", "gunicorn", "--check-config"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


APP = """
import threading
ended = threading.Event()
class Streams:
    def serving(self):
        pass

    def close(self):
        # As the hub does: a thread, whose start waits for it.
        threading.Thread(target=ended.set).start()
def stream():
    yield b": begun\\n\\n"
    ended.wait(30)
    yield b": ended\\n\\n"
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/event-stream")])
    return stream()
app.extensions = {"outlast": Streams()}
"""


@pytest.mark.parametrize("kind", ["gevent", "gthread"])
def test_a_stop_ends_open_streams_at_once(root, tmp_path, eventually, kind):
    (tmp_path / "standin.py").write_text(APP)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["-c", str(root / "gunicorn.conf.py"), "-k", kind, "--threads", "4", "-b", f"127.0.0.1:{port}"]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", *options, "standin:app"], cwd=tmp_path, stderr=log
        )
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

    def opened():
        try:
            connection.request("GET", "/")
            return connection.getresponse()
        except OSError:
            connection.close()
            return None

    try:
        answer = eventually(opened)
        assert answer.readline() == b": begun\n"
        server.terminate()
        assert answer.read() == b"\n: ended\n\n"
        assert server.wait(10) == 0
        said = (tmp_path / "log").read_text()
        assert "Traceback" not in said
        assert "exited with code" not in said
    finally:
        connection.close()
        server.kill()
        server.wait()
