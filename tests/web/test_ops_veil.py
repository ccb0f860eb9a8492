"""No way out of a run tells what was said in it to who has no right to payloads, whatever role he has."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask.testing import FlaskClient

from shared.protocol import sse
from shared.protocol.events import EventType, TextMessageContentEvent, TextMessageStartEvent, dump
from shared.runs.access import Role
from shared.runs.outcome import FailureCode, Outcome
from shared.runs.veil import bare_traceback
from shared.store.log import Batch
from shared.store.search import Filter
from tests.web.operators import Desk, desk
from tests.web.played_worker import Caller, key_of, problem_of, run_input
from worker.failures import classify

__all__ = ["desk"]

SECRET = "xylophone"
QUESTION = {
    "id": "q1",
    "reason": "confirmation",
    "message": f"Send the {SECRET}?",
    "responseSchema": {"const": SECRET},
    "metadata": {"draft": SECRET},
}

SILENT = {
    "agents.start",
    "agents.list_agents",
    "agents.show_agent",
    "description.openapi",
    "health.live",
    "health.ready",
    "dashboard.static",
    "dashboard.sign_in_page",
    "dashboard.sign_in",
    "dashboard.sign_out",
    "dashboard.theme",
}
"""They tell nothing of a run, or only what the asker has just sent."""


class House:
    """Runs of ann's in every state, each full of the secret, and the doors to them."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.bulk = desk.store.bulk.create(Filter(), [key_of("nobody")], matched=1, by="olga", reason=None)
        self.keys = {name: self._run(name) for name in ("asked", "failed", "said", "running", "stopping")}
        self.keys["queued"] = self._submit("queued")
        desk.operator.post(f"/ops/api/runs/{self.keys['stopping']}/cancel")

    def _submit(self, name: str) -> str:
        given = run_input(name, f"thread-{name}", text=SECRET, state={"a": SECRET})
        given["forwardedProps"] = {"b": SECRET}
        answer = self.desk.ann.start_in_background(given)
        return str(answer.headers["Outlast-Run-Key"])

    def _run(self, name: str) -> str:
        key, worker = self._submit(name), self.desk.worker
        claim = worker.claim(key)
        events = (
            TextMessageStartEvent(type=EventType.TEXT_MESSAGE_START, message_id="m9", role="assistant"),
            TextMessageContentEvent(type=EventType.TEXT_MESSAGE_CONTENT, message_id="m9", delta=SECRET),
        )
        frames = tuple(sse.frame(seq, dump(event)) for seq, event in enumerate(events, 2))
        worker.store.log.append(Batch(key, claim.execution, 2, frames))
        if name == "asked":
            worker.finish(claim, Outcome.interrupted([QUESTION]))
        elif name == "failed":
            worker.finish(claim, Outcome.failed(FailureCode.AGENT_ERROR, detail=_detail(), incident="i1"))
        elif name == "said":
            worker.finish(claim, Outcome.succeeded(result={"c": SECRET}))
        return key


def _detail() -> str:
    try:
        {}[f"no {SECRET}"]
    except KeyError as cause:
        error = ValueError(f"bad\n{SECRET}: {SECRET}")
        error.__cause__ = cause
        return classify(error).detail or ""


