"""The shell lines of an example's README, carried out on the stack of its test."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.journeys.stack import Stack


def curl_of(readme: Path, stack: Stack) -> str:
    """What the README's curl line prints."""
    snippets = re.findall(r"^```sh\n(.*?)^```$", readme.read_text(), re.DOTALL | re.MULTILINE)
    (line,) = [snippet for snippet in snippets if snippet.startswith("curl")]
    line = line.replace("127.0.0.1:8000", f"127.0.0.1:{stack.port}")
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=30).stdout
