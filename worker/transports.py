"""Which exception classes of which client libraries mean what: one table of names, no library imported.

A class is found by its root package and its own name, because libraries move classes between
private submodules. A subclass, also one of an agent's own, counts as what it derives from.
"""

from __future__ import annotations

from enum import Enum

# What a table entry says about an exception of that class.
#   TIMEOUT      the provider did not answer in time
#   ERROR        the provider could not be reached, or its answer broke off
#   STATUS       the provider answered with an error
#   UNREACHABLE  an ERROR although the class derives from a timeout class
#   MAYBE_*      only if a transport raised it: the agent's own tools raise the same class


class Meaning(Enum):
    """What a class of the table says."""

    TIMEOUT = "timeout"
    ERROR = "error"
    STATUS = "status"
    UNREACHABLE = "unreachable"
    MAYBE_TIMEOUT = "maybe timeout"
    MAYBE_ERROR = "maybe error"


_Meanings = dict[Meaning, tuple[str, ...]]

_HTTPX: _Meanings = {
    Meaning.TIMEOUT: ("TimeoutException",),
    Meaning.ERROR: ("RequestError",),
    Meaning.STATUS: ("HTTPStatusError",),
}
_HTTPCORE: _Meanings = {
    Meaning.TIMEOUT: ("TimeoutException",),
    Meaning.ERROR: ("NetworkError", "ProtocolError", "ProxyError", "ConnectionNotAvailable"),
}
_SDK: _Meanings = {
    Meaning.TIMEOUT: ("APITimeoutError",),
    Meaning.ERROR: ("APIConnectionError", "WebSocketConnectionClosedError"),
    Meaning.STATUS: ("APIStatusError", "APIError"),
}
_BY_PACKAGE: dict[str, _Meanings] = {
    "httpx": _HTTPX,
    "httpx2": _HTTPX,
    "httpcore": _HTTPCORE,
    "httpcore2": _HTTPCORE,
    "openai": _SDK,
    "anthropic": _SDK,
    "requests": {
        Meaning.TIMEOUT: ("Timeout",),
        Meaning.ERROR: ("ConnectionError", "ChunkedEncodingError", "ContentDecodingError"),
        Meaning.STATUS: ("HTTPError",),
    },
    "urllib3": {
        Meaning.TIMEOUT: ("ReadTimeoutError", "ConnectTimeoutError", "EmptyPoolError"),
        Meaning.UNREACHABLE: ("NewConnectionError", "NameResolutionError"),
        Meaning.ERROR: ("ProtocolError", "MaxRetryError", "SSLError", "ProxyError", "DecodeError"),
    },
    "urllib.error": {Meaning.ERROR: ("URLError",), Meaning.STATUS: ("HTTPError",)},
    "http.client": {Meaning.ERROR: ("HTTPException",)},
    "aiohttp": {
        Meaning.TIMEOUT: ("ServerTimeoutError", "ConnectionTimeoutError", "SocketTimeoutError"),
        Meaning.ERROR: ("ClientConnectionError", "ClientPayloadError"),
        Meaning.STATUS: ("ClientResponseError",),
    },
    "botocore": {
        Meaning.TIMEOUT: ("ConnectTimeoutError", "ReadTimeoutError"),
        Meaning.ERROR: (
            "HTTPClientError",
            "ConnectionError",
            "ConnectionClosedError",
            "EndpointConnectionError",
        ),
        Meaning.STATUS: ("ClientError",),
    },
    "google.genai": {Meaning.STATUS: ("APIError",)},
    "google.api_core": {
        Meaning.TIMEOUT: ("DeadlineExceeded",),
        Meaning.ERROR: ("ServiceUnavailable",),
        Meaning.STATUS: ("GoogleAPICallError",),
    },
    "grpc": {Meaning.TIMEOUT: ("FutureTimeoutError",), Meaning.STATUS: ("RpcError",)},
    "redis": {Meaning.TIMEOUT: ("TimeoutError",), Meaning.ERROR: ("ConnectionError",)},
    "websockets": {
        Meaning.ERROR: ("ConnectionClosed", "InvalidMessage"),
        Meaning.STATUS: ("InvalidStatus",),
    },
    "builtins": {Meaning.MAYBE_TIMEOUT: ("TimeoutError",), Meaning.MAYBE_ERROR: ("ConnectionError",)},
    "socket": {Meaning.MAYBE_ERROR: ("gaierror", "herror")},
    "ssl": {Meaning.MAYBE_ERROR: ("SSLError",)},
    "asyncio": {Meaning.MAYBE_ERROR: ("IncompleteReadError",)},
}

MEANINGS: dict[tuple[str, str], Meaning] = {
    (package, name): meaning
    for package, meanings in _BY_PACKAGE.items()
    for meaning, names in meanings.items()
    for name in names
}
"""(root package, class name) -> what it says."""

# Wrappers that keep the real reason in their __context__ or in an argument instead of __cause__.
_WRAPPERS = frozenset(
    {
        ("requests", "RequestException"),
        ("urllib3", "ProtocolError"),
        ("urllib3", "MaxRetryError"),
        ("urllib.error", "URLError"),
        ("openai", "APIConnectionError"),
        ("anthropic", "APIConnectionError"),
        ("botocore", "HTTPClientError"),
    }
)

_OWNERS = frozenset(_BY_PACKAGE) - {"builtins", "socket", "ssl", "asyncio"} | {"urllib.request"}
"""Packages whose frames show that a transport raised a builtin exception."""

# Third-party modules that stand between a transport and the socket, or around anybody's code.
_NEUTRAL = frozenset(
    {"anyio", "sniffio", "async_timeout", "h11", "h2", "certifi", "truststore", "aiohappyeyeballs"}
)

_NESTED = ("google.genai", "google.api_core", "http.client", "urllib.request", "urllib.error")


def package_of(module: str) -> str:
    """The package under which the table lists a module."""
    for nested in _NESTED:
        if module == nested or module.startswith(nested + "."):
            return nested
    return module.partition(".")[0]


def meaning_of(kind: type[BaseException]) -> Meaning | None:
    """What the table says about a class; a timeout wins over everything it also derives from."""
    found = [MEANINGS[name] for name in _names(kind) if name in MEANINGS]
    if Meaning.UNREACHABLE in found:
        return Meaning.ERROR
    if Meaning.TIMEOUT in found:
        return Meaning.TIMEOUT
    return found[0] if found else None


def hides_its_reason(kind: type[BaseException]) -> bool:
    """Whether exceptions of this class keep what really happened in __context__ or an argument."""
    return any(name in _WRAPPERS for name in _names(kind))


def is_transport(module: str) -> bool:
    """Whether a frame of this module is a transport's."""
    return package_of(module) in _OWNERS


def is_neutral(module: str, stdlib: frozenset[str]) -> bool:
    """Whether a frame of this module says nothing about who wanted the call."""
    root = module.partition(".")[0]
    return root in stdlib or root in _NEUTRAL


def _names(kind: type[BaseException]) -> list[tuple[str, str]]:
    return [(package_of(parent.__module__), parent.__qualname__) for parent in kind.__mro__]
