"""The store as the rooms hold it: one bundle over one client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shared.runs.identity import BUCKETS, short_digest
from shared.settings import Settings
from shared.store import keys
from shared.store.api_keys import ApiKeys
from shared.store.audit import Audit
from shared.store.bulk import BulkCancels
from shared.store.connection import Client, ask, connect
from shared.store.controls import Controls
from shared.store.listing import RunListing
from shared.store.live import LiveRuns
from shared.store.log import EventLog
from shared.store.runs import RunStore
from shared.store.search import RunSearch
from shared.store.stats import Stats
from shared.store.workers import Workers


@dataclass(frozen=True, slots=True)
class Store:
    """Everything Redis holds; make it after a fork, never before."""

    client: Client
    settings: Settings
    runs: RunStore
    log: EventLog
    listing: RunListing
    workers: Workers
    api_keys: ApiKeys
    live: LiveRuns
    search: RunSearch
    stats: Stats
    audit: Audit
    bulk: BulkCancels
    controls: Controls

    def ping(self) -> bool:
        """Whether Redis answers; raises ``StoreError`` when it does not."""
        return bool(ask(self.client.ping, tries=1))

    def active_runs(self, actor: str) -> int:
        """Queued and running runs of one actor, over all buckets; soft: acceptance does not check it."""
        digest = short_digest(actor)

        def read() -> list[Any]:
            pipeline = self.client.pipeline(transaction=False)
            for bucket in BUCKETS:
                pipeline.hget(keys.active(bucket), digest)
            return list(pipeline.execute())

        return sum(int(count or 0) for count in ask(read))

    def push(self, queue: str, message: bytes) -> None:
        """Puts a prepared queue message where Celery's consumers take it.

        A lost answer is not asked again: the sweep repairs a lost message.
        """
        ask(lambda: self.client.lpush(queue, message), tries=1)

    def queue_depth(self, queue: str) -> int:
        """Messages in the broker queue that no worker has taken."""
        return int(ask(lambda: self.client.llen(queue)))

    def server_info(self, section: str) -> dict[str, Any]:
        """One section of INFO."""
        return dict(ask(lambda: self.client.info(section)))

    def config(self, name: str) -> str | None:
        """One server setting, or None where reading settings is not allowed."""
        found = ask(lambda: self.client.config_get(name))
        return next(iter(found.values()), None) if found else None

    def close(self) -> None:
        """Closes the connections."""
        self.client.close()
        self.client.connection_pool.disconnect()


def open_store(settings: Settings) -> Store:
    """A store over a new client; nothing is sent until it is used."""
    client = connect(settings.redis_url)
    runs, event_log = RunStore(client, settings), EventLog(client)
    listing, live = RunListing(client), LiveRuns(client, settings)
    return Store(
        client=client,
        settings=settings,
        runs=runs,
        log=event_log,
        listing=listing,
        workers=Workers(client),
        api_keys=ApiKeys(client),
        live=live,
        search=RunSearch(client, listing, live),
        stats=Stats(client),
        audit=Audit(client, settings.audit_seconds),
        bulk=BulkCancels(client, runs, event_log),
        controls=Controls(client),
    )
