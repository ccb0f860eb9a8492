from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from shared.protocol.events import SerializationError
from shared.runs.outcome import StopCause
from worker.agents.testing import recorded_context, run_input
from worker.agents.tools import Tool, ToolError, tool
from worker.cancellation import CancellationToken, Cancelled
from worker.context import RunContext, current_run
from worker.failures import AgentError


class Place(BaseModel):
    city: str
    country: str = "France"


class Node(BaseModel):
    name: str
    below: list[Node] = []


def answer(offered: Tool[..., Any], arguments: str = "{}", ctx: RunContext | None = None) -> str:
    """What the model reads."""
    context = ctx or recorded_context(run_input("hello"))[0]
    checked = offered.check(arguments)
    return checked.problem or asyncio.run(offered.answer(context, checked))


@tool
async def weather(city: Annotated[str, Field(description="Where")], unit: Literal["c", "f"] = "c") -> Any:
    """Tells the weather."""
    return {"city": city, "unit": unit}


def test_the_schema_is_that_of_the_parameters():
    assert weather.name == "weather"
    assert weather.description == "Tells the weather."
    assert weather.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where"},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_name_and_description_may_be_others():
    @tool(name="look-up", description="Looks up.")
    def anything() -> str:
        return "x"

    assert (anything.name, anything.description) == ("look-up", "Looks up.")
    assert anything.parameters["properties"] == {}


def test_a_tool_is_still_the_function_it_was():
    @tool
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8


@pytest.mark.parametrize("name", ["schema", "json", "copy", "model_config", "_private", "field_0"])
def test_a_parameter_may_have_any_name(name):
    names: dict[str, Any] = {}
    exec(f"def take({name}: int) -> int:\n    return {name}", names)
    taking = tool(names["take"])
    assert taking.parameters["properties"] == {name: {"type": "integer"}}
    assert answer(taking, json.dumps({name: 3})) == "3"


def test_arguments_arrive_as_the_types_they_are_declared_as():
    @tool
    def take(place: Place, tree: Node, numbers: tuple[int, ...]) -> list[str]:
        return [type(value).__name__ for value in (place, tree, numbers)]

    given = {"place": {"city": "Paris"}, "tree": {"name": "a", "below": [{"name": "b"}]}, "numbers": [1, 2]}
    assert json.loads(answer(take, json.dumps(given))) == ["Place", "Node", "tuple"]


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        pytest.param("{}", "city", id="a missing one"),
        pytest.param('{"city": 7}', "city", id="a wrong type"),
        pytest.param('{"city": "Paris", "unit": "k"}', "unit", id="none of the choices"),
        pytest.param('{"city": "Paris", "when": "now"}', "when", id="an unknown one"),
        pytest.param('{"city": "Par', "", id="cut off"),
        pytest.param('["Paris"]', "", id="no object"),
    ],
)
def test_arguments_that_do_not_fit_are_told_to_the_model(arguments, place):
    told = json.loads(answer(weather, arguments))
    assert told["error"] == "the arguments do not fit the tool"
    assert [problem["at"] for problem in told["problems"]] == [place]
    assert all(problem["problem"] for problem in told["problems"])


@pytest.mark.parametrize("arguments", ["", "  ", "null", "{}"])
def test_no_arguments_at_all_are_an_empty_object(arguments):
    @tool
    def ping() -> str:
        return "pong"

    assert answer(ping, arguments) == "pong"


def test_numbers_that_json_does_not_know_are_refused():
    @tool
    def take(number: float) -> float:
        return number

    assert "problems" in answer(take, '{"number": NaN}')


@pytest.mark.parametrize(
    ("result", "read"),
    [
        pytest.param("as it is", "as it is", id="a text"),
        pytest.param({"a": [1, None]}, '{"a":[1,null]}', id="an object"),
        pytest.param(None, "null", id="nothing"),
        pytest.param(21, "21", id="a number"),
        pytest.param(Place(city="Paris"), '{"city":"Paris","country":"France"}', id="a model"),
    ],
)
def test_a_result_is_read_as_text_or_json(result, read):
    @tool
    def give() -> Any:
        return result

    assert answer(give) == read


def test_a_result_without_json_ends_the_run():
    @tool
    def give() -> object:
        return object()

    with pytest.raises(SerializationError):
        answer(give)


@pytest.mark.parametrize("annotated", [True, False])
def test_the_context_is_given_and_not_shown_to_the_model(annotated):
    if annotated:

        @tool
        def whose(run: RunContext, word: str) -> str:
            return f"{run.run_id} {word}"
    else:

        @tool
        def whose(ctx, word: str) -> str:
            return f"{ctx.run_id} {word}"

    assert list(whose.parameters["properties"]) == ["word"]
    assert answer(whose, '{"word": "x"}') == "run x"


def test_both_forms_run_in_their_run():
    @tool
    def in_thread() -> str:
        return f"{current_run().run_id} {threading.current_thread().name}"

    @tool
    async def on_loop() -> str:
        return f"{current_run().run_id} {threading.current_thread().name}"

    def agent(offered: Tool[..., Any]) -> str:
        from worker.context import running

        ctx, _ = recorded_context(run_input("hello"))
        with running(ctx):
            return answer(offered, ctx=ctx)

    assert agent(in_thread) == "run outlast-tool"
    assert agent(on_loop) == "run MainThread"


