"""The yardstick for dispatch: Celery with its defaults and one task that does nothing.

Run: celery -A benchmarks.bare_celery -b redis://... worker --pool threads
"""

from __future__ import annotations

import time
from pathlib import Path

from celery import Celery

app = Celery("bare", set_as_current=False)
app.conf.broker_connection_retry_on_startup = True

_delays: list[int] = []


@app.task(ignore_result=True)
def noop(sent_ns: int) -> None:
    """Notes how long ago it was sent; the monotonic clock is the machine's."""
    _delays.append(time.monotonic_ns() - sent_ns)


@app.task(ignore_result=True)
def report(path: str) -> None:
    """Writes the delays noted so far, and forgets them."""
    noted = _delays[:]
    del _delays[:]
    written = Path(path).with_suffix(".part")
    written.write_text(" ".join(map(str, noted)))
    written.rename(path)
