"""Readers of the raw stream that come and go while runs are fast: nothing is lost, nothing comes twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

from tests.client_rules import Checker, Client, Expander
from tests.journeys.invariants import check_invariants
from tests.journeys.rich_run import HISTORY, STATE, rich
from tests.journeys.sse_stream import TERMINAL, Event, Stream
from tests.journeys.stack import LOST_WITHIN, Run, Stack, elapsed

TIMES = 9
FAST: list[Event] = list(chain.from_iterable(rich(f"n{number}") for number in range(TIMES)))


class Reader:
    """A client that knows the official one's rules and reads a run in several visits."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.client = Client(run.body["messages"], run.body["state"])
        self.cursor: int | None = None
        self.over = False
        self.returns: list[int] = []

    def post(self) -> Stream:
        """The same identity again, with what it has read meanwhile."""
        told = [message for message in self.client.messages if message["role"] != "activity"]
        body = self.run.body | {"messages": told, "state": self.client.state}
        return self._anew(self.run.stack.open("POST", f"/agents/{self.run.agent}", body=body))

    def snapshot(self) -> Stream:
        return self._anew(self.run.stack.open("GET", f"{self.run.path}/events?mode=snapshot"))

    def connect(self) -> Stream:
        return self._anew(self.run.stack.open("POST", f"/threads/{self.run.thread_id}/connect", body={}))

    def resume(self) -> Stream:
        """Behind the last event that had a number; where there was none, by snapshot."""
        if self.cursor is None:
            return self.snapshot()
        return self.run.stack.open(
            "GET", f"{self.run.path}/events", headers={"Last-Event-ID": str(self.cursor)}
        )

    def _anew(self, stream: Stream) -> Stream:
        self.cursor = None
        self.expand, self.check = Expander(), Checker()
        return stream

    def read(self, stream: Stream, most: int | None = None) -> Reader:
        """Takes everything until the stream ends or, when ``most`` events have come, leaves."""
        stream.until(lambda one: one.ended.is_set() or (most is not None and len(one.items) >= most), 30)
        stream.close()
        self.returns += [seq for seq in stream.seqs if seq is not None][:1]
        for seq, event in stream.items:
            if seq is not None:
                assert self.cursor is None or seq == self.cursor + 1, "a hole or a repetition"
                self.cursor = seq
            else:
                assert self.cursor is None, "an event without a number inside the log"
            for each in self.expand(event):
                self.check(each)
                self.client.apply(each)
            self.over = event["type"] in TERMINAL
        return self

    def agrees(self) -> None:
        """That it has what one has that read the log from its beginning to its end."""
        log = self.run.watch(0)
        log.finish()
        stayed = Client(self.run.body["messages"], self.run.body["state"]).run(log.events)
        assert self.over
        assert self.client.messages == stayed.messages
        assert self.client.state == stayed.state
        assert self.client.warnings == []


def start(stack: Stack, events: list[Event], **props: Any) -> Run:
    run = stack.prepare("plays", events=events, **props)
    run.body |= {"messages": HISTORY, "state": STATE}
    return run


# --- two hundred joins -----------------------------------------------------------------------------------


def test_two_hundred_joins_at_random_moments_lose_nothing_and_double_nothing(stack: Stack):
    seed = int.from_bytes(os.urandom(4))

    def wander(number: int) -> Reader:
        dice = random.Random(seed + number)
        reader = Reader(start(stack, FAST, every=dice.choice([1, 2, 3]), pause=0.003))
        reader.read(reader.post(), dice.randrange(1, 30))
        while not reader.over:
            # Mostly by number, which is how a reader that is cut off goes on.
            ways = [reader.resume, reader.resume, reader.post, reader.snapshot, reader.connect]
            most = dice.choice([1, 2, 3, dice.randrange(1, 60)])
            reader.read(dice.choice(ways)(), most if len(reader.returns) < 12 else None)
        return reader

    readers: list[Reader] = []
    returns: list[int] = []
    with ThreadPoolExecutor(6) as pool:
        while len(returns) < 200:
            came = list(pool.map(wander, range(len(readers), len(readers) + 6)))
            readers += came
            returns += [seq for reader in came for seq in reader.returns[1:]]
    for reader in readers:
        reader.agrees()
        assert reader.run.effects() == ["START", "END"], seed
    assert sum(seq < len(FAST) + 2 for seq in returns) > 100, seed


# --- long runs, and runs that end badly ------------------------------------------------------------------


def test_a_run_of_five_thousand_deltas_is_joined_at_once_while_it_runs_and_when_it_has_ended(stack: Stack):
    run = stack.submit("counts", deltas=5000)
    run.live.until(lambda stream: len(stream.items) > 1000 or stream.ended.is_set())
    returning, late = Reader(run), Reader(run)
    returning.read(returning.post())
    run.live.finish()
    begun = time.monotonic()
    late.read(late.post())
    # The fold takes tens of milliseconds; the rest is room for a busy machine.
    assert elapsed(begun) < 3
    for reader in (returning, late):
        reader.agrees()
        assert reader.client.messages[-1]["content"] == "".join(f"{number} " for number in range(5000))
    check_invariants(stack, run)


def test_a_run_whose_worker_is_lost_ends_for_those_who_joined_before_and_after(
    make_stack: Callable[..., Stack],
):
    stack = make_stack()
    worker = stack.start(concurrency=2)
    run = stack.submit("waits")
    run.live.until_type("TEXT_MESSAGE_CONTENT")
    before, after = Reader(run), Reader(run)
    joined = before.post()
    joined.until_type("TEXT_MESSAGE_START")
    worker.signal_group(signal.SIGKILL)
    assert joined.finish(LOST_WITHIN)["code"] == "worker_lost"
    before.read(joined)
    for reader in (before, after.read(after.post())):
        reader.agrees()
        assert reader.client.messages[-1]["content"] == "waiting"
    check_invariants(stack, run)


def test_a_run_that_waits_for_its_turn_is_joined_and_followed_to_its_end(stack: Stack):
    active = stack.submit("waits", seconds=0.7)
    waiting = stack.submit("counts", thread_id=active.thread_id, deltas=5)
    reader = Reader(waiting)
    joined = reader.post()
    joined.until_type("MESSAGES_SNAPSHOT")
    assert waiting.record()["status"] == "queued"
    reader.read(joined).agrees()
    for run in (active, waiting):
        check_invariants(stack, run)


def test_reading_and_joining_a_recorded_run_executes_nothing(stack: Stack):
    run = stack.submit("counts", deltas=3)
    run.live.finish()
    for _ in range(3):
        reader = Reader(run)
        for way in (reader.post, reader.snapshot, reader.connect):
            reader.read(way()).agrees()
    assert run.effects() == ["START", "END"]
