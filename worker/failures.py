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
     |-- it, or what caused it, is in the table of `worker.transports`
     |    |-- a timeout anywhere in the chain ...  transport_timeout
     |    |-- an error status .................  provider_error
     |    |-- unreachable, broken off ..........  transport_error
     |    `-- a builtin class: as above, if a transport raised it or `ctx.provider_call()` was around it
     `-- anything else ......................................................  AGENT_ERROR

An exception's own text reaches operators only. Timeouts are looked for first, because SDKs derive
them from their connection errors.
"""

from __future__ import annotations

import secrets
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress

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
# What an upstream may say of itself; it cannot claim that this worker cancelled or lost anything.
_UPSTREAM = frozenset(_BY_MEANING.values())
_GRPC = {"DEADLINE_EXCEEDED": Meaning.TIMEOUT, "UNAVAILABLE": Meaning.ERROR}


def classify(error: BaseException, *, in_provider_call: bool = False) -> Outcome:
    """The failed outcome of what escaped an agent; never raises, whatever the exception does.

    ``in_provider_call`` says that it escaped from inside a marked provider call. An outcome with
    an AgentError's own text has no incident id, every other has one that the log line carries too.
    """
    code = code_of(error, in_provider_call=in_provider_call)
    return Outcome.failed(
        code,
        message=sentence_of(error, code),
        detail=_detail(error),
        incident=None if isinstance(_alone(error), AgentError) else secrets.token_hex(5),
    )


def code_of(error: BaseException, *, in_provider_call: bool = False) -> FailureCode:
    """The failure code alone; see the tree above."""
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
        return next((code for code in _UPSTREAM if code == error.code), FailureCode.AGENT_ERROR)
    if isinstance(error, ValidationError) and isinstance(getattr(events, error.title, None), type):
        return FailureCode.PROTOCOL
    chain = [_meaning(link, marked=in_provider_call) for link in _chain(error)]
    if Meaning.TIMEOUT in chain:
        return FailureCode.TRANSPORT_TIMEOUT
    return next((_BY_MEANING[said] for said in chain if said in _BY_MEANING), FailureCode.AGENT_ERROR)


def sentence_of(error: BaseException, code: FailureCode) -> str:
    """What a client reads: the code's sentence, or an AgentError's own text."""
    error = _alone(error)
    if isinstance(error, AgentError):
        return f"agent error: {_clean(_text(error))[:_TEXT_LENGTH]}"
    return SENTENCES[code]


def is_transport_timeout(error: BaseException, *, in_provider_call: bool = False) -> bool:
    """Whether a provider did not answer in time; a cancel that came later does not change that."""
    return code_of(error, in_provider_call=in_provider_call) is FailureCode.TRANSPORT_TIMEOUT


def mark_provider_call(error: BaseException) -> None:
    """Remembers that an exception left a block that the agent declared to be a provider call."""
    with suppress(Exception):  # a class with slots keeps no mark and is judged by its name
        setattr(error, _MARK, True)


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


def _chain(error: BaseException) -> Iterator[Exception]:
    """The exception and what it names as its cause, outermost first."""
    seen: set[int] = set()
    ahead: list[BaseException | None] = [error]
    while ahead:
        link = ahead.pop(0)
        # A CancelledError stands in the chain of every asyncio timeout and means nothing.
        if not isinstance(link, Exception) or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        ahead.append(link.__cause__)
        if transports.hides_its_reason(type(link)):
            ahead += [link.__context__, getattr(link, "reason", None)]
            ahead += [argument for argument in link.args if isinstance(argument, BaseException)]


def _meaning(error: Exception, *, marked: bool) -> Meaning | None:
    said = transports.meaning_of(type(error))
    if said is Meaning.STATUS:
        return _grpc_meaning(error) or said
    if said not in {Meaning.MAYBE_TIMEOUT, Meaning.MAYBE_ERROR}:
        return said
    if not (marked or getattr(error, _MARK, False) or _raised_by_transport(error)):
        return None
    return Meaning.TIMEOUT if said is Meaning.MAYBE_TIMEOUT else Meaning.ERROR


def _grpc_meaning(error: Exception) -> Meaning | None:
    status = getattr(error, "code", None)
    if not callable(status):
        return None
    with suppress(Exception):
        return _GRPC.get(str(getattr(status(), "name", "")))
    return None


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
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        text = f"provider status {status}\n{text}"
    text = _clean(text)
    data = text.encode()
    if len(data) <= DETAIL_BYTES:
        return text
    head, gap = DETAIL_BYTES // 4, "\n[...]\n"
    tail = DETAIL_BYTES - head - len(gap)
    return data[:head].decode(errors="ignore") + gap + data[-tail:].decode(errors="ignore")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - see _detail
        return type(error).__name__


def _clean(text: str) -> str:
    """The text without lone surrogates, which have no UTF-8 form."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
