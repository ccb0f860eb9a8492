"""Looks for events of a recorded run that break an ordering rule of the protocol.

A worker refuses them before they are recorded, so there is something to see only where that check was
switched off, or where a recording is damaged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from shared.protocol.events import Message, parse
from shared.protocol.parsing import ACCEPTED_DEPTH, parse_input
from shared.protocol.rules import VerificationError
from shared.protocol.verifier import Verifier
from shared.runs.identity import RunIdentity

MOST_CHECKED = 20_000
"""Events of one check; the beginning of a longer run is checked."""

UNREADABLE = "This is no event of the protocol."


def breaks(items: Iterable[dict[str, Any]], identity: RunIdentity, given: bytes | None) -> dict[int, str]:
    """Seq -> what that event breaks, from ``{"seq", "event"}`` in order, beginning with the first.

    An event that was refused opened nothing, so what builds on it is found too: the first one is the cause.
    """
    listed = list(items)
    messages, answers = _given(given)
    # Which calls its answers were about is not recorded with the run.
    answerable = {item["event"].get("toolCallId") for item in listed} if answers else ()
    verifier = Verifier(messages, thread_id=identity.thread_id, run_id=identity.run_id, answerable=answerable)
    found: dict[int, str] = {}
    for item in listed:
        try:
            verifier.observe(parse(json.dumps(item["event"]).encode()))
        except VerificationError as error:
            found[item["seq"]] = f"{error.rule}: {error.rule.describe()}"
        except ValueError:
            found[item["seq"]] = UNREADABLE
    return found


def _given(given: bytes | None) -> tuple[list[Message], bool]:
    """The request's messages, and whether it answers interrupts."""
    with suppress(ValueError):
        run_input = parse_input(given or b"", max_depth=ACCEPTED_DEPTH)
        return list(run_input.messages), bool(run_input.resume)
    return [], False
