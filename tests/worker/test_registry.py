"""Agents are found where the operator says, and a bad set-up is explained in a sentence."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.protocol import events as ag
from shared.settings import Settings
from worker.agents import AgentEntry, RunContext
from worker.agents.entries import entry_for
from worker.agents.registry import Registry, RegistryError, load_registry
from worker.agents.testing import record


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Writes modules into a working folder that is not on the import path yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    before = set(sys.modules)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def load(agents: str | None = None, **settings: Any) -> Registry:
    return load_registry(Settings(agents=agents, **settings))


def refusal(agents: str) -> str:
    with pytest.raises(RegistryError) as refused:
        load(agents)
    return str(refused.value)


def test_the_shipped_agents_are_always_there(module):
    registry = load()
    assert registry.names() == ("demo", "echo")
    assert registry.get("nobody") is None


def test_chat_is_offered_when_a_model_is_set(module):
    assert "chat" in load(chat_model="some-model").names()


def test_a_users_mapping_is_found_in_the_working_folder(module):
    module("my_agents", "async def weather(ctx):\n    ctx.say('sunny')\nAGENTS = {'weather': weather}\n")
    entry = load("my_agents:AGENTS").get("weather")
    assert entry.is_async
    assert record(entry)[2].delta == "sunny"


def test_several_specs_are_separated_by_commas(module):
    module("one_of_mine", "A = {'a': lambda ctx: None}\n")
    module("two_of_mine", "class Holder:\n    B = {'b': lambda ctx: None}\n")
    assert {"a", "b"} <= set(load(" one_of_mine:A , two_of_mine:Holder.B ,").names())


def test_an_installed_package_offers_agents_by_entry_points(module, tmp_path, monkeypatch):
    module("installed_agents", "async def helper(ctx):\n    '''Helps.'''\n")
    info = tmp_path / "installed_agents-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: installed-agents\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[outlast.agents]\nhelper = installed_agents:helper\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load().catalogue()["helper"] == {"policy": "enqueue", "description": "Helps."}


@pytest.mark.parametrize("spec", ["my_agents", ":AGENTS", "my_agents:"])
def test_a_spec_of_a_wrong_form_is_explained(module, spec):
    assert refusal(spec) == f"OUTLAST_AGENTS holds {spec!r}; it must have the form package.module:NAME."


def test_a_missing_module_is_named(module):
    assert "names the module no_such_module_here, which does not exist" in refusal("no_such_module_here:A")


def test_a_module_that_a_users_module_needs_is_named(module):
    module("needs_more", "import no_such_library_here\n")
    assert "needs the missing module no_such_library_here" in refusal("needs_more:A")


def test_a_module_that_fails_is_named_with_its_error(module):
    module("fails_early", "1 / 0\n")
    assert "names the module fails_early, whose import failed: ZeroDivisionError" in refusal("fails_early:A")


def test_a_name_that_is_not_there_or_no_mapping_is_explained(module):
    module("has_other_things", "A = 5\n")
    assert "there is a int; it must be a mapping" in refusal("has_other_things:A")
    assert "there is nothing; it must be a mapping" in refusal("has_other_things:B")


def test_a_name_that_is_not_there_is_answered_with_those_that_are(module):
    module("has_agents", "from os import environ\nA = 5\nAGENTS = {'a': print}\n_B = AGENTS\n")
    assert refusal("has_agents:AGENT").endswith(" In has_agents there is: AGENTS.")


def test_a_module_elsewhere_is_answered_with_the_way_to_put_it_on_the_path(module):
    assert refusal("no_such_module_here:A").endswith("from there: PYTHONPATH=$PWD.")


def test_a_clash_with_a_shipped_name_is_refused(module):
    module("clashes", "A = {'echo': lambda ctx: None}\n")
    assert refusal("clashes:A") == (
        "OUTLAST_AGENTS=clashes:A names an agent 'echo', but Outlast itself has that name already."
    )


@pytest.mark.parametrize("name", ["", "with space", "a/b", "-x", "x" * 65, 5])
def test_a_name_that_does_not_travel_in_a_path_is_refused(name):
    with pytest.raises(RegistryError, match="a name has 1 to 64"):
        Registry().add(name, lambda ctx: None, "The test")


@pytest.mark.parametrize(
    "agent",
    [5, None, RunContext, lambda: None, lambda a, b: None],
    ids=["number", "none", "class", "no argument", "two"],
)
def test_what_cannot_be_run_is_refused(agent):
    with pytest.raises(RegistryError, match="names an agent 'x', which "):
        Registry().add("x", agent, "The test")


def test_an_unknown_policy_is_refused():
    def agent(ctx: RunContext) -> None:
        """Never runs."""

    agent.policy = "whatever"
    with pytest.raises(RegistryError, match="policy"):
        Registry().add("x", agent, "The test")


# Forms


async def coroutine(ctx: RunContext) -> None:
    """Says hi.

    And more.
    """
    ctx.say("hi")


def plain(ctx: RunContext) -> None:
    ctx.say("hi")


def said() -> list[ag.Event]:
    return [
        ag.TextMessageStartEvent(message_id="m"),
        ag.TextMessageContentEvent(message_id="m", delta="hi"),
        ag.TextMessageEndEvent(message_id="m"),
    ]


async def async_generator(run_input: ag.RunAgentInput) -> AsyncIterator[ag.Event]:
    for event in said():
        yield event


def generator(run_input: ag.RunAgentInput) -> Iterator[ag.Event]:
    yield from said()


def hands_out_a_coroutine(ctx: RunContext) -> Any:
    return coroutine(ctx)


class WithRun:
    """An agent as an object."""

    capabilities = ag.AgentCapabilities(state=ag.StateCapabilities(snapshots=True))
    policy = "reject"

    async def run(self, ctx: RunContext) -> None:
        ctx.say("hi")


class WithGenerator:
    async def run(self, run_input: ag.RunAgentInput) -> AsyncIterator[ag.Event]:
        for event in said():
            yield event


class WithCall:
    async def __call__(self, ctx: RunContext) -> None:
        ctx.say("hi")


@pytest.mark.parametrize(
    ("agent", "is_async", "at_once"),
    [
        (coroutine, True, False),
        (plain, False, False),
        (async_generator, True, True),
        (generator, False, False),
        (WithRun(), True, False),
        (WithGenerator(), True, True),
        (WithCall(), True, False),
        (functools.partial(coroutine), True, False),
        (hands_out_a_coroutine, False, False),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_every_form_is_recognised_and_runs(agent, is_async, at_once):
    entry = entry_for("x", agent)
    assert (entry.is_async, entry.cancel_at_once) == (is_async, at_once)
    assert [event.delta for event in record(entry) if hasattr(event, "delta")] == ["hi"]


def test_a_generator_that_a_function_hands_out_is_explained():
    ending = record(lambda ctx: generator(ctx.input))[-1]
    assert ending.code == "AGENT_ERROR"


def test_the_catalogue_tells_description_capabilities_and_policy():
    registry = Registry()
    registry.add("coroutine", coroutine, "The test")
    registry.add("object", WithRun(), "The test")
    registry.add("plain", plain, "The test")
    assert registry.catalogue() == {
        "coroutine": {"description": "Says hi.", "policy": "enqueue"},
        "object": {
            "description": "An agent as an object.",
            "policy": "reject",
            "capabilities": {"state": {"snapshots": True}},
        },
        "plain": {"policy": "enqueue"},
    }


def test_an_entry_is_registered_as_it_is_under_the_mappings_name():
    registry = Registry()
    entry = AgentEntry("other", coroutine, description="Mine.", policy="interrupt")
    registry.add("mine", entry, "The test")
    assert registry.get("mine").name == "mine"
    assert registry.catalogue()["mine"] == {"description": "Mine.", "policy": "interrupt"}


def test_a_coroutine_agent_can_be_awaited_by_anybody():
    entry = entry_for("x", coroutine)
    assert asyncio.iscoroutinefunction(entry.run)
