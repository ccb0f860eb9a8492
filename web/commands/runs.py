"""``flask runs``: list, show, cancel, follow and sweep runs from the shell."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import click

from shared.protocol import sse
from shared.runs.identity import KEY_PATTERN
from shared.runs.lifecycle import Status
from shared.runs.outcome import StopCause
from shared.runs.record import RunRecord, rfc3339
from shared.store.log import EventLog
from shared.store.store import Store
from shared.store.sweep import Sweep
from web.commands.asking import AskingGroup, table
from web.services import services
from web.stops import Wish, stop_run

ASKED_BY = "shell"
POLL_SECONDS = 0.2

group = AskingGroup("runs", help="Runs: list, show, cancel, follow, sweep.")


def _run_key(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if KEY_PATTERN.fullmatch(value) is None:
        raise click.BadParameter(f"{value!r} is not a run key; `flask runs list` shows them", ctx, parameter)
    return value


@group.command("list")
@click.option(
    "--status", type=click.Choice([str(status) for status in Status]), help="Only runs in this status."
)
@click.option("--agent", help="Only runs of this agent.")
@click.option("--actor", help="Only runs of this actor.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="At most so many."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_runs(status: str | None, agent: str | None, actor: str | None, limit: int, as_json: bool) -> None:
    """Runs, newest first."""

    def keep(record: RunRecord) -> bool:
        return (status is None or record.status == status) and (agent is None or record.agent == agent)

    listing = services().store.listing
    page = (
        listing.of_actor(actor, limit=limit, keep=keep) if actor else listing.of_all(limit=limit, keep=keep)
    )
    if as_json:
        for record in page.records:
            click.echo(json.dumps(record.operator_view(), ensure_ascii=False))
        return
    rows = [
        (
            record.key,
            record.texts.get("code", str(record.status)),
            record.agent,
            record.identity.actor,
            rfc3339(record.times["created_at"]),
            str(record.last_seq),
        )
        for record in page.records
    ]
    table(("KEY", "STATUS", "AGENT", "ACTOR", "CREATED", "EVENTS"), rows)
    if page.cursor:
        click.echo(f"There are more; --limit {limit * 2} shows them.", err=True)


@group.command()
@click.argument("key", callback=_run_key)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def show(key: str, as_json: bool) -> None:
    """The record of one run, failure detail included."""
    shown = _record(services().store, key).operator_view()
    if as_json:
        click.echo(json.dumps(shown, ensure_ascii=False))
        return
    width = max(map(len, shown))
    for name, value in shown.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        click.echo(f"{name.ljust(width)}  {text}")


@group.command()
@click.argument("key", callback=_run_key)
@click.option("--reason", help="Kept in the record.")
@click.option("--wait", type=click.FloatRange(0), default=0.0, help="Seconds to wait for the outcome.")
def cancel(key: str, reason: str | None, wait: float) -> None:
    """Asks one run to stop."""
    held = services()
    record = _record(held.store, key)
    wish = Wish(ASKED_BY, StopCause.OPERATOR, reason)
    answer = stop_run(held.store, held.queue, record.identity, wish)
    deadline = time.monotonic() + wait
    record = _record(held.store, key)
    while not record.ended and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        record = _record(held.store, key)
    if answer == "ended":
        raise click.ClickException(f"The run had ended: {record.status}.")
    click.echo(f"The run ended: {record.status}." if record.ended else "The run was asked to stop.")


@group.command()
@click.argument("key", callback=_run_key)
@click.option("--after", type=click.IntRange(0), default=0, help="Only events after this number.")
@click.option("--follow", is_flag=True, help="Go on until the run has ended.")
def events(key: str, after: int, follow: bool) -> None:
    """The events of one run, one JSON object per line."""
    store = services().store
    _record(store, key)
    for frame in _frames(store.log, key, after, follow=follow):
        click.echo(sse.data_of(frame))


@group.command()
def sweep() -> None:
    """One pass of the sweep: end lost runs, send lost queue messages again, expire old runs."""
    held = services()
    one = Sweep(
        held.store.runs,
        held.store.log,
        enqueue=held.queue.enqueue,
        queue_depth=held.queue.depth,
        patient=False,
    )
    swept = one.tick()
    if swept is None:
        click.echo("Another process is sweeping; it does the same within seconds.")
        return
    click.echo(
        f"Ended {swept.ended} lost and {swept.timed_out} timed-out runs, "
        f"put {swept.retried} back, enqueued {swept.enqueued} again, expired {swept.expired}."
    )


def _record(store: Store, key: str) -> RunRecord:
    record = store.runs.get(key)
    if record is None:
        expired = " any more: it is past its retention" if store.runs.expired(key) else ""
        raise click.ClickException(f"There is no run {key}{expired}.")
    return record


def _frames(log: EventLog, key: str, after: int, *, follow: bool) -> Iterator[bytes]:
    while True:
        page = log.read(key, after)
        yield from page
        after += len(page)
        if page and sse.is_terminal(page[-1]):
            return
        if not page:
            if not follow:
                return
            time.sleep(POLL_SECONDS)
