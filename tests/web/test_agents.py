"""GET /agents: what workers offer."""

from __future__ import annotations

from flask import Flask

from shared.store import keys
from tests.web.played_worker import Caller, PlayedWorker, problem_of, run_input


def test_agents_are_listed_by_name_with_what_workers_say_of_them(caller: Caller, worker: PlayedWorker):
    worker.store.workers.beat("w", {}, {"able": {"capabilities": {"transport": {"streaming": True}}}})
    assert caller.get("/agents").get_json() == {
        "agents": [
            {"name": "able", "capabilities": {"transport": {"streaming": True}}},
            {"name": "echo", "description": "The agent echo.", "policy": "enqueue"},
        ]
    }


def test_one_agent_is_described(caller: Caller):
    assert caller.get("/agents/echo").get_json()["description"] == "The agent echo."


def test_an_agent_that_nobody_offers_is_unknown_and_the_answer_names_the_others(caller: Caller):
    assert "echo" in problem_of(caller.get("/agents/nobody"), 404, "UNKNOWN_AGENT")["detail"]
    problem_of(caller.start(agent="nobody"), 404, "UNKNOWN_AGENT")


def test_without_any_worker_clients_are_told_to_come_back(app: Flask):
    caller = Caller(app.test_client())
    for response in (caller.get("/agents"), caller.get("/agents/echo"), caller.start(run_input())):
        problem_of(response, 503, "NO_WORKER")
        assert int(response.headers["Retry-After"]) > 0


def test_the_first_worker_is_seen_at_once(app: Flask, store):
    caller = Caller(app.test_client())
    problem_of(caller.start(), 503, "NO_WORKER")
    PlayedWorker(store).offer(echo="enqueue")
    assert caller.start_in_background().status_code == 202


def test_the_catalogue_is_read_from_redis_about_once_a_second(caller: Caller, worker: PlayedWorker):
    caller.get("/agents")
    before = worker.store.server_info("commandstats")["cmdstat_hgetall"]["calls"]
    for _ in range(20):
        caller.get("/agents")
    assert worker.store.server_info("commandstats")["cmdstat_hgetall"]["calls"] <= before + 1


def test_an_agent_name_travels_percent_encoded(caller: Caller, worker: PlayedWorker):
    worker.offer(**{"großer Bruder": "enqueue"})
    assert caller.get("/agents/gro%C3%9Fer%20Bruder").get_json()["name"] == "großer Bruder"


def gone(store, name: str, *, long: bool) -> None:
    """A worker stops; after a long time nothing but the catalogue knows its agents."""
    store.workers.leave(name)
    if long:
        store.client.delete(*(keys.offer(agent) for agent in ("echo", "old")))
        store.workers.beat("other", {}, {"new": {"policy": "enqueue"}})


def test_agents_of_workers_long_gone_are_refused_where_other_workers_are_up(
    caller: Caller, worker: PlayedWorker
):
    gone(worker.store, worker.name, long=True)
    assert [agent["name"] for agent in caller.get("/agents").get_json()["agents"]] == ["new"]
    detail = problem_of(caller.start(agent="echo"), 404, "UNKNOWN_AGENT")["detail"]
    assert detail == (
        "No worker offers the agent 'echo'. There are: new. 'echo' is known from a worker that is gone."
    )


def test_while_workers_restart_their_agents_are_marked_and_their_runs_accepted(
    caller: Caller, worker: PlayedWorker
):
    worker.store.workers.beat("other", {}, {"new": {"policy": "enqueue"}})
    gone(worker.store, worker.name, long=False)
    listed = {agent["name"]: agent for agent in caller.get("/agents").get_json()["agents"]}
    assert listed["echo"]["available"] is False
    assert "available" not in listed["new"]
    assert caller.start_in_background(agent="echo").status_code == 202


def test_while_no_worker_is_up_known_agents_are_accepted_and_others_told_so(
    caller: Caller, worker: PlayedWorker
):
    gone(worker.store, worker.name, long=False)
    worker.store.client.delete(keys.offer("echo"))
    assert caller.start_in_background(agent="echo").status_code == 202
    detail = problem_of(caller.start(run_input("b"), agent="nobody"), 404, "UNKNOWN_AGENT")["detail"]
    assert detail == "No worker is up. Known from workers that are gone: echo."
