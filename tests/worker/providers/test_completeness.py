"""Every exception class of every client library stands in the table, or here, where it is the agent's."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from types import ModuleType

import pytest

from tests.worker.providers.http_clients import library
from worker import transports
from worker.transports import MEANINGS, Meaning, entry_of, package_of

# package -> where its exceptions live, as far as they reach its callers
MODULES: dict[str, tuple[str, ...]] = {
    "httpx": ("httpx",),
    "httpx2": ("httpx2",),
    "httpcore": ("httpcore",),
    "httpcore2": ("httpcore2",),
    "requests": ("requests.exceptions", "requests.cookies"),
    "urllib3": ("urllib3.exceptions",),
    "urllib.error": ("urllib.error",),
    "http.client": ("http.client",),
    "aiohttp": ("aiohttp", "aiohttp.client_exceptions", "aiohttp.http_exceptions", "aiohttp.http_websocket"),
    "openai": ("openai", "openai._exceptions"),
    "anthropic": ("anthropic", "anthropic._exceptions", "anthropic.types", "anthropic.lib.credentials"),
    "google.genai": ("google.genai.errors",),
    "google.auth": ("google.auth.exceptions",),
    "botocore": ("botocore.exceptions", "botocore.eventstream", "botocore.parsers"),
    "grpc": ("grpc", "grpc.aio"),
    "redis": ("redis.exceptions",),
    "websockets": ("websockets.exceptions",),
}

# package -> names or patterns of classes that say nothing about a transport: roots that are never raised
# themselves, misuse, configuration, credentials, values that do not parse, and the agent's own tools.
NOT_OURS: dict[str, list[str]] = {
    line.partition(": ")[0]: line.partition(": ")[2].split()
    for line in """
httpx: HTTPError InvalidURL CookieConflict StreamError StreamConsumed StreamClosed RequestNotRead
    ResponseNotRead
httpx2: HTTPError InvalidURL CookieConflict StreamError StreamConsumed StreamClosed RequestNotRead
    ResponseNotRead
requests: RequestException Invalid* *Warning CookieConflictError JSONDecodeError MissingSchema
    StreamConsumedError URLRequired UnrewindableBodyError
urllib3: HTTPError *Warning SystemTimeWarning PoolError FullPoolError ClosedPoolError RequestError
    HostChangedError BodyNotHttplibCompatible HeaderParsingError InvalidHeader Location*Error
    ProxyScheme* URLSchemeUnknown TimeoutStateError UnrewindableBodyError
aiohttp: ClientError InvalidURL InvalidUrlClientError NonHttpUrlClientError WSMessageTypeError
    Bad*Disposition* EofStream InvalidURLError
openai: OpenAIError _AmbiguousModuleClientUsageError *FinishReasonError InvalidWebhookSignatureError
    WebSocketQueueFullError SubjectTokenProviderError
anthropic: AnthropicError CredentialsError IdentityTokenFileError RetryableError
google.genai: FunctionInvocationError UnknownFunctionCallArgumentError UnsupportedFunctionError
    ContinuationInterruptedError ExperimentalWarning
google.auth: GoogleAuthError *Cred*Error ClientCertError Invalid* MalformedError OSError
    MutualTLSChannelError UserAccessTokenError
botocore: BotoCoreError Alias* *Version* *Config* *Credential* *Warning Invalid* Unknown*
    Unsupported* Missing* No* Login* SSO* Stub* UnStubbed* Undefined* *NotFound* Waiter*
    Endpoint*ProviderError AwsChunkedWrapperError BaseEndpointResolverError
    CapacityNotAvailableError EndpointResolutionError EndpointVariantError MD5UnavailableError
    MetadataRetrievalError OperationNotPageableError PaginationError ParamValidationError RangeError
    RefreshWithMFAUnsupportedError ServiceNotInRegionError TokenRetrievalError
    UnauthorizedSSOTokenError UnseekableStreamError ValidationError
