"""What the supervisor shows: its own sentences, and its children's lines behind their names."""

from __future__ import annotations

import threading
from collections import deque
from typing import TextIO

HELD_LINES = 200
NAME_WIDTH = 6
RESET = "\x1b[0m"
RED = "\x1b[31m"
COLOURS = {"redis": "\x1b[33m", "worker": "\x1b[35m", "web": "\x1b[36m"}


class Console:
    """Lines on one terminal from many threads, coloured only if ``colour``.

    Until ``open`` is called, children's lines are held back: the start shows progress, not banners.
    A warning about a child brings out what it said so far.
    """

    def __init__(self, out: TextIO, *, colour: bool) -> None:
        self._out = out
        self._colour = colour
        self._lock = threading.RLock()
        self._held: dict[str, deque[str]] | None = {}

    def say(self, text: str = "") -> None:
        """One of our own sentences."""
        self._write(text)

    def step(self, name: str, text: str) -> None:
        """Progress of one part."""
        self._write(f"  {self._paint(name, COLOURS.get(name, ''))}  {text}")

    def warn(self, name: str, text: str) -> None:
        """Something went wrong with one part."""
        with self._lock:
            for line in (self._held or {}).pop(name, ()):
                self._write_line(name, line)
            self._write(f"  {self._paint(name, RED)}  {text}")

    def line(self, name: str, text: str) -> None:
        """A line that a child wrote; empty ones are left out."""
        if not text.strip():
            return
        with self._lock:
            if self._held is None:
                self._write_line(name, text)
            else:
                self._held.setdefault(name, deque(maxlen=HELD_LINES)).append(text)

    def open(self) -> None:
        """Drop what is held and show children's lines as they come."""
        with self._lock:
            self._held = None

    def _write_line(self, name: str, text: str) -> None:
        self._write(f"  {self._paint(name, COLOURS.get(name, ''))} | {text}")

    def _paint(self, name: str, colour: str) -> str:
        name = name.ljust(NAME_WIDTH)
        return f"{colour}{name}{RESET}" if self._colour and colour else name

    def _write(self, text: str) -> None:
        with self._lock:
            try:
                self._out.write(text + "\n")
                self._out.flush()
            except (OSError, ValueError):
                # The terminal is gone; children must still be stopped in order.
                return
