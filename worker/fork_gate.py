"""Keeps a pool's parent from forking while one of its own threads is at work and may hold a lock."""

from __future__ import annotations

import os
import threading

FORK_GATE = threading.Lock()
"""Held by the parent's threads at work and by every fork, so that no child inherits a locked lock."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=FORK_GATE.acquire, after_in_parent=FORK_GATE.release, after_in_child=FORK_GATE.release
    )