grpc: FutureCancelledError BaseError InternalError UsageError AbortError
redis: RedisError ResponseError DataError PubSubError Lock*Error WatchError InvalidResponse
    InvalidPipelineStack ChildDeadlockedError *Cluster* *SlotNotCovered* *SlotTransaction*
    AuthenticationWrongNumberOfArgsError NoScriptError ReadOnlyError NoPermissionError ModuleError
    ExecAbortError OutOfMemoryError AskError MovedError TryAgainError MasterDownError *Fieldset*
    IncorrectPolicyType
websockets: WebSocketException ConcurrencyError InvalidState InvalidURI InvalidProxy
    TooManyFragments
""".replace("\n    ", " ")
    .strip()
    .splitlines()
}

# A class with such a name must be listed by it, never by a pattern.
TELLING = re.compile(
    r"Time|Deadline|Connect|Clos|Reset|Unavail|Unreach|Network|Read|Incomplete|Abort|Disconn"
)


def offered(module: ModuleType) -> Iterator[type[Exception]]:
    """The exception classes of its own library that a module offers."""
    own = package_of(module.__name__)
    for value in list(vars(module).values()):
        # Not isinstance: modules hold proxies that load themselves when they are asked what they are.
        if (
            issubclass(type(value), type)
            and issubclass(value, Exception)
            and package_of(value.__module__) == own
        ):
            yield value


def classes_of(package: str) -> set[type[Exception]]:
    for name in MODULES[package]:
        library(name)
    return {kind for name in MODULES[package] for kind in offered(importlib.import_module(name))}


def excused(package: str, kind: type[Exception]) -> bool:
    exact = bool(TELLING.search(kind.__name__))
    return any(
        kind.__name__ == pattern or (not exact and fnmatchcase(kind.__name__, pattern))
        for pattern in NOT_OURS.get(package, [])
    )


@pytest.mark.parametrize("package", MODULES)
def test_every_exception_class_of_a_library_is_in_a_row(package: str):
    classes = {kind for kind in classes_of(package) if "vendored" not in kind.__module__}
    assert classes
    unlisted = [kind for kind in classes if _own_entry(package, kind) is None and not excused(package, kind)]
    assert sorted(f"{kind.__module__}.{kind.__qualname__}" for kind in unlisted) == []


@pytest.mark.parametrize("package", MODULES)
def test_no_class_is_both_in_the_table_and_excused(package: str):
    both = [kind.__name__ for kind in classes_of(package) if (package, kind.__name__) in MEANINGS]
    assert [name for name in both if name in NOT_OURS.get(package, [])] == []


@pytest.mark.parametrize("package", MODULES)
def test_every_class_of_the_table_and_every_excuse_is_there(package: str):
    # Of both spellings of a library, one may have what the other has not; urllib3's are in two modules.
    names = {kind.__name__ for kind in classes_of(package)}
    listed = {name for owner, name in MEANINGS if owner == package}
    assert listed - names == set()
    patterns = NOT_OURS.get(package, [])
    assert [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)] == []


@pytest.mark.parametrize("package", MODULES)
def test_a_class_named_after_a_timeout_is_one_or_is_known_not_to_be(package: str):
    named = {
        kind.__name__
        for kind in classes_of(package)
        if re.search(r"Time(d)?_?Out", kind.__name__, re.IGNORECASE)
    }
    other = {
        kind.__name__
        for kind in classes_of(package)
        if kind.__name__ in named and transports.meaning_of(kind) is not Meaning.TIMEOUT
    }
    assert other == {
        "urllib3": {"TimeoutStateError"},
        "anthropic": {
            "GatewayTimeoutError",
            "RequestTimeoutError",
            "BetaRequestBodyTimeoutError",
        },
    }.get(package, set())


def test_every_package_of_the_table_is_searched_or_known_to_be_missing():
    packages = {package for package, _ in MEANINGS}
    builtin = {"builtins", "socket", "ssl", "asyncio"}
    # Not among the libraries of the tests: it comes with Google's own cloud clients only.
    assert packages - builtin - set(MODULES) == {"google.api_core"}


def _own_entry(package: str, kind: type[Exception]) -> tuple[str, str] | None:
    """The entry that a class belongs to, if it is one of its own library's."""
    entry = entry_of(kind)
    return entry if entry and entry[0] == package else None
