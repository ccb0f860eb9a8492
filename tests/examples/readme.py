"""The curl lines of an example's README, carried out on the stack of its test."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.journeys.stack import Stack


def curl_of(readme: Path, stack: Stack) -> str:
    """What the README's only curl line prints."""
    (line,) = curls_of(readme, stack)
    return printed(line)


def curls_of(readme: Path, stack: Stack) -> list[str]:
    """The README's curl lines, for this stack."""
    snippets = re.findall(r"^```sh\n(.*?)^```$", readme.read_text(), re.DOTALL | re.MULTILINE)
    there = f"127.0.0.1:{stack.port}"
    return [line.replace("127.0.0.1:8000", there) for line in snippets if line.startswith("curl")]


def printed(line: str) -> str:
    """What a shell line prints; it must succeed."""
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=30).stdout
