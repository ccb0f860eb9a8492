"""A proxy before Redis that loses answers on demand: the command is carried out, its answer never arrives."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote


class CutProxy:
    """Listens on loopback; while ``cuts`` is positive, the answer to a command with ``marker`` is lost."""

    def __init__(self, url: str) -> None:
        self.target = Path(unquote(url.removeprefix("unix://")))
        self.cuts = 0
        self.marker = b"EVALSHA"
        self.cut = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def close(self) -> None:
        self._listener.close()
        for each in self._sockets:
            with suppress(OSError):
                each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self.target))
                self._sockets += [client, server]
                state: dict[str, bool] = {"cut": False}
                threading.Thread(target=self._up, args=(client, server, state), daemon=True).start()
                threading.Thread(target=self._down, args=(client, server, state), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket, state: dict[str, bool]) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 20):
                if self.cuts > 0 and self.marker in data:
                    self.cuts -= 1
                    state["cut"] = True
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _down(self, client: socket.socket, server: socket.socket, state: dict[str, bool]) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 20):
                if state["cut"]:
                    self.cut += 1
                    break
                client.sendall(data)
        for each in (client, server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
