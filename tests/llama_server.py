"""llama.cpp's own HTTP server, as a process: ``python tests/llama_server.py MODEL`` prints its address."""

from __future__ import annotations

import signal
import sys

import xllamacpp

KEY = "plain-words-key"
"""What the server wants to see of a client."""


def main(model: str) -> None:
    """Serves one model on a free port of the loopback until SIGTERM."""
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"tiny"}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 8192
    params.n_parallel = 2
    params.cpuparams.n_threads = 1
    params.warmup = False
    params.use_jinja = True
    params.endpoint_slots = True
    params.api_keys = [KEY]
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main(sys.argv[1])
