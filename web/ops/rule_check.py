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
from shared.protocol.parsing import parse_input
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
    verifier = Verifier(_messages(given), thread_id=identity.thread_id, run_id=identity.run_id)
    found: dict[int, str] = {}
    for item in items:
        try:
            verifier.observe(parse(json.dumps(item["event"]).encode()))
        except VerificationError as error:
            found[item["seq"]] = f"{error.rule}: {error.rule.describe()}"
        except ValueError:
            found[item["seq"]] = UNREADABLE
    return found


def _messages(given: bytes | None) -> list[Message]:
    with suppress(ValueError):
        return list(parse_input(given or b"").messages)
    return []
