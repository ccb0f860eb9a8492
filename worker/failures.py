"""From whatever escaped an agent to a failure code and a sentence that a client may read.

    what escaped
     |-- not an Exception (SystemExit, KeyboardInterrupt, CancelledError ...)  AGENT_ERROR
     |-- AgentError, raised on purpose ......................................  AGENT_ERROR "agent error: ..."
     |-- UpstreamError, a generator's RUN_ERROR ..............................  its code or AGENT_ERROR
     |-- refused by the worker
     |    |-- VerificationError ...  PROTOCOL_VIOLATION
     |    |-- SerializationError ..  SERIALIZATION
     |    |-- ProtocolError, an AG-UI model's ValidationError ..............  PROTOCOL
     |    |-- EventBufferFull .....  EVENT_BUFFER_FULL
     |    |-- Cancelled ...........  CANCELLED      (whether the run *is* cancelled, its token decides)
     |    `-- Disconnected ........  DISCONNECTED
     |-- the innermost of its causes that is in the table of `worker.transports`
     |    |-- a timeout ...............  transport_timeout
     |    |-- an error status .........  provider_error
     |    |-- unreachable, broken off .  transport_error
     |    `-- a builtin class: as above, if a transport raised it or `ctx.provider_call()` was around it
     `-- anything else ......................................................  AGENT_ERROR

The innermost decides, because libraries wrap a timeout in a connection error (requests), and a
refused connection in a timeout (openai over aiohttp). An exception's own text reaches operators
only, without the credentials that URLs carry.
"""

from __future__ import annotations

import errno
import re
import secrets
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from shared.protocol import events
from shared.protocol.events import SerializationError
from shared.protocol.verifier import VerificationError
from shared.runs.outcome import SENTENCES, FailureCode, Outcome
from worker import transports
from worker.cancellation import Cancelled, Disconnected
from worker.sink import EventBufferFull
from worker.transports import Meaning

DETAIL_BYTES = 8192
"""Bytes of traceback and text that an operator gets to see."""

_TEXT_LENGTH = 1000
_MARK = "__outlast_provider_call__"
_STDLIB = frozenset(sys.stdlib_module_names)


class AgentError(Exception):
    """Raised by an agent on purpose: its text reaches the client as ``agent error: <text>``."""


class ProtocolError(ValueError):
    """A value that the protocol does not allow, such as an interrupt outcome without interrupts."""


class ProviderStreamBroken(Exception):
    """A provider's answer ended before it was complete, although the connection closed in order."""


class UpstreamError(Exception):
    """An AG-UI event generator ended with RUN_ERROR; ``message`` and ``code`` are what it said."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(f"{code or 'no code'}: {message}")
        self.message = message
        self.code = code


_OWN: tuple[tuple[type[Exception], FailureCode], ...] = (
    (AgentError, FailureCode.AGENT_ERROR),
    (VerificationError, FailureCode.PROTOCOL_VIOLATION),
    (SerializationError, FailureCode.SERIALIZATION),
    (ProtocolError, FailureCode.PROTOCOL),
    (EventBufferFull, FailureCode.EVENT_BUFFER_FULL),
    (ProviderStreamBroken, FailureCode.TRANSPORT_ERROR),
    (Cancelled, FailureCode.CANCELLED),
    (Disconnected, FailureCode.DISCONNECTED),
)
_BY_MEANING = {
    Meaning.TIMEOUT: FailureCode.TRANSPORT_TIMEOUT,
    Meaning.ERROR: FailureCode.TRANSPORT_ERROR,
    Meaning.STATUS: FailureCode.PROVIDER_ERROR,
}
_GRPC = {"DEADLINE_EXCEEDED": Meaning.TIMEOUT, "UNAVAILABLE": Meaning.ERROR}
# Ways to say "unreachable" for which Python has no class of its own.
_UNREACHABLE = frozenset({errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH})
_CREDENTIAL = re.compile(
    r"(?i)([?&](?:api[-_]?key|key|(?:access[-_]?|auth[-_]?)?token|sig(?:nature)?|x-amz-[a-z-]+)="
    r"|\bauthorization\W{1,5}\w+\s+|\bbearer\s+|\bapi-key\W{1,5}(?:b['\"])?|://[^/\s:@]*:(?=[^/\s@]+@))([^&\s'\"@)>,]+)"
)
_UPSTREAM = frozenset(_BY_MEANING.values())


def classify(error: BaseException) -> Outcome:
    """The failed outcome of what escaped an agent; never raises, whatever the exception does.

    An outcome with an AgentError's own text has no incident id, every other has one that the log line
    carries too.
    """
    code = code_of(error)
    return Outcome.failed(
        code,
        message=sentence_of(error, code),
        detail=_detail(error),
        incident=None if isinstance(_alone(error), AgentError) else secrets.token_hex(5),
    )


def code_of(error: BaseException, *, in_provider_call: bool = False) -> FailureCode:
    """The failure code alone; see the tree above.

    ``in_provider_call`` says that it escaped from inside a marked provider call.
    """
    error = _alone(error)
    if isinstance(error, BaseExceptionGroup):
        codes = {code_of(leaf, in_provider_call=in_provider_call) for leaf in error.exceptions}
        return codes.pop() if len(codes) == 1 else FailureCode.AGENT_ERROR
    if not isinstance(error, Exception):
        return FailureCode.AGENT_ERROR
    for kind, code in _OWN:
        if isinstance(error, kind):
            return code
    if isinstance(error, UpstreamError):
        return upstream_code(error.code)
    if isinstance(error, ValidationError) and isinstance(getattr(events, error.title, None), type):
        return FailureCode.PROTOCOL
    known = [
        meaning
        for link, marked in _chain(error, marked=in_provider_call)
        if (meaning := _meaning(link, marked)) is not None
    ]
    return _BY_MEANING.get(known[-1], FailureCode.AGENT_ERROR) if known else FailureCode.AGENT_ERROR


def upstream_code(said: str | None) -> FailureCode:
    """The code of a failure that an upstream, or an agent by its own RUN_ERROR, says of itself.

    It cannot claim that this worker cancelled or lost anything: that is an AGENT_ERROR.
    """
    return next((code for code in _UPSTREAM if code == said), FailureCode.AGENT_ERROR)


def sentence_of(error: BaseException, code: FailureCode) -> str:
    """What a client reads: the code's sentence, or an AgentError's own text."""
    error = _alone(error)
    if isinstance(error, AgentError):
        return f"agent error: {_clean(_text(error))[:_TEXT_LENGTH]}"
    return SENTENCES[code]


def is_transport_timeout(error: BaseException) -> bool:
    """Whether a provider did not answer in time; a cancel that came later does not change that."""
    return code_of(error) is FailureCode.TRANSPORT_TIMEOUT


def mark_provider_call(error: BaseException) -> None:
    """Remembers that an exception left a block that the agent declared to be a provider call."""
    if isinstance(error, BaseExceptionGroup):
        for leaf in error.exceptions:
            mark_provider_call(leaf)
    error.__dict__[_MARK] = True


def _alone(error: BaseException) -> BaseException:
    """A group's only member that says something; tasks that a group cancelled say nothing."""
    while isinstance(error, BaseExceptionGroup):
        telling = [leaf for leaf in error.exceptions if not _is_cancelled_task(leaf)]
        if len(telling) != 1:
            return error
        error = telling[0]
    return error


