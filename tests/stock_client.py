"""The stock AG-UI client from npm, asked by the programs in ``tests/journeys/client``."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CLIENT = Path(__file__).resolve().parent / "journeys" / "client"

needs_client = pytest.mark.skipif(
    shutil.which("node") is None or not (CLIENT / "node_modules" / "@ag-ui" / "client").is_dir(),
    reason="needs node, and `npm ci` in tests/journeys/client",
)


def ask(program: str, asked: dict[str, Any], *, seconds: float = 60) -> dict[str, Any]:
    """What a program answers; it reads and writes one JSON document."""
    done = subprocess.run(
        ["node", program],
        cwd=CLIENT,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))
