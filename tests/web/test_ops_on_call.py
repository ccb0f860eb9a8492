"""What somebody who is called at night reads and may press."""

from __future__ import annotations

import re
import subprocess
from html import unescape

import pytest
from flask.testing import FlaskClient

from shared.store import keys
from shared.store.stats import Histogram
from shared.store.store import Store
from tests.web.operators import Desk, desk
from tests.web.played_worker import Caller, PlayedWorker, key_of, problem_of, run_input
from web.ops import plots
from web.ops.wording import few_words

__all__ = ["desk"]

KEY = key_of("run")
FACTS = {"host": "h", "slots": 8, "busy": 1, "pool": "threads"}
NO_REASON = "Say why: the audit keeps it. Nothing was done."


@pytest.fixture
def client(app) -> FlaskClient:
    return app.test_client()


def _post(client: FlaskClient, path: str, **fields: object):
    token = re.search(r'name="csrf" value="(\w+)"', client.get("/ops/").text)
    assert token
    answer = client.post(path, data={"csrf": token[1], **fields})
    return client.get(answer.location).text


def _orphan(caller: Caller, worker: PlayedWorker) -> None:
    caller.start_in_background()
    worker.claim(KEY)
    # Late by having none: one that ran out would be the sweep's at once.
    worker.store.client.zrem(keys.leases(KEY[:2]), KEY)


def _no_worker(store: Store) -> None:
    for beat in store.workers.alive():
        store.workers.leave(beat.name)


def _attention(client: FlaskClient) -> str:
    found = re.search(r'id="p-attention".*?</section>', client.get("/ops/").text, re.DOTALL)
    assert found
    return found[0]


# --- what the first page says when nothing is late ---------------------------------------------------------


def test_a_queued_run_without_a_worker_is_not_said_to_be_well(client, caller, store):
    caller.start_in_background()
    _no_worker(store)
    shown = _attention(client)
    assert "Nothing yet. 1 live run is within its limits, but no worker is heard of." in shown
    assert "#g-tick" not in shown


def test_a_worker_that_is_silent_lends_no_tick_and_no_slots(client, caller, store):
    caller.start_in_background()
    _no_worker(store)
    store.workers.beat("w@h", FACTS, {})
    assert "Nothing yet. 1 live run is within its limits.</p>" in _attention(client)
    assert "#g-tick" in _attention(client)
    assert "1 of 8 slots" in client.get("/ops/").text
    store.client.pexpire(keys.worker("w@h"), 8_000)
    assert "#g-tick" not in _attention(client)
    page = client.get("/ops/").text
    assert "of 8 slots" not in page
    assert "no worker is heard of" in page


def test_an_orphan_is_marked_lost_from_its_row_and_nobody_is_asked_to_cancel_it(client, caller, worker):
    _orphan(caller, worker)
    row = _attention(client)
    assert f"/ops/runs/{KEY}/mark-lost" in row
    assert f"/ops/runs/{KEY}/cancel" not in row
    assert "Force stop" not in client.get(f"/ops/runs/{KEY}").text


# --- reasons -----------------------------------------------------------------------------------------------


def test_no_run_is_forced_to_stop_without_a_reason(client, caller, worker, store, eventually):
    caller.start_in_background()
    worker.claim(KEY)
    _post(client, f"/ops/runs/{KEY}/cancel")
    eventually(lambda: 'name="reason"' in client.get(f"/ops/runs/{KEY}/terminate").text, 10)
    assert "required" in client.get(f"/ops/runs/{KEY}/terminate").text
    assert NO_REASON in _post(client, f"/ops/runs/{KEY}/terminate", reason="  ")
    assert store.runs.get(KEY).status == "running"
    assert "ended as cancelled" in _post(client, f"/ops/runs/{KEY}/terminate", reason="deaf")


def test_no_run_is_marked_lost_without_a_reason(client, caller, worker, store):
    _orphan(caller, worker)
    assert NO_REASON in _post(client, f"/ops/runs/{KEY}/mark-lost", typed=KEY[:8])
    assert store.runs.get(KEY).status == "running"


def test_no_runs_are_cancelled_together_without_a_reason(client, caller, store):
    caller.start_in_background()
    assert NO_REASON in _post(client, "/ops/bulk", agent="echo", seen="1")
    assert NO_REASON in _post(client, "/ops/runs/selected", key=KEY)
    assert store.bulk.recent() == []
    for path in (f"/ops/runs/selected?key={KEY}", "/ops/bulk/new?agent=echo"):
        assert re.search(r'name="reason"[^>]*required', client.get(path).text)


# --- the audit ---------------------------------------------------------------------------------------------


def test_the_audit_names_run_thread_and_agent_and_an_expired_one_by_its_key(client, caller, store):
    caller.start_in_background(run_input("morning-report", "weather"))
    key, gone = key_of("morning-report", "weather"), key_of("gone")
    _post(client, f"/ops/runs/{key}/cancel")
    _post(client, f"/ops/runs/{gone}/cancel")
    page = client.get("/ops/audit").text
    assert ">morning-report</a>" in page
    assert "echo · weather" in page
    assert f"<code>{gone[:12]}…</code>" in page


def test_an_act_has_the_word_of_its_button(client, caller, worker, store):
    caller.start_in_background()
    worker.claim(KEY)
    store.client.hset(keys.record(KEY), mapping={"cancel_requested_at": 1, "cancel_by": "ann"})
    _post(client, f"/ops/runs/{KEY}/terminate", reason="deaf")
    for path in ("/ops/audit", f"/ops/runs/{KEY}?tab=audit"):
        page = client.get(path).text
        assert '<th scope="row">force stop</th>' in page
        assert ">force stopped</span>" in page
    assert client.get("/ops/api/audit").get_json()["entries"][0]["action"] == "terminate"


def test_an_act_on_a_text_that_is_no_run_key_is_refused_and_audited(desk: Desk):
    problem_of(desk.operator.post("/ops/api/runs/no-key/cancel"), 404, "UNKNOWN_RUN")
    (entry,) = desk.audit()
    assert (entry["action"], entry["result"], "run" in entry) == ("cancel", "refused", False)


# --- numbers, the hint -------------------------------------------------------------------------------------


def test_one_value_is_told_as_it_is_and_few_by_their_bound():
    one, few = Histogram(sum_ms=15_000), Histogram()
    one.counts[11] = 1
    few.counts[3], few.counts[11] = 4, 1
    assert (one.quantile_ms(0.5), one.quantile_ms(0.95)) == (15_000, 15_000)
    assert few_words(one.document()) == "one: 15 s"
    assert few_words(few.document()) == "5: all ≤ 30 s"
    assert "mark-p95" not in str(plots.histogram(few.document(), "Cancel latency").svg)
    few.counts[3] = 40
    assert "mark-p95" in str(plots.histogram(few.document(), "Cancel latency").svg)


def test_the_command_that_starts_a_first_run_makes_its_own_ids(client):
    command = re.search(r"<code>(curl.*?)</code>", client.get("/ops/runs").text, re.DOTALL)
    assert command
    script = f"curl() {{ for word; do printf '%s\\n' \"$word\"; done; }}; {unescape(command[1])}"
    told = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert re.search(r'"threadId": "t-\d+", "runId": "r-\d+"', told)
