"""Runs all measures in rounds, each beside its yardstick, and prints the table. See benchmarks/README.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.installation import Installation
from benchmarks.table import Row, rows, shown

HEAD = ["#", "measure", "ours", "yardstick", "ratio (least-most)", "goal", "met"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument(
        "--plain-python", type=Path, required=True, help="a Python that has fastapi and uvicorn"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="numbers of measures, separated by commas")
    options = parser.parse_args()
    wanted = set(filter(None, options.only.split(",")))
    chosen = [row for row in rows() if not wanted or row.number in wanted]
    installation = Installation(
        Path(tempfile.mkdtemp(prefix="outlast-bench-")), options.plain_python.absolute()
    )
    try:
        for number in range(options.rounds + 1):
            _round(chosen, installation, number)
    finally:
        installation.close()
    _print(chosen)


def _round(chosen: list[Row], installation: Installation, number: int) -> None:
    for row in chosen:
        ours, other = row.take(installation, ours_first=number % 2 == 0)
        if number == 0:
            row.rounds.clear()  # warms everything up and does not count
        what = f"round {number}: {row.number} {row.name}: {shown(ours)} {row.unit}"
        print(f"{what}, {row.against} {shown(other)}" if row.against else what, file=sys.stderr, flush=True)


def _print(chosen: list[Row]) -> None:
    for cells in [HEAD, ["---"] * len(HEAD), *(row.cells() for row in chosen)]:
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