def _ways(every: list[str], bulk: str) -> dict[str, list[tuple[str, str, dict[str, Any]]]]:
    """Endpoint -> requests, over every run and every tab."""

    def got(*paths: str) -> list[tuple[str, str, dict[str, Any]]]:
        return [("GET", path, {}) for path in paths]

    def posted(*paths: str, **form: Any) -> list[tuple[str, str, dict[str, Any]]]:
        return [("POST", path, form) for path in paths]

    def each(form: str) -> list[str]:
        return [form.format(one) for one in every]

    acts = ("cancel", "terminate", "mark-lost", "retry", "requeue")
    tabs = ("events", "input", "state", "attempts", "record", "audit")
    views = ("overview", "runs", "workers", "queues", "audit", f"bulk&id={bulk}")
    pages = [f"view={view}" for view in views] + [
        f"view=run&key={one}&tab={tab}" for one in every for tab in tabs
    ]
    shown = f"view=runs&shown={'.'.join(every)}"
    ways = {
        "runs.record_by_key": got(*each("/runs/{}")),
        "runs.record": got("/threads/thread-asked/runs/asked"),
        "runs.list_runs": got("/runs"),
        "runs.list_thread": got("/threads/thread-asked/runs"),
        "threads.connect": posted("/threads/thread-asked/connect", json=run_input("asked", "thread-asked")),
        "events.events_by_key": got(*each("/runs/{}/events")),
        "events.events": got("/threads/thread-asked/runs/asked/events"),
        "cancel.cancel_by_key": posted(*each("/runs/{}/cancel")),
        "cancel.cancel": posted("/threads/thread-asked/runs/asked/cancel"),
        "metrics.metrics": got("/metrics"),
        "ops_api.events": got(*each("/ops/api/runs/{}/events")),
        "ops_api.run": got(*each("/ops/api/runs/{}")),
        "ops_api.runs": got("/ops/api/runs", *[f"/ops/api/runs?q={SECRET}"]),
        "ops_api.bulk_cancel": posted(
            "/ops/api/bulk-cancel", json={"filter": {"agent": "echo"}, "dry_run": True}
        )
        + posted("/ops/api/bulk-cancel", json={"filter": {"agent": "echo"}, "confirm_count": 0}),
        "ops_api.bulk": got(f"/ops/api/bulk-cancel/{bulk}"),
        "ops_api.stop_bulk": posted(f"/ops/api/bulk-cancel/{bulk}/stop"),
        "ops_api.retry_bulk": posted(f"/ops/api/bulk-cancel/{bulk}/retry"),
        "ops_api.bulks": got("/ops/api/bulk-cancel"),
        "ops_api.audit_export": got("/ops/api/audit/export", "/ops/api/audit/export?format=csv"),
        "ops_api.mark_lost": posted(*each("/ops/api/runs/{}/mark-lost")),
        "dashboard.overview": got("/ops/"),
        "dashboard.runs": got("/ops/runs", f"/ops/runs?shown={'.'.join(every)}"),
        "dashboard.run": got(*[f"/ops/runs/{one}?tab={tab}&check=1" for one in every for tab in tabs]),
        "dashboard.ask_run": got(*[f"/ops/runs/{one}/{act}" for one in every for act in acts]),
        "dashboard.do_run": posted(*[f"/ops/runs/{one}/{act}" for act in acts for one in every]),
        "dashboard.download": got(*each("/ops/runs/{}/events.ndjson")),
        "dashboard.download_input": got(*each("/ops/runs/{}/input.json")),
        "dashboard.ask_selected": got("/ops/runs/selected?key=" + "&key=".join(every)),
        "dashboard.do_selected": posted("/ops/runs/selected", data={"key": every}),
        "dashboard.bulks": got("/ops/bulk"),
        "dashboard.bulk": got(f"/ops/bulk/{bulk}"),
        "dashboard.ask_bulk": got("/ops/bulk/new?agent=echo"),
        "dashboard.do_bulk": posted("/ops/bulk", data={"agent": "echo", "seen": "9", "reason": "flood"}),
        "dashboard.stop_bulk": posted(f"/ops/bulk/{bulk}/stop"),
        "dashboard.retry_bulk": posted(f"/ops/bulk/{bulk}/retry"),
        "dashboard.metrics": got("/ops/metrics"),
        "dashboard.ask_worker": got("/ops/workers/played@here/drain", "/ops/workers/played@here/shutdown"),
        "dashboard.do_worker": posted("/ops/workers/played@here/drain", "/ops/workers/played@here/shutdown"),
        "dashboard.ask_queue": got("/ops/queues/pause"),
        "dashboard.do_queue": posted("/ops/queues/pause"),
        "dashboard.audit_export": got("/ops/audit/export"),
        "dashboard.poll": got(*[f"/ops/poll?{page}" for page in (*pages, shown)]),
        "dashboard.stream": got(*[f"/ops/stream?{page}" for page in (*pages[:6], shown, *pages[6::6])]),
    }
    for name in ("attention", "workers", "queues", "stats", "audit", "system"):
        ways[f"ops_api.{name}"] = got(f"/ops/api/{name}")
    for name in ("workers", "queues", "audit", "system"):
        ways[f"dashboard.{name}"] = got(f"/ops/{name}")
    for name in ("cancel", "terminate", "retry", "requeue"):
        ways[f"ops_api.{name}"] = posted(*each(f"/ops/api/runs/{{}}/{name}"))
    for name in ("pause", "resume"):
        ways[f"ops_api.{name}"] = posted(f"/ops/api/{name}")
    for name in ("drain", "undrain", "shutdown"):
        ways[f"ops_api.{name}"] = posted(f"/ops/api/workers/played@here/{name}")
    return ways


def _signed_in(desk: Desk, *roles: Role) -> tuple[Caller, FlaskClient, str]:
    """One person with a key for the API, a browser, and the word that its forms carry."""
    secret, _ = desk.store.api_keys.create("otto", frozenset(roles))
    client = desk.app.test_client()
    word = _form_word(client, "/ops/sign-in")
    client.post("/ops/sign-in", data={"csrf": word, "token": secret, "next": "/ops/"})
    return (
        Caller(desk.app.test_client(), Authorization=f"Bearer {secret}"),
        client,
        _form_word(client, "/ops/"),
    )


