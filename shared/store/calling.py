"""Which call to a provider a running run is waiting for, as its record shows it."""

from __future__ import annotations

from collections.abc import Mapping

from shared.store import keys
from shared.store.connection import Client, ask
from shared.store.scripts import run_each, scripts


class Calling:
    """Writes the record's field ``calling``; the ending removes it."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def tell(self, calls: Mapping[tuple[str, str], str | None]) -> None:
        """Run key and execution id -> the call as JSON, or None when it is over; in one round trip.

        Repeating it is harmless, and another execution's run is left alone. Raises ``StoreError``.
        """
        asked = [((keys.record(key),), (execution, call or "")) for (key, execution), call in calls.items()]
        ask(lambda: run_each(self.client, scripts().calling, asked), tries=1)
