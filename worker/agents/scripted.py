"""The `demo` agent: everything that a run can show, from a script in the request; it needs no provider."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from worker.agents.base import AgentError, Interrupt
from worker.context import RunContext

_TEXT = (
    "A run outlasts the tab that started it, the connection that carries it and the deploy that "
    "replaces its server, and it ends in exactly one recorded outcome."
)
_VOCABULARY = tuple(_TEXT.split())
_PAIR = re.compile(r"\b(words|delay|hold|fail|deaf|interrupt|plain)=([\w.]*\w)", re.ASCII)
_UNPACED = 64
"""Words without a pause between two turns of the event loop."""

_FAILURES = Literal["agent", "crash", "timeout", "tool_timeout", "order", "json", "exit"]


class Script(BaseModel):
    """What the demo does; ``forwardedProps`` of the request, or words like ``words=5`` in its last text.

    ``words`` of the reply, ``delay`` seconds before each, ``hold`` seconds of waiting before the
    reply, ``deaf`` to wait without hearing a stop, ``fail`` to end badly, ``interrupt`` to pause,
    ``plain`` for the reply alone.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    words: int = Field(default=len(_VOCABULARY), ge=0, le=200_000)
    delay: float = Field(default=0.03, ge=0, le=3600)
    hold: float = Field(default=0, ge=0, le=86_400)
    deaf: bool = False
    fail: _FAILURES | None = None
    interrupt: bool = False
    plain: bool = False


async def demo(ctx: RunContext) -> Interrupt | None:
    """Shows text, reasoning, a tool call, state, steps and a subagent; adjustable by the request."""
    script = _script(ctx)
    if not script.plain:
        await _show(ctx, script)
    await _hold(ctx, script)
    await _fail(ctx, script.fail)
    if script.interrupt and not ctx.resume:
        return Interrupt(reason="confirmation", message="Shall the demo go on?")
    with ctx.step("reply"), ctx.message() as message:
        for number in range(script.words):
            if script.delay:
                await _pause(ctx, script)
            elif number % _UNPACED == 0:
                await asyncio.sleep(0)
                await ctx.drained()
            word = _VOCABULARY[number % len(_VOCABULARY)]
            message.delta(word if number == 0 else f" {word}")
    return None


async def _show(ctx: RunContext, script: Script) -> None:
    with ctx.step("plan"), ctx.reasoning() as thought:
        for piece in ("First a look ", "at the question, ", "then the answer."):
            await _pause(ctx, script)
            thought.delta(piece)
    with ctx.tool_call("count_words") as call:
        asked = ctx.last_user_text or ""
        call.args('{"text":')
        await _pause(ctx, script)
        call.args(f"{json.dumps(asked[:200])}}}")
        call.result({"words": len(asked.split())})
    if isinstance(ctx.state, dict):
        ctx.state["progress"] = {"part": "tool", "words_asked": len(asked.split()), "of": script.words}
        ctx.publish_state()
    with ctx.subagent("proofreader", description="Reads the answer before it is given") as subagent:
        ctx.say("Nothing to correct.")
        subagent.finish({"corrections": 0})
    if isinstance(ctx.state, dict):
        ctx.state["progress"]["part"] = "reply"
        ctx.publish_state()


async def _pause(ctx: RunContext, script: Script) -> None:
    if script.deaf:
        await _sleep_deaf(script.delay)
        return
    await ctx.until_cancelled(asyncio.sleep(script.delay))
    ctx.check_cancelled()


async def _hold(ctx: RunContext, script: Script) -> None:
    if script.hold and script.deaf:
        await _sleep_deaf(script.hold)
    elif script.hold:
        await ctx.until_cancelled(asyncio.sleep(script.hold))
        ctx.check_cancelled()


async def _sleep_deaf(seconds: float) -> None:
    """Sleeps through every cancellation, as a badly behaved agent does, but not longer than asked."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while (left := until - loop.time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue


async def _fail(ctx: RunContext, how: str | None) -> None:
    match how:
        case "agent":
            raise AgentError("the demo was asked to fail")
        case "crash":
            raise RuntimeError("the demo was asked to crash")
        case "timeout":
            with ctx.provider_call():
                await asyncio.wait_for(asyncio.Event().wait(), timeout=0.01)
        case "tool_timeout":
            await asyncio.wait_for(asyncio.Event().wait(), timeout=0.01)
        case "order":
            ctx.message().delta("never opened")
        case "json":
            ctx.state = {"not a number": float("nan")}
            ctx.publish_state()
        case "exit":
            raise SystemExit(3)
        case _:
            return


def _script(ctx: RunContext) -> Script:
    props = ctx.forwarded_props
    asked: dict[str, Any] = dict(_PAIR.findall(ctx.last_user_text or ""))
    if isinstance(props, dict):
        asked |= {name: value for name, value in props.items() if name in Script.model_fields}
    try:
        return Script.model_validate(asked)
    except ValidationError as error:
        fields = ", ".join(str(found["loc"][0]) for found in error.errors(include_input=False))
        raise AgentError(f"the demo does not understand: {fields}") from None
