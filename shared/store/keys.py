"""Every key and channel of Outlast, one function each."""

from __future__ import annotations

from shared.runs.identity import bucket_of_key

WORKERS = "outlast:workers"
AGENTS = "outlast:agents"
API_KEYS = "outlast:api-keys"
SWEEPER = "outlast:sweeper"
WORKER_CHANNEL_PREFIX = "outlast:worker-channel:"


def prefix(bucket: str) -> str:
    """What all keys of one bucket start with; the braces are Redis Cluster's hash tag."""
    return f"outlast:{{{bucket}}}:"


def record(key: str) -> str:
    """Hash: the run's record."""
    return f"{prefix(bucket_of_key(key))}run:{key}"


def log(key: str) -> str:
    """List: the run's frames, index = seq - 1."""
    return f"{prefix(bucket_of_key(key))}log:{key}"


def run_input(key: str) -> str:
    """String: the RunAgentInput as JSON."""
    return f"{prefix(bucket_of_key(key))}input:{key}"


def tombstone(key: str) -> str:
    """String: the identity of an expired run."""
    return f"{prefix(bucket_of_key(key))}tomb:{key}"


def leases(bucket: str) -> str:
    """Sorted set: claimed or fenced runs by the time their lease runs out."""
    return f"{prefix(bucket)}leases"


def ready(bucket: str) -> str:
    """Sorted set: queued runs whose turn has come, by the time of their last queue message."""
    return f"{prefix(bucket)}ready"


def ended(bucket: str) -> str:
    """Sorted set: ended runs by the time of their ending."""
    return f"{prefix(bucket)}ended"


def runs(bucket: str) -> str:
    """Sorted set: all readable runs by the time of their acceptance."""
    return f"{prefix(bucket)}runs"


def runs_of_actor(bucket: str, actor_digest: str) -> str:
    """Sorted set: one actor's runs in this bucket by the time of their acceptance."""
    return f"{prefix(bucket)}actor:{actor_digest}"


def runs_of_thread(bucket: str, thread_digest: str) -> str:
    """Sorted set: one thread's runs by the time of their acceptance."""
    return f"{prefix(bucket)}thread:{thread_digest}"


def active(bucket: str) -> str:
    """Hash: queued and running runs per actor digest."""
    return f"{prefix(bucket)}active"


def stats(bucket: str, minute: int) -> str:
    """Hash: endings of one minute since the epoch, field ``agent|status|code``."""
    return f"{prefix(bucket)}stats:{minute}"


def worker(name: str) -> str:
    """String: a worker's last heartbeat as JSON."""
    return f"outlast:worker:{name}"


def run_channel(key: str) -> str:
    """Channel: batches of one run's frames, ``first count LF frames``."""
    return f"outlast:run:{key}"


def worker_channel(name: str) -> str:
    """Channel: what one worker process is told, ``cancel KEY CAUSE``."""
    return f"{WORKER_CHANNEL_PREFIX}{name}"
