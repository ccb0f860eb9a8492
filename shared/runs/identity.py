"""The identity of a run and the run key made from it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache

BUCKETS = tuple(f"b{number:x}" for number in range(16))
"""Hash tags over which keys are spread; all keys of one thread share one."""

KEY_PATTERN = re.compile(r"b[0-9a-f][0-9a-z]{26}")


@lru_cache(maxsize=4096)
def _digest(*parts: str) -> bytes:
    joined = b"".join(len(raw).to_bytes(4, "big") + raw for raw in (part.encode() for part in parts))
    return hashlib.sha256(joined).digest()


def bucket_of_thread(actor: str, thread_id: str) -> str:
    """The bucket that holds every run of this actor's thread."""
    return BUCKETS[_digest(actor, thread_id)[0] % len(BUCKETS)]


def bucket_of_key(key: str) -> str:
    """The bucket that a run key names; raises ``ValueError`` for a text that is no run key."""
    if not KEY_PATTERN.fullmatch(key):
        raise ValueError("not a run key")
    return key[:2]


@lru_cache(maxsize=4096)
def short_digest(*parts: str) -> str:
    """A deterministic, URL-safe digest of some texts, length-prefixed so that no two lists collide."""
    return base64.b32encode(_digest(*parts)[:16]).decode().rstrip("=").lower()


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Who asked, in which conversation, for which run; the client chooses all but the actor."""

    actor: str
    thread_id: str
    run_id: str

    @property
    def bucket(self) -> str:
        """The hash tag of every Redis key of this run."""
        return bucket_of_thread(self.actor, self.thread_id)

    @property
    def key(self) -> str:
        """The run key: bucket, then a digest of the triple; also the Celery task id."""
        return self.bucket + short_digest(self.actor, self.thread_id, self.run_id)
