"""Log lines as the processes of a pool write them."""

from __future__ import annotations

import io
import json
import sys

import pytest

from shared import logs


class _Pieces(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def write(self, text: str) -> int:
        self.pieces.append(text)
        return len(text)


def test_a_line_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch):
    """Where processes share one standard error, pieces of their lines would mix."""
    written = _Pieces()
    monkeypatch.setattr(sys, "stderr", written)
    logs.configure("info", "json")
    try:
        logs.get_logger("m").info("run.claimed", run="k")
    finally:
        logs.configure("error", "text")
    [line] = written.pieces
    assert line.endswith("}\n")
    assert json.loads(line)["event"] == "run.claimed"
