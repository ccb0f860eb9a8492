"""Plays the worker's part through the store, and speaks to the application as a client does."""

from __future__ import annotations

import json
from typing import Any

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from shared.protocol import sse
from shared.protocol.events import dump
from shared.runs.identity import RunIdentity
from shared.runs.outcome import Outcome
from shared.store.answers import Claim
from shared.store.ending import terminal_event
from shared.store.log import Batch
from shared.store.runs import new_execution
from shared.store.store import Store

Body = dict[str, Any]


class PlayedWorker:
    """A worker without a process: offers agents, claims, writes events, ends runs."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.name = "played@here"

    def offer(self, **policies: str) -> None:
        """Puts agents with their thread policies into the catalogue."""
        agents = {
            agent: {"description": f"The agent {agent}.", "policy": policy}
            for agent, policy in policies.items()
        }
        self.store.workers.beat(self.name, {"pid": 1}, agents)

    def claim(self, key: str) -> Claim:
        claim = self.store.runs.claim(key, new_execution(), worker=self.name, host="here", pid=1)
        assert claim is not None
        return claim

    def say(self, claim: Claim, *texts: str) -> None:
        """One batch of deltas in one message."""
        first = self.store.log.last_seqs([claim.key])[0] + 1
        frames = tuple(
            sse.frame(
                first + number,
                json.dumps({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": text}).encode(),
            )
            for number, text in enumerate(texts)
        )
        assert self.store.log.append(Batch(claim.key, claim.execution, first, frames)).state == "ok"

    def finish(self, claim: Claim, outcome: Outcome | None = None) -> None:
        ending = outcome or Outcome.succeeded()
        first = self.store.log.last_seqs([claim.key])[0] + 1
        frame = sse.frame(first, dump(terminal_event(claim.identity, ending)))
        answer = self.store.runs.finish(
            claim.key, claim.execution, first_seq=first, outcome=ending, frames=[frame]
        )
        assert answer.recorded

    def run(self, key: str, *texts: str, outcome: Outcome | None = None) -> None:
        """From the claim to the ending."""
        claim = self.claim(key)
        if texts:
            self.say(claim, *texts)
        self.finish(claim, outcome)

    def messages(self) -> int:
        """Messages in the broker's queue."""
        return self.store.queue_depth(self.store.settings.queue)


def key_of(run_id: str, thread_id: str = "thread", actor: str = "local") -> str:
    return RunIdentity(actor, thread_id, run_id).key


def run_input(run_id: str = "run", thread_id: str = "thread", text: str = "hello", **members: Any) -> Body:
    message = {"id": "m1", "role": "user", "content": text}
    return {"threadId": thread_id, "runId": run_id, "messages": [message], **members}


class Caller:
    """A client that posts runs and reads streams."""

    def __init__(self, client: FlaskClient, **headers: str) -> None:
        self.client = client
        self.headers = headers

    def start(
        self, body: Body | None = None, *, agent: str = "echo", query: str = "", **headers: str
    ) -> TestResponse:
        """Posts a run and does not read the stream yet."""
        return self.client.post(
            f"/agents/{agent}{query}", json=body or run_input(), headers=self._sent(headers), buffered=False
        )

    def start_in_background(self, body: Body | None = None, **options: Any) -> TestResponse:
        return self.start(body, Prefer="respond-async", **options)

    def get(self, path: str, **headers: str) -> TestResponse:
        return self.client.get(path, headers=self._sent(headers), buffered=False)

    def post(self, path: str, **options: Any) -> TestResponse:
        return self.client.post(path, headers=self._sent(options.pop("headers", {})), **options)

    def _sent(self, headers: dict[str, str]) -> dict[str, str]:
        return self.headers | {name.replace("_", "-"): value for name, value in headers.items()}


def events_of(response: TestResponse) -> list[tuple[int, Body]]:
    """Every event of a stream with its id, read to the stream's end."""
    assert (response.status_code, response.content_type) == (200, "text/event-stream")
    text = b"".join(response.response)
    response.close()
    frames = [part + b"\n\n" for part in text.split(b"\n\n") if part and not part.startswith(b":")]
    return [(sse.seq_of(frame), json.loads(sse.data_of(frame))) for frame in frames]


def types_of(response: TestResponse) -> list[str]:
    return [event["type"] for _, event in events_of(response)]


def problem_of(response: TestResponse, status: int, code: str) -> Body:
    """The body of a refusal, after checking its form."""
    assert response.content_type == "application/json"
    assert response.status_code == status, response.data
    body = response.get_json()
    assert {"type", "title", "status", "detail", "instance", "code"} <= body.keys()
    assert (body["status"], body["code"]) == (status, code)
    return body


def starts(message_id: str = "m") -> Body:
    return {"type": "TEXT_MESSAGE_START", "messageId": message_id, "role": "assistant"}


def says(text: str, message_id: str = "m") -> Body:
    return {"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": text}


def ends(message_id: str = "m") -> Body:
    return {"type": "TEXT_MESSAGE_END", "messageId": message_id}
