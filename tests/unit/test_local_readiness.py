from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from shared.local.readiness import free_port, http_answers, redis_listens, worker_is_seen


@contextmanager
def serving(status: int, body: object = None):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_refusal_is_no_answer_and_a_redirect_is_one():
    for status in (200, 303):
        with serving(status) as port:
            assert http_answers(port, "/health/live")
    with serving(404) as port:
        assert not http_answers(port, "/ops/")
    with serving(503) as port:
        assert not http_answers(port, "/health/live")
    assert not http_answers(port, "/health/live")


def test_a_worker_is_seen_when_the_web_server_does_not_miss_one():
    with serving(200, {"status": "ready"}) as port:
        assert worker_is_seen(port)
    with serving(200, {"status": "ready", "warnings": [{"topic": "redis", "sentence": "…"}]}) as port:
        assert worker_is_seen(port)
    with serving(200, {"status": "ready", "warnings": [{"topic": "worker", "sentence": "…"}]}) as port:
        assert not worker_is_seen(port)
    with serving(503, {"status": "unavailable"}) as port:
        assert not worker_is_seen(port)
    with serving(200, "not an object") as port:
        assert not worker_is_seen(port)


def test_a_taken_port_is_passed_over():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) not in {port, None}


def test_whether_a_redis_address_listens(redis_server, tmp_path):
    assert redis_listens(redis_server.url)
    assert not redis_listens(f"unix://{tmp_path}/none.sock")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert redis_listens(f"redis://:secret@127.0.0.1:{port}/0")
    assert not redis_listens(f"redis://127.0.0.1:{port}/0")