def _form_word(client: FlaskClient, path: str) -> str:
    found = re.search(r'name="csrf" value="(\w+)"', client.get(path).text)
    assert found
    return found[1]


def _told(desk: Desk, group: str, *roles: Role) -> dict[str, str]:
    """Request -> everything that is answered, for each request of a group about each run."""
    caller, browser, word = _signed_in(desk, *roles)
    house, told = House(desk), {}
    ways = _ways(list(house.keys.values()), house.bulk.bulk_id)
    for endpoint, (method, path, options) in [(each, way) for each in GROUPS[group] for way in ways[each]]:
        if not endpoint.startswith("dashboard."):
            answer = caller.get(path) if method == "GET" else caller.post(path, buffered=False, **options)
        elif method == "GET":
            answer = browser.get(path, buffered=False)
        else:
            answer = browser.post(path, data={"csrf": word, **options.get("data", {})})
        assert answer.status_code < 500, (path, answer.data)
        most = 2 if path.startswith("/ops/stream") or endpoint in _LIVE else 10_000
        body = b"".join(_pieces(answer, most)).decode()
        told[f"{endpoint} {method} {path} {options}"] = f"{answer.headers}\n{body}"
        answer.close()
    return told


def _pieces(answer: Any, most: int) -> list[bytes]:
    pieces = iter(answer.response)
    return [piece for _, piece in zip(range(most), pieces, strict=False)]


_LIVE = {"events.events_by_key", "threads.connect"}
"""Streams, of which the beginning is read."""

ENDPOINTS = _ways([key_of("nobody")], "bulk")


def _groups() -> dict[str, list[str]]:
    """Blueprint and method -> its endpoints: those of a group are asked about the same runs."""
    groups: dict[str, list[str]] = {}
    for endpoint, ((method, _, _), *_) in ENDPOINTS.items():
        groups.setdefault(f"{endpoint.partition('.')[0]} {method}", []).append(endpoint)
    return groups


GROUPS = _groups()

TELLING = [
    *("runs.record_by_key", "events.events_by_key", "cancel.cancel_by_key"),
    *("ops_api.run", "ops_api.runs", "ops_api.events", "ops_api.cancel", "ops_api.terminate"),
    *("ops_api.mark_lost", "ops_api.requeue", "ops_api.retry"),
    *(
        "dashboard.run",
        "dashboard.download",
        "dashboard.download_input",
        "dashboard.poll",
        "dashboard.stream",
    ),
]
"""What tells the secret to those who may read it; otherwise the test below would prove nothing."""


@pytest.mark.parametrize("group", GROUPS)
def test_without_the_right_nobody_reads_what_was_said(desk: Desk, group: str):
    told = _told(desk, group, Role.ADMIN)
    assert [way for way, said in told.items() if SECRET in said.replace(f"q={SECRET}", "")] == []


@pytest.mark.parametrize(
    "group", ["runs GET", "events GET", "cancel POST", "ops_api GET", "ops_api POST", "dashboard GET"]
)
def test_with_the_right_it_is_read(desk: Desk, group: str):
    told = _told(desk, group, Role.ADMIN, Role.PAYLOADS)
    telling = {way.split()[0] for way, said in told.items() if SECRET in said.replace(f"q={SECRET}", "")}
    assert telling >= set(TELLING) & set(GROUPS[group])


def test_every_way_out_is_among_them(desk: Desk):
    assert {rule.endpoint for rule in desk.app.url_map.iter_rules()} == {*ENDPOINTS, *SILENT}


def test_a_retry_on_a_thread_that_waits_for_answers_says_so_without_the_question(desk: Desk):
    key = desk.submit("first", "letters")
    desk.worker.run(key)
    asked = desk.submit("second", "letters")
    desk.worker.run(asked, outcome=Outcome.interrupted([QUESTION | {"id": "q2"}]))
    answer = desk.operator.post(f"/ops/api/runs/{key}/retry")
    body = problem_of(answer, 409, "INTERRUPT_OPEN")
    assert [one["id"] for one in body["interrupts"]] == ["q2"]
    assert body["run"]["run_id"] == "second"
    assert SECRET not in answer.text


def test_of_an_exception_the_places_and_kinds_are_left():
    told = bare_traceback(f"provider status 400\n{_detail()}")
    assert told.startswith("provider status 400\nTraceback (most recent call last):\n  File ")
    assert "in _detail" in told
    assert "ValueError: (hidden" in told or "KeyError: (hidden" in told
    assert SECRET not in told
    assert bare_traceback(SECRET) == "(hidden: needs the right payloads)"
