"""``/metrics``: text that Prometheus can read, the same from every web process."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from flask import Flask

from shared.runs.outcome import FailureCode, Outcome
from shared.store import keys
from shared.store.sweep import Sweep
from tests.web.operators import Desk, desk
from tests.web.played_worker import Caller, problem_of

__all__ = ["desk"]

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\+Inf|-Inf|NaN|-?[0-9.e+-]+)")

Samples = dict[tuple[str, str], float]


def parse(text: str) -> Samples:
    """Reads exposition format 0.0.4 strictly: every sample under its family's TYPE, each once."""
    assert text.endswith("\n")
    types: dict[str, str] = {}
    samples: Samples = {}
    current = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert current not in types
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current
            assert kind in {"counter", "gauge", "histogram"}
            types[name] = kind
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            suffix = found[1].removeprefix(current)
            assert suffix in ({"_bucket", "_sum", "_count"} if types[current] == "histogram" else {""}), line
            assert (types[current] == "counter") <= current.endswith("_total"), line
            assert (found[1], found[2] or "") not in samples
            samples[found[1], found[2] or ""] = float(found[3])
    for name, kind in types.items():
        if kind == "histogram":
            buckets = [value for (family, _), value in samples.items() if family == f"{name}_bucket"]
            assert buckets == sorted(buckets)
            assert (f"{name}_bucket", 'le="+Inf"') in samples
            assert buckets[-1] == samples[f"{name}_count", ""]
    return samples


def scrape(caller: Caller) -> Samples:
    answer = caller.get("/metrics")
    assert answer.status_code == 200
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    return parse(answer.get_data(as_text=True))


def test_runs_are_counted_by_agent_outcome_and_code(desk: Desk):
    desk.worker.run(desk.submit("r1"), outcome=Outcome.failed(FailureCode.TRANSPORT_TIMEOUT))
    desk.worker.run(desk.submit("r2"), "hello")
    desk.submit("r3")
    samples = scrape(desk.viewer)
    assert samples["outlast_runs_accepted_total", ""] == 3
    labels = 'agent="echo",outcome="failed",code="transport_timeout"'
    assert samples["outlast_runs_total", labels] == 1
    assert samples["outlast_runs_total", 'agent="echo",outcome="succeeded",code=""'] == 1
    assert samples["outlast_duration_seconds_count", ""] == 2
    assert samples["outlast_queue_depth", ""] == 1
    assert samples["outlast_live_runs", 'state="ready"'] == 1
    assert samples["outlast_workers", ""] == 1


def test_runs_that_the_sweep_gave_to_their_next_attempt_are_counted(desk: Desk):
    store, key = desk.store, desk.submit("r1")
    store.runs.claim(key, "e1", worker="w1", host="h", pid=7, retries={"echo": 1})
    store.client.zadd(keys.leases(key[:2]), {key: 1})
    Sweep(store.runs, store.log, enqueue=lambda key: None, queue_depth=lambda: 0, patient=False).tick()
    acts = {labels: count for (name, labels), count in scrape(desk.viewer).items() if "sweep_runs" in name}
    assert acts['act="retried"'] == 1
    assert acts['act="ended"'] == 0


def test_every_web_process_tells_the_same(desk: Desk, make_app: Callable[..., Flask]):
    desk.worker.run(desk.submit("r1"))
    other = Caller(make_app(auth="keys").test_client(), **desk.viewer.headers)
    shared = [name for name, labels in scrape(desk.viewer) if "process=" not in labels]
    first, second = scrape(desk.viewer), scrape(other)
    steady = [name for name in shared if not name.startswith(("outlast_sweep", "outlast_queue_oldest"))]
    for key, value in first.items():
        if key[0] in steady:
            assert second[key] == value, key


def test_odd_agent_names_are_escaped(desk: Desk):
    desk.store.client.hset("outlast:{b0}:totals", 'a "b"\\\n|failed|AGENT_ERROR', 2)
    samples = scrape(desk.viewer)
    assert samples["outlast_runs_total", 'agent="a \\"b\\"\\\\\\n",outcome="failed",code="AGENT_ERROR"'] == 2


def test_metrics_need_a_viewer_unless_they_are_public(desk: Desk, make_app: Callable[..., Flask]):
    problem_of(desk.ann.get("/metrics"), 403, "FORBIDDEN")
    problem_of(Caller(desk.app.test_client()).get("/metrics"), 401, "UNAUTHENTICATED")
    public = Caller(make_app(auth="keys", metrics_public=True).test_client())
    scrape(public)
    problem_of(public.get("/ops/api/stats"), 401, "UNAUTHENTICATED")


@pytest.mark.parametrize("broken", ["a b 1\n", 'x{a="b} 1\n', "x{a=b} 1\n"])
def test_the_parser_of_this_test_refuses_what_is_not_the_format(broken: str):
    with pytest.raises((AssertionError, KeyError)):
        parse(f"# HELP x y\n# TYPE x gauge\n{broken}")
