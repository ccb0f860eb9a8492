"""What a generator may yield: the protocol's models, mappings, JSON texts, and frames of an encoder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from ag_ui.encoder import EventEncoder

from shared.protocol import events as ag
from worker.agents.testing import record

STARTED = ag.RunStartedEvent(thread_id="theirs", run_id="theirs")
TEXT = (
    ag.TextMessageStartEvent(message_id="m"),
    ag.TextMessageContentEvent(message_id="m", delta="hé\n{"),
    ag.CustomEvent(name="n", value=None),
    ag.TextMessageEndEvent(message_id="m"),
)
FINISHED = ag.RunFinishedEvent(thread_id="theirs", run_id="theirs", result={"a": 1})
ALL = (STARTED, *TEXT, FINISHED)
ENCODED = [EventEncoder().encode(event) for event in ALL]


class Framework(ag.TextMessageContentEvent):
    """A framework's own event over the protocol's."""

    origin: Any = None


def both(items: list[Any]) -> list[Any]:
    async def asynchronous(given: ag.RunAgentInput) -> AsyncIterator[Any]:
        for item in items:
            yield item

    def synchronous(given: ag.RunAgentInput) -> Iterator[Any]:
        yield from items

    return [asynchronous, synchronous]


FORMS = {
    "models": list(ALL),
    "mappings": [event.model_dump(by_alias=True) for event in ALL],
    "mappings as JSON has them": [event.model_dump(by_alias=True, mode="json") for event in ALL],
    "frames": ENCODED,
    "frames as bytes": [frame.encode() for frame in ENCODED],
    "several frames at once": ["".join(ENCODED[:3]), "".join(ENCODED[3:])],
    "frames in pieces": [character for frame in ENCODED for character in frame],
    "frames with CR LF": [frame.replace("\n", "\r\n") for frame in ENCODED],
    "JSON texts": [event.model_dump_json(by_alias=True) for event in ALL],
    "a mixture": [STARTED, ENCODED[1], TEXT[1], TEXT[2].model_dump(by_alias=True), ENCODED[4], FINISHED],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [0, 1], ids=["async", "sync"])
def test_every_form_says_the_same(form: str, kind: int):
    recorded = record(both(FORMS[form])[kind])
    assert recorded[1:-1] == list(TEXT)
    assert (recorded[-1].run_id, recorded[-1].result) == ("run", {"a": 1})


def test_a_frameworks_own_event_is_the_event_that_travels():
    items = [TEXT[0], Framework(message_id="m", delta="x"), TEXT[3]]
    assert record(both(items)[0])[2].delta == "x"


def test_a_comment_between_frames_is_skipped():
    assert record(both([": ping\n\n", *ENCODED])[0])[1:-1] == list(TEXT)


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([*ENCODED[:2], "data: {"], id="a frame without its end"),
        pytest.param(["data: nonsense\n\n"], id="data that is not JSON"),
        pytest.param(["{nonsense"], id="text that is not JSON"),
        pytest.param([{"type": "NO_SUCH_EVENT"}], id="a type that is none"),
        pytest.param([{"type": "TEXT_MESSAGE_START"}], id="a member that is missing"),
        pytest.param([7], id="a number"),
        pytest.param([None], id="nothing"),
    ],
)
def test_what_is_no_event_fails_the_run(items: list[Any]):
    assert record(both(items)[0])[-1].code == "PROTOCOL"


def test_a_value_without_a_json_form_is_told_apart():
    items = [{"type": "CUSTOM", "name": "n", "value": object()}]
    assert record(both(items)[1])[-1].code == "SERIALIZATION"
