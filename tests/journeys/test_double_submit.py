"""One identity is executed once, whoever posts it again and when."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.journeys.invariants import check_invariants
from tests.journeys.sse_stream import Refused, Stream
from tests.journeys.stack import Run, Stack


def _post_at_once(stack: Stack, run: Run, times: int) -> list[Stream]:
    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(lambda _: stack.post(run), range(times)))


def _said(stream: Stream) -> str:
    """What a client shows after this stream: a snapshot replaces, deltas append."""
    text = ""
    for event in stream.events:
        if event["type"] == "MESSAGES_SNAPSHOT":
            text = "".join(each["content"] for each in event["messages"] if each["role"] == "assistant")
        elif event["type"] == "TEXT_MESSAGE_CONTENT":
            text += event["delta"]
    return text


@pytest.mark.parametrize("times", [2, 10])
def test_the_same_body_at_once_starts_once_and_every_stream_is_whole(stack: Stack, times: int):
    for _ in range(3):
        run = stack.prepare("counts", deltas=8, pause=0.02)
        streams = _post_at_once(stack, run, times)
        endings = [stream.finish() for stream in streams]
        [run.stream] = [stream for stream in streams if stream.seqs[0] == 1]
        assert endings == [check_invariants(stack, run)] * times
        assert {_said(stream) for stream in streams} == {"0 1 2 3 4 5 6 7 "}
        assert run.effects() == ["START", "END"]


def test_the_same_body_after_the_end_replays_the_recorded_outcome(stack: Stack):
    run = stack.submit("counts", deltas=4)
    terminal = run.live.finish()
    again = stack.post(run)
    assert again.finish() == terminal
    assert _said(again) == run.live.text
    assert run.effects() == ["START", "END"]
    check_invariants(stack, run)


def test_a_client_that_reconnects_with_the_partial_answer_in_its_messages_joins(stack: Stack):
    run = stack.submit("counts", deltas=20, pause=0.04)
    run.live.until(lambda stream: len(stream.deltas) >= 3)
    run.live.close()
    grown = {
        **run.body,
        "messages": [*run.body["messages"], {"id": "m", "role": "assistant", "content": "0 1 2 "}],
    }
    joined = stack.open("POST", f"/agents/{run.agent}", body=grown)
    assert joined.finish()["outcome"] == {"type": "success"}
    assert run.effects() == ["START", "END"]
    check_invariants(stack, run)


def test_another_message_or_another_agent_under_the_same_identity_is_a_conflict(stack: Stack):
    run = stack.submit("counts", deltas=2)
    run.live.finish()
    other = {**run.body, "messages": [{"id": "u1", "role": "user", "content": "something else"}]}
    for agent, body in (("counts", other), ("sync_counts", run.body)):
        with pytest.raises(Refused) as refused:
            stack.open("POST", f"/agents/{agent}", body=body)
        assert (refused.value.status, refused.value.body["code"]) == (409, "RUN_CONFLICT")
    check_invariants(stack, run)
