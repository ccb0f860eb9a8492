"""Which exception classes of which client libraries mean what: one table of names, no library imported.

A class is found by its root package and its own name, because libraries move classes between
private submodules. The most specific listed class decides, so that a timeout which derives from a
connection error (openai, anthropic, requests) is a timeout, and a refused connection which derives
from a timeout (urllib3) is none. A class that is not listed, also one of an agent's own, counts as
what it derives from.
"""

from __future__ import annotations

from enum import Enum


class Meaning(Enum):
    """What a class of the table says.

    TIMEOUT: the provider did not answer in time. ERROR: it could not be reached, or its answer broke
    off. STATUS: it answered with an error. MISUSE: the agent's own mistake, whatever the base class
    says. MAYBE_*: as said if a transport raised it, since an agent's own tools raise the same class.
    """

    TIMEOUT = "timeout"
    ERROR = "error"
    STATUS = "status"
    MISUSE = "misuse"
    MAYBE_TIMEOUT = "maybe timeout"
    MAYBE_ERROR = "maybe error"


_Meanings = dict[Meaning, tuple[str, ...]]

_HTTPX: _Meanings = {
    Meaning.TIMEOUT: ("TimeoutException",),
    Meaning.ERROR: ("RequestError",),
    Meaning.STATUS: ("HTTPStatusError", "TooManyRedirects"),
    Meaning.MISUSE: ("UnsupportedProtocol",),
}
_HTTPCORE: _Meanings = {
    Meaning.TIMEOUT: ("TimeoutException",),
    Meaning.ERROR: ("NetworkError", "ProtocolError", "ProxyError", "ConnectionNotAvailable"),
    Meaning.MISUSE: ("UnsupportedProtocol",),
}
_SDK: _Meanings = {
    Meaning.TIMEOUT: ("APITimeoutError",),
    Meaning.ERROR: ("APIConnectionError",),
    Meaning.STATUS: ("APIError",),
}
_BY_PACKAGE: dict[str, _Meanings] = {
    "httpx": _HTTPX,
    "httpx2": _HTTPX,
    "httpcore": _HTTPCORE,
    "httpcore2": _HTTPCORE,
    "openai": {**_SDK, Meaning.ERROR: ("APIConnectionError", "WebSocketConnectionClosedError")},
    "anthropic": {**_SDK, Meaning.STATUS: ("APIError", "WorkloadIdentityError")},
    "requests": {
        Meaning.TIMEOUT: ("Timeout", "ConnectTimeout"),
        Meaning.ERROR: ("ConnectionError", "ChunkedEncodingError", "ContentDecodingError"),
        Meaning.STATUS: ("HTTPError", "RetryError", "TooManyRedirects"),
    },
    "urllib3": {
        Meaning.TIMEOUT: ("TimeoutError", "EmptyPoolError"),
        Meaning.ERROR: (
            "NewConnectionError",
            "ProtocolError",
            "MaxRetryError",
            "SSLError",
            "ProxyError",
            "DecodeError",
            "IncompleteRead",
            "InvalidChunkLength",
        ),
        Meaning.STATUS: ("ResponseError",),
        Meaning.MISUSE: ("ResponseNotChunked",),
    },
    "urllib.error": {Meaning.ERROR: ("URLError",), Meaning.STATUS: ("HTTPError",)},
    "http.client": {
        Meaning.ERROR: ("HTTPException", "RemoteDisconnected"),
        Meaning.MISUSE: ("InvalidURL",),
    },
    "aiohttp": {
        Meaning.TIMEOUT: ("ServerTimeoutError",),
        Meaning.ERROR: (
            "ClientConnectionError",
            "ClientPayloadError",
            "UploadAbortedError",
            "HttpProcessingError",
            "WebSocketError",
            "WSHandshakeError",
        ),
        Meaning.STATUS: ("ClientResponseError", "RedirectClientError"),
    },
    "botocore": {
        Meaning.TIMEOUT: ("ConnectTimeoutError", "ReadTimeoutError"),
        Meaning.ERROR: (
            "HTTPClientError",
            "ConnectionError",
            "ConnectionClosedError",
            "IncompleteReadError",
            "ChecksumError",
            "FlexibleChecksumError",
            "ParserError",
            "ResponseParserError",
        ),
        Meaning.STATUS: ("ClientError",),
    },
    "google.genai": {Meaning.ERROR: ("UnknownApiResponseError",), Meaning.STATUS: ("APIError",)},
    "google.auth": {
        Meaning.TIMEOUT: ("TimeoutError",),
        Meaning.ERROR: ("TransportError", "ResponseError"),
        Meaning.STATUS: ("RefreshError", "OAuthError"),
    },
    "google.api_core": {
        Meaning.TIMEOUT: ("DeadlineExceeded",),
        Meaning.ERROR: ("RetryError",),
        Meaning.STATUS: ("GoogleAPICallError",),
    },
    # What an RpcError says, its status decides: see `worker.failures`.
    "grpc": {Meaning.TIMEOUT: ("FutureTimeoutError",), Meaning.STATUS: ("RpcError",)},
    "redis": {Meaning.TIMEOUT: ("TimeoutError",), Meaning.ERROR: ("ConnectionError",)},
    "websockets": {
        Meaning.ERROR: ("ConnectionClosed", "InvalidHandshake", "ProtocolError", "PayloadTooBig"),
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

# Wrappers that keep their reason in __context__ or in an argument. Nothing else's __context__ counts:
# an agent that handled a timeout and then failed in its fallback has that timeout there.
_WRAPPERS = frozenset(
    {
        ("requests", "ConnectionError"),
        ("requests", "ChunkedEncodingError"),
        ("urllib3", "ProtocolError"),
        ("urllib3", "MaxRetryError"),
        ("urllib.error", "URLError"),
        ("openai", "APIConnectionError"),
        ("anthropic", "APIConnectionError"),
        ("botocore", "HTTPClientError"),
        ("botocore", "ConnectionClosedError"),
    }
)

_OWNERS = frozenset(_BY_PACKAGE) - {"builtins", "socket", "ssl", "asyncio"} | {"urllib.request"}
"""Packages whose frames show that a transport raised a builtin exception."""

# Third-party modules that stand between a transport and the socket, or around anybody's code.
_NEUTRAL = frozenset(
    {"anyio", "sniffio", "async_timeout", "h11", "h2", "certifi", "truststore", "aiohappyeyeballs"}
)

_NESTED = tuple(package for package in {*_OWNERS} if "." in package)


def package_of(module: str) -> str:
    """The package under which the table lists a module."""
    for nested in _NESTED:
        if module == nested or module.startswith(nested + "."):
            return nested
    return module.partition(".")[0]


def entry_of(kind: type[BaseException]) -> tuple[str, str] | None:
    """The most specific entry of the table that a class belongs to."""
    names = ((package_of(parent.__module__), parent.__qualname__) for parent in kind.__mro__)
    return next((name for name in names if name in MEANINGS), None)


def meaning_of(kind: type[BaseException]) -> Meaning | None:
    """What the table says about a class."""
    entry = entry_of(kind)
    return MEANINGS[entry] if entry else None


def hides_its_reason(kind: type[BaseException]) -> bool:
    """Whether exceptions of this class keep what really happened in __context__ or an argument."""
    return entry_of(kind) in _WRAPPERS


def is_transport(module: str) -> bool:
    """Whether a frame of this module is a transport's."""
    return package_of(module) in _OWNERS


def is_neutral(module: str, stdlib: frozenset[str]) -> bool:
    """Whether a frame of this module says nothing about who wanted the call."""
    root = module.partition(".")[0]
    return root in stdlib or root in _NEUTRAL
