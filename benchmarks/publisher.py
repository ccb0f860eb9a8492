"""The yardstick for one hop: a process that publishes the time, paced.

Run: python -m benchmarks.publisher URL CHANNEL COUNT PAUSE
"""

from __future__ import annotations

import sys
import time

from shared.store.connection import connect


def main(url: str, channel: str, count: str, pause: str) -> None:
    publish = connect(url).publish
    for _ in range(int(count)):
        publish(channel, str(time.monotonic_ns()))
        time.sleep(float(pause))
    publish(channel, "end")


if __name__ == "__main__":
    main(*sys.argv[1:])
