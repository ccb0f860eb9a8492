"""Python functions that a model may call: their schema, the check of the model's arguments, one call."""

from __future__ import annotations

import asyncio
import inspect
import secrets
import threading
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, ParamSpec, TypeVar, cast, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from shared.logs import get_logger
from shared.protocol.events import SerializationError
from shared.protocol.verifier import VerificationError
from worker.cancellation import Cancelled, Disconnected
from worker.context import RunContext
from worker.failures import AgentError, code_of
from worker.json_form import json_text
from worker.sink import EventBufferFull

__all__ = ["Tool", "ToolError", "tool"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F")

MOST_PROBLEMS = 10
"""How many misfits of one call's arguments the model is told."""

log = get_logger(__name__)

# What ends the run although it was raised inside a tool: said on purpose, or the run's own machinery.
_ENDING = (
    AgentError,
    Cancelled,
    Disconnected,
    EventBufferFull,
    GeneratorExit,
    SerializationError,
    VerificationError,
)


class ToolError(Exception):
    """Raised by a tool on purpose: the model reads the text as the call's result and may try again.

    The result is an event of the run, so the client reads it too.
    """


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call, checked, or what is wrong with them: ``problem`` is for the model."""

    named: dict[str, Any] = field(default_factory=dict)
    problem: str = ""


class Tool(Generic[P, R]):
    """A function offered to a model. Calling the tool calls the function, unchecked, as before.

    A parameter named ``ctx`` or of type RunContext is given the run's context and not shown to the model.
    Raises TypeError, naming the tool, for a function whose parameters a model cannot fill.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        needs_approval: bool | Callable[..., bool] = False,
        sequential: bool = False,
    ) -> None:
        self.function = function
        self.name = str(name or getattr(function, "__name__", ""))
        self.description = inspect.cleandoc(description or function.__doc__ or "")
        self.needs_approval = needs_approval
        self.sequential = sequential
        if not self.name.isascii() or not self.name.replace("-", "_").isidentifier() or len(self.name) > 64:
            raise TypeError(f"{self.name!r} is no name for a tool: give it one of letters, digits, - and _")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"the tool {self.name} is a generator function; a tool returns its result")
        self._context_name, self._names, self._model = _signature(function, self.name)
        self.parameters = _json_schema(self._model)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def check(self, arguments: str) -> Arguments:
        """The model's JSON as arguments of the function; no text at all is an empty object."""
        try:
            text = arguments.strip()
            checked = self._model.model_validate_json("{}" if text in {"", "null"} else text)
        except ValidationError as error:
            problems = [
                {"at": ".".join(map(str, one["loc"])), "problem": one["msg"]}
                for one in error.errors(include_url=False, include_context=False, include_input=False)
            ]
            shown = {"error": "the arguments do not fit the tool", "problems": problems[:MOST_PROBLEMS]}
            return Arguments(problem=json_text(shown))
        return Arguments({name: getattr(checked, member) for member, name in self._names.items()})

    def must_ask(self, arguments: Arguments) -> bool:
        """Whether a person has to approve this call first."""
        if callable(self.needs_approval):
            return bool(self.needs_approval(**arguments.named))
        return self.needs_approval

    async def answer(self, ctx: RunContext, arguments: Arguments) -> str:
        """Executes one call and returns what the model reads: a text as it is, anything else as JSON.

        An exception becomes an error result, with its text only if it is a ToolError. Raises what ends the
        run: AgentError, a stop, a refused event, SerializationError for a result without JSON.
        """
        try:
            result = await self._executed(ctx, arguments)
        except _ENDING:
            raise
        except ToolError as error:
            return json_text({"error": str(error)})
        except BaseException as error:
            # A stop of the run cancels this task; a tool that cancels itself, or exits, has only failed.
            if isinstance(error, asyncio.CancelledError) and _stopping():
                raise
            incident = secrets.token_hex(5)
            log.warning("tool.failed", tool=self.name, incident=incident, exc_info=True)
            return json_text({"error": "the tool failed", "code": str(code_of(error)), "incident": incident})
        return result if isinstance(result, str) else json_text(result)

    async def _executed(self, ctx: RunContext, arguments: Arguments) -> Any:
        given = dict(arguments.named)
        if self._context_name:
            given[self._context_name] = ctx
        function = cast("Callable[..., Any]", self.function)
        if inspect.iscoroutinefunction(function):
            return await function(**given)
        result = await _in_thread(lambda: function(**given))
        return await result if inspect.isawaitable(result) else result


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: bool | Callable[..., bool] = False,
    sequential: bool = False,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: bool | Callable[..., bool] = False,
    sequential: bool = False,
) -> Any:
    """Offers a function to a model, by its name and docstring unless others are given.

    ``needs_approval`` pauses the run until a person has agreed to the call; a callable decides by the
    call's arguments. ``sequential`` has all calls of an answer that names the tool run one by one.
    Raises TypeError as Tool.
    """

    def offered(body: Callable[..., Any]) -> Tool[..., Any]:
        return Tool(
            body,
            name=name,
            description=description,
            needs_approval=needs_approval,
            sequential=sequential,
        )

    return offered if function is None else offered(function)


class _Schema(GenerateJsonSchema):
    """A schema without the titles that pydantic makes of names: they cost tokens and say nothing."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _json_schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(schema_generator=_Schema)
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return schema


def _signature(
    function: Callable[..., Any], tool_name: str
) -> tuple[str | None, dict[str, str], type[BaseModel]]:
    """The name of the context's parameter, field to parameter name, and the model of the others."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise TypeError(f"the types of the tool {tool_name} cannot be resolved: {error}") from error
    context_name = None
    names: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "ctx" or hints.get(name) is RunContext:
            context_name = name
            continue
        if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            raise TypeError(f"the tool {tool_name} takes {parameter}; a model fills named parameters only")
        if name not in hints:
            raise TypeError(f"the parameter {name} of the tool {tool_name} needs a type")
        # Under another name, because some parameter names are taken in a pydantic model.
        member = f"field_{len(fields)}"
        names[member] = name
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[member] = (Annotated[hints[name], Field(alias=name)], default)
    config = ConfigDict(extra="forbid", allow_inf_nan=False)
    try:
        return context_name, names, create_model(tool_name, __config__=config, **fields)
    except PydanticUserError as error:
        raise TypeError(f"the types of the tool {tool_name} have no schema: {error.message}") from error


def _stopping() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _in_thread(work: Callable[[], Any]) -> Any:
    """The callable's result from a thread of its own, which a stop leaves behind.

    Not the loop's executor: a few deaf tools would keep its few threads from everybody else.
    """
    loop = asyncio.get_running_loop()
    settled: asyncio.Future[Any] = loop.create_future()
    context = copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if settled.done():
            return
        if error is None:
            settled.set_result(result)
        else:
            settled.set_exception(error)

    def run() -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = context.run(work)
        except (StopIteration, SystemExit, KeyboardInterrupt) as error:
            # No future takes the first; the others would end the event loop.
            failure = RuntimeError(f"the tool raised {type(error).__name__}")
            failure.__cause__ = error
        except BaseException as error:  # noqa: BLE001 - raised again where the run waits
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            log.warning("tool.left_behind")

    threading.Thread(target=run, name="outlast-tool", daemon=True).start()
    return await settled