def test_a_sync_tool_does_not_hold_up_the_loop():
    met = threading.Event()

    @tool
    def waits() -> str:
        return str(met.wait(5))

    async def scenario() -> str:
        ctx, _ = recorded_context(run_input("hello"))
        task = asyncio.create_task(waits.answer(ctx, waits.check("{}")))
        await asyncio.sleep(0)
        met.set()
        return await task

    assert asyncio.run(scenario()) == "True"


def test_a_tool_error_is_for_the_model_in_its_own_words():
    @tool
    def fails() -> str:
        raise ToolError("no such city: Atlantis")

    assert json.loads(answer(fails)) == {"error": "no such city: Atlantis"}


def raises(error: BaseException) -> Callable[[], str]:
    def body() -> str:
        raise error

    return body


@pytest.mark.parametrize(
    "error", [ValueError("secret"), SystemExit(3), KeyboardInterrupt(), StopIteration(), RecursionError()]
)
@pytest.mark.parametrize("is_async", [True, False])
def test_any_other_error_is_told_without_its_text(error, is_async):
    body = raises(error)

    async def slowly() -> str:
        return body()

    told = json.loads(answer(tool(name="fails")(slowly if is_async else body)))
    assert told["error"] == "the tool failed"
    assert told["code"] == "AGENT_ERROR"
    assert len(told["incident"]) == 10
    assert "secret" not in str(told)


def test_a_tool_that_cancels_itself_has_only_failed():
    @tool
    async def gives_up() -> None:
        raise asyncio.CancelledError

    assert json.loads(answer(gives_up))["error"] == "the tool failed"


@pytest.mark.parametrize("error", [AgentError("enough"), Cancelled()])
def test_what_is_meant_for_the_run_ends_it(error):
    with pytest.raises(type(error)):
        answer(tool(name="ends")(raises(error)))


def test_a_stop_reaches_an_async_tool_at_once():
    async def scenario() -> list[str]:
        begun, seen = asyncio.Event(), []

        @tool
        async def waits() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                seen.append("stopped")

        token = CancellationToken()
        ctx, _ = recorded_context(run_input("hello"), token=token)
        work = asyncio.ensure_future(ctx.until_cancelled(waits.answer(ctx, waits.check("{}"))))
        async with asyncio.timeout(5):
            await begun.wait()
            token.trip(StopCause.CLIENT)
            await work
        return seen

    assert asyncio.run(scenario()) == ["stopped"]


def test_a_stop_leaves_a_deaf_sync_tool_behind():
    begun, released = threading.Event(), threading.Event()

    @tool
    def deaf() -> None:
        begun.set()
        released.wait(30)

    async def scenario() -> None:
        token = CancellationToken()
        ctx, _ = recorded_context(run_input("hello"), token=token)
        work = asyncio.ensure_future(ctx.until_cancelled(deaf.answer(ctx, deaf.check("{}"))))
        async with asyncio.timeout(5):
            await asyncio.to_thread(begun.wait, 5)
            token.trip(StopCause.CLIENT)
            assert await work is None

    asyncio.run(scenario())
    released.set()


@pytest.mark.parametrize(
    ("asks", "arguments", "asked"),
    [
        (True, {"path": "/"}, True),
        (False, {"path": "/"}, False),
        (lambda path: path == "/", {"path": "/"}, True),
        (lambda path: path == "/", {"path": "/tmp"}, False),
    ],
)
def test_whether_a_person_is_asked_may_depend_on_the_arguments(asks, arguments, asked):
    @tool(needs_approval=asks)
    def delete(path: str) -> None: ...

    assert delete.must_ask(delete.check(json.dumps(arguments))) is asked


def unnamed_types(city) -> str: ...  # type: ignore[no-untyped-def]  # what is tested


def positional(city: str, /) -> str: ...


def open_ended(*cities: str) -> str: ...


def unresolved(city: Nowhere) -> str: ...  # type: ignore[name-defined]  # noqa: F821 - what is tested


def without_schema(sock: threading.Thread) -> str: ...


def generator(city: str):  # type: ignore[no-untyped-def]
    yield city


@pytest.mark.parametrize(
    "function", [unnamed_types, positional, open_ended, unresolved, without_schema, generator, lambda: None]
)
def test_a_function_that_no_model_could_call_is_refused_with_its_name(function):
    name = "<lambda>" if function.__name__ == "<lambda>" else function.__name__
    with pytest.raises(TypeError, match=name):
        tool(function)


def test_many_deaf_tools_leave_room_for_others():
    released = threading.Event()

    @tool
    def deaf() -> None:
        released.wait(30)

    @tool
    def quick() -> str:
        return "done"

    async def scenario() -> str:
        ctx, _ = recorded_context(run_input("hello"))
        waiting = [asyncio.create_task(deaf.answer(ctx, deaf.check("{}"))) for _ in range(50)]
        async with asyncio.timeout(10):
            said = await quick.answer(ctx, quick.check("{}"))
        released.set()
        await asyncio.gather(*waiting)
        return said

    assert asyncio.run(scenario()) == "done"