def _is_cancelled_task(error: BaseException) -> bool:
    return type(error).__name__ == "CancelledError"


def _chain(error: BaseException, *, marked: bool) -> Iterator[tuple[Exception, bool]]:
    """The exception and its causes, outermost first, and whether each left a provider call."""
    seen: set[int] = set()
    ahead: list[tuple[object, bool]] = [(error, marked)]
    while ahead:
        link, marked = ahead.pop(0)
        # A CancelledError stands in the chain of every asyncio timeout and means nothing.
        if not isinstance(link, Exception) or id(link) in seen:
            continue
        seen.add(id(link))
        marked = marked or _MARK in link.__dict__
        yield link, marked
        reasons: list[object] = [link.__cause__]
        if transports.hides_its_reason(type(link)):
            reasons += [None if link.__suppress_context__ else link.__context__]
            reasons += [getattr(link, "reason", None), *link.args]
        ahead += [(reason, marked) for reason in reasons]


def _meaning(error: Exception, marked: bool) -> Meaning | None:
    said = transports.meaning_of(type(error))
    if said is None and isinstance(error, OSError) and error.errno in _UNREACHABLE:
        said = Meaning.MAYBE_ERROR
    if said is Meaning.STATUS:
        return _GRPC.get(_grpc_status(error), said) if _is_rpc(error) else said
    if said not in {Meaning.MAYBE_TIMEOUT, Meaning.MAYBE_ERROR}:
        return said
    if not (marked or _raised_by_transport(error)):
        return None
    return Meaning.TIMEOUT if said is Meaning.MAYBE_TIMEOUT else Meaning.ERROR


def _is_rpc(error: BaseException) -> bool:
    return transports.entry_of(type(error)) == ("grpc", "RpcError")


def _grpc_status(error: Any) -> str:
    with suppress(Exception):
        return str(error.code().name)
    return ""


def _raised_by_transport(error: Exception) -> bool:
    """Whether the innermost frame that belongs to somebody is a transport's.

    Frames of the standard library say nothing: the agent's own ``asyncio.timeout`` ends in them too.
    """
    owner = None
    step = error.__traceback__
    while step is not None:
        module = str(step.tb_frame.f_globals.get("__name__", ""))
        if transports.is_transport(module) or not transports.is_neutral(module, _STDLIB):
            owner = module
        step = step.tb_next
    return owner is not None and transports.is_transport(owner)


def _detail(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - whatever an exception's own code does, the run gets its ending
        text = f"{type(error).__module__}.{type(error).__qualname__} (its traceback cannot be shown)"
    status = _status(error)
    text = _CREDENTIAL.sub(r"\1***", _clean(f"provider status {status}\n{text}" if status else text))
    data = text.encode()
    if len(data) <= DETAIL_BYTES:
        return text
    head, gap = DETAIL_BYTES // 4, "\n[...]\n"
    tail = DETAIL_BYTES - head - len(gap)
    return data[:head].decode(errors="ignore") + gap + data[-tail:].decode(errors="ignore")


def _status(error: BaseException) -> object:
    """The status that a provider answered with, wherever its library keeps it; None if there is none."""
    for link, _ in _chain(_alone(error), marked=False):
        if transports.meaning_of(type(link)) is not Meaning.STATUS:
            continue
        with suppress(Exception):
            return _status_of(link)
    return None


def _status_of(error: Any) -> object:
    if _is_rpc(error):
        return _grpc_status(error)
    answer = getattr(error, "response", None)
    if isinstance(answer, Mapping):
        return answer["ResponseMetadata"]["HTTPStatusCode"]
    holders = (error, answer)
    values = (getattr(holder, name, None) for holder in holders for name in ("status_code", "status", "code"))
    return next((value for value in values if isinstance(value, int)), None)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - see _detail
        return type(error).__name__


def _clean(text: str) -> str:
    """The text without lone surrogates, which have no UTF-8 form."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
