"""Structured log lines: one event name and named values per line; the names are listed in the docs."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(level: str = "info", style: str = "json") -> None:
    """Writes JSON lines (or text for people) to standard error from now on."""
    renderer: Any = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS.get(level, logging.INFO)),
        # Asked for anew by every line, since standard error may be replaced, and written in one piece, since
        # the processes of a pool share it.
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )


def get_logger(name: str) -> Any:
    """A logger whose first argument is the event name, such as ``log.info("run.claimed", run=key)``."""
    return structlog.get_logger(module=name)


bound = structlog.contextvars.bound_contextvars
"""``with bound(run=key):`` puts values on every line written inside."""

bind = structlog.contextvars.bind_contextvars
"""``bind(run=key)`` puts values on every line from here on."""

unbind = structlog.contextvars.unbind_contextvars
"""``unbind("run")`` ends that."""
