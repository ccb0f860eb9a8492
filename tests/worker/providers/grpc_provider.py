"""A gRPC service that fails on purpose; messages are plain bytes, so that nothing has to be generated."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from tests.worker.providers.http_clients import library

SERVICE = "outlast.Stalling"


class GrpcProvider:
    """Methods of the service: ``Silent``, ``Whole``, ``Stall``, and ``Say<STATUS>`` for every status."""

    def __init__(self) -> None:
        self._grpc = library("grpc")
        self._over = threading.Event()
        self._server = self._grpc.server(ThreadPoolExecutor(16))
        self._server.add_generic_rpc_handlers((_Handler(self),))
        self.port: int = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.vanish()

    def vanish(self) -> None:
        """Ends all calls and the server at once."""
        stopped = self._server.stop(None)
        self._over.set()
        stopped.wait(5)

    def handler(self, method: str) -> Any:
        """The handler of a method by its last name."""
        if method in {"Stall", "Whole"}:
            return self._grpc.unary_stream_rpc_method_handler(self._stream(whole=method == "Whole"))
        return self._grpc.unary_unary_rpc_method_handler(self._answer(method))

    def _stream(self, *, whole: bool) -> Any:
        def told(request: bytes, call: Any) -> Iterator[bytes]:
            yield b"first"
            if not whole:
                self._over.wait()

        return told

    def _answer(self, method: str) -> Any:
        def told(request: bytes, call: Any) -> bytes:
            if method == "Silent":
                self._over.wait()
                return b""
            call.abort(self._grpc.StatusCode[method.removeprefix("Say")], "the upstream timed out")
            raise AssertionError("abort raises")

        return told


class _Handler:
    """What grpc asks for the handler of a call."""

    def __init__(self, provider: GrpcProvider) -> None:
        self._provider = provider

    def service(self, details: Any) -> Any:
        return self._provider.handler(details.method.rpartition("/")[2])
