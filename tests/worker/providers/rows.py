"""What really reaches agent code: (client, case) -> class, beside the code that the run gets for the case."""

from __future__ import annotations

from dataclasses import dataclass

from shared.runs.outcome import FailureCode
from tests.stalling_provider import Fault

# Too long for the name system, so that it fails on this machine, without a question to anybody.
UNKNOWN_NAME = ".".join(["nobody-" + "x" * 50] * 4) + "." + "x" * 15 + ".invalid"
BIG = "x" * 8_000_000
"""More than fits into the buffers between two sockets."""

SHORT, LONG = 0.5, 20.0


@dataclass(frozen=True)
class Case:
    """One way to fail, and the code of a run whose agent lets it escape."""

    code: FailureCode
    fault: Fault | None = None
    scheme: str = "http"
    body: str = "hi"

    @property
    def seconds(self) -> float:
        """Every wait's time limit: short where it is to run out."""
        return SHORT if self.code is FailureCode.TRANSPORT_TIMEOUT else LONG


_TIMEOUT, _ERROR, _STATUS = (
    FailureCode.TRANSPORT_TIMEOUT,
    FailureCode.TRANSPORT_ERROR,
    FailureCode.PROVIDER_ERROR,
)
CASES: dict[str, Case] = {
    "connect": Case(_TIMEOUT, Fault.FULL),
    "handshake": Case(_TIMEOUT, Fault.SILENT, "https"),
    "read": Case(_TIMEOUT, Fault.SILENT),
    "mid-stream": Case(_TIMEOUT, Fault.STALL),
    "write": Case(_TIMEOUT, Fault.DEAF, body=BIG),
    "408": Case(_STATUS, Fault.STATUS_408),
    "429": Case(_STATUS, Fault.STATUS_429),
    "503": Case(_STATUS, Fault.STATUS_503),
    "504": Case(_STATUS, Fault.STATUS_504),
    "524": Case(_STATUS, Fault.STATUS_524),
    "error-event": Case(_STATUS, Fault.ERROR_EVENT),
    "refused": Case(_ERROR, Fault.REFUSED),
    "no-name": Case(_ERROR),
    "reset": Case(_ERROR, Fault.RESET_BEFORE),
    "reset-mid": Case(_ERROR, Fault.RESET_AFTER),
    "closed": Case(_ERROR, Fault.CLOSE_BEFORE),
    "closed-mid": Case(_ERROR, Fault.CLOSE_AFTER),
    "no-http": Case(_ERROR, Fault.GARBAGE),
    "no-tls": Case(_ERROR, Fault.GARBAGE, "https"),
}

_ALL_STATUSES = "408 429 503 504 524"
_UNREACHED = "reset closed no-http refused no-name no-tls"
_UNREACHED_AND_BROKEN = f"{_UNREACHED} reset-mid closed-mid"


def _httpx(package: str) -> dict[str, str]:
    return {
        f"{package}.ConnectTimeout": "connect handshake",
        f"{package}.ReadTimeout": "read mid-stream",
        f"{package}.WriteTimeout": "write",
        f"{package}.HTTPStatusError": _ALL_STATUSES,
        f"{package}.ConnectError": "refused no-name no-tls",
        f"{package}.ReadError": "reset reset-mid",
        f"{package}.RemoteProtocolError": "closed closed-mid no-http",
    }


_REQUESTS = {
    "requests.ConnectTimeout": "connect",
    "requests.ReadTimeout": "handshake read",
    "requests.ConnectionError": "mid-stream write refused no-name reset closed no-http",
    "requests.HTTPError": _ALL_STATUSES,
    "requests.ChunkedEncodingError": "reset-mid closed-mid",
    "requests.SSLError": "no-tls",
}
_AIOHTTP = {
    "aiohttp.ClientResponseError": f"{_ALL_STATUSES} no-http",
    "aiohttp.ClientConnectorError": "refused",
    "aiohttp.ClientConnectorDNSError": "no-name",
    "aiohttp.ClientConnectorSSLError": "no-tls",
    "aiohttp.ClientOSError": "reset",
    "aiohttp.ServerDisconnectedError": "closed",
    "aiohttp.ClientPayloadError": "reset-mid closed-mid",
}
_OPENAI_STATUSES = {
    "openai.APIStatusError": "408",
    "openai.RateLimitError": "429",
    "openai.InternalServerError": "503 504 524",
    "openai.APIError": "error-event",
}
_OPENAI = {
    "openai.APITimeoutError": "connect handshake read mid-stream write",
    **_OPENAI_STATUSES,
    "openai.APIConnectionError": _UNREACHED_AND_BROKEN,
}
_ANTHROPIC = {
    "anthropic.APITimeoutError": "connect handshake read write",
    "httpx2.ReadTimeout": "mid-stream",
    "anthropic.RequestTimeoutError": "408",
    "anthropic.RateLimitError": "429",
    "anthropic.ServiceUnavailableError": "503",
    "anthropic.GatewayTimeoutError": "504",
    "anthropic.InternalServerError": "524",
    "anthropic.APIStatusError": "error-event",
    "anthropic.APIConnectionError": _UNREACHED,
    "httpx2.ReadError": "reset-mid",
    "httpx2.RemoteProtocolError": "closed-mid",
}
_GENAI_STATUSES = {
    "google.genai.ClientError": "408 429",
    "google.genai.ServerError": "503 504 524 error-event",
}
_GENAI = {
    **{kind: cases for kind, cases in _httpx("httpx2").items() if "Status" not in kind},
    **_GENAI_STATUSES,
}
_BOTO3 = {
    "botocore.ConnectTimeoutError": "connect",
    "botocore.ReadTimeoutError": "handshake read mid-stream",
    "botocore.ClientError": _ALL_STATUSES,
    "botocore.EndpointConnectionError": "refused no-name",
    # Also for a write timeout, which it hides in its context.
    "botocore.ConnectionClosedError": "write reset reset-mid closed closed-mid no-http",
    "botocore.SSLError": "no-tls",
}

