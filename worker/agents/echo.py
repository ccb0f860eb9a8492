"""The `echo` agent: says the last user text back, word by word; it needs no provider."""

from __future__ import annotations

import re

from worker.context import RunContext

# Possessive, so that long blanks cost no more than their length.
_WORDS = re.compile(r"\s*+\S++(?:\s++\Z)?|\s++")


def echo(ctx: RunContext) -> None:
    """Says the last user text back, word by word."""
    text = ctx.last_user_text
    if text is None:
        ctx.say("There is nothing to echo.")
        return
    with ctx.message() as message:
        for word in _WORDS.findall(text) or [text]:
            message.delta(word)