SEEN: dict[str, dict[str, str]] = {
    "httpx": _httpx("httpx"),
    "httpx async": _httpx("httpx"),
    "httpx2": _httpx("httpx2"),
    "httpx2 async": _httpx("httpx2"),
    "requests": _REQUESTS,
    "requests, Retry(1)": {
        **_REQUESTS,
        "requests.ReadTimeout": "",
        "requests.ConnectionError": "handshake read mid-stream write refused no-name reset closed no-http",
    },
    "urllib3, retries=False": {
        "urllib3.ConnectTimeoutError": "connect",
        "urllib3.ReadTimeoutError": "handshake read mid-stream",
        "urllib3.ProtocolError": "write reset reset-mid closed closed-mid no-http",
        "urllib3.NewConnectionError": "refused",
        "urllib3.NameResolutionError": "no-name",
        "urllib3.SSLError": "no-tls",
    },
    "urllib3, Retry(1)": {
        "urllib3.MaxRetryError": f"connect handshake read write {_UNREACHED}",
        "urllib3.ReadTimeoutError": "mid-stream",
        "urllib3.ProtocolError": "reset-mid closed-mid",
    },
    "urllib.request": {
        "builtins.TimeoutError": "read mid-stream",
        "urllib.error.URLError": "connect handshake write refused no-name no-tls",
        "urllib.error.HTTPError": _ALL_STATUSES,
        "builtins.ConnectionResetError": "reset reset-mid",
        "http.client.RemoteDisconnected": "closed",
        "http.client.IncompleteRead": "closed-mid",
        "http.client.BadStatusLine": "no-http",
    },
    "http.client": {
        "builtins.TimeoutError": "connect handshake read mid-stream write",
        "builtins.ConnectionRefusedError": "refused",
        "socket.gaierror": "no-name",
        "builtins.ConnectionResetError": "reset reset-mid",
        "http.client.RemoteDisconnected": "closed",
        "http.client.IncompleteRead": "closed-mid",
        "http.client.BadStatusLine": "no-http",
        "ssl.SSLError": "no-tls",
    },
    "aiohttp total": {"builtins.TimeoutError": "connect handshake read mid-stream write", **_AIOHTTP},
    # Nothing but `total` bounds a write.
    "aiohttp sock_connect, sock_read": {
        "aiohttp.ConnectionTimeoutError": "connect handshake",
        "aiohttp.SocketTimeoutError": "read mid-stream",
        **_AIOHTTP,
    },
    "openai": _OPENAI,
    "openai async": _OPENAI,
    # Whatever keeps aiohttp from connecting is called a timeout, and nothing bounds a write.
    "openai async, aiohttp": {
        "openai.APITimeoutError": "connect handshake read mid-stream refused no-name no-tls reset closed",
        **_OPENAI_STATUSES,
        "openai.APIConnectionError": "reset-mid closed-mid",
        "aiohttp.ClientResponseError": "no-http",
    },
    "anthropic": _ANTHROPIC,
    "anthropic async": _ANTHROPIC,
    "anthropic .stream()": _ANTHROPIC,
    "anthropic async .stream()": _ANTHROPIC,
    "google-genai": _GENAI,
    "google-genai async, aiohttp": {
        "builtins.TimeoutError": "connect handshake read mid-stream write",
        **_GENAI_STATUSES,
        **_AIOHTTP,
        "aiohttp.ClientResponseError": "no-http",
    },
    "google-genai async, httpx2": _GENAI,
    "boto3 converse": _BOTO3,
    "boto3 converse_stream": {
        **_BOTO3,
        "botocore.ReadTimeoutError": "handshake read",
        "botocore.ConnectionClosedError": "write reset closed no-http",
        "urllib3.ReadTimeoutError": "mid-stream",
        "urllib3.ProtocolError": "reset-mid closed-mid",
        "botocore.EventStreamError": "error-event",
    },
}
"""client -> class -> the cases in which it escapes; a case that is missing raises nothing."""

TABLE = [
    (client, case, kind)
    for client, kinds in SEEN.items()
    for kind, cases in kinds.items()
    for case in cases.split()
]
