"""Every key and channel of Outlast, one function each."""

from __future__ import annotations

from shared.runs.identity import bucket_of_key

WORKERS = "outlast:workers"
AGENTS = "outlast:agents"
API_KEYS = "outlast:api-keys"
SWEEPER = "outlast:sweeper"
WORKER_CHANNEL_PREFIX = "outlast:worker-channel:"
FAMILY_CHANNEL_PREFIX = "outlast:worker-family:"
DRAINING = "outlast:draining"
AUDIT = "outlast:audit"
BULKS = "outlast:bulks"
SWEEPS = "outlast:sweeps"


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


def open_interrupts(bucket: str, thread_digest: str) -> str:
    """Hash: interrupt id -> run that asked, expiry and run that is about to answer, as JSON."""
    return f"{prefix(bucket)}open:{thread_digest}"


def active(bucket: str) -> str:
    """Hash: queued and running runs per actor digest."""
    return f"{prefix(bucket)}active"


def stats(bucket: str, minute: int) -> str:
    """Hash: one minute's numbers: endings ``agent|status|code``, ``accepted``, histograms ``name:slot``."""
    return f"{prefix(bucket)}stats:{minute}"


def totals(bucket: str) -> str:
    """Hash: the same numbers since ever."""
    return f"{prefix(bucket)}totals"


def depths(minute: int) -> str:
    """Hash: queue depth and oldest wait of one minute, as the sweep saw them."""
    return f"outlast:depths:{minute}"


def live(bucket: str) -> str:
    """Sorted set: queued and running runs by the time of their acceptance."""
    return f"{prefix(bucket)}live"


def runs_of_agent(bucket: str, agent: str) -> str:
    """Sorted set: one agent's runs by the time of their acceptance."""
    return f"{prefix(bucket)}agent:{agent}"


def ended_with_status(bucket: str, status: str) -> str:
    """Sorted set: ended runs of one status by the time of their acceptance."""
    return f"{prefix(bucket)}status:{status}"


def failed_with_code(bucket: str, code: str) -> str:
    """Sorted set: runs that failed with one code by the time of their acceptance."""
    return f"{prefix(bucket)}code:{code}"


def intake(bucket: str) -> str:
    """Hash: whether claims are refused in this bucket (``paused``), and when that last ended."""
    return f"{prefix(bucket)}intake"


def acts(key: str) -> str:
    """List: what operators did to one run."""
    return f"{prefix(bucket_of_key(key))}acts:{key}"


def bulk(bulk_id: str) -> str:
    """Hash: one bulk cancel."""
    return f"outlast:bulk:{bulk_id}"


def bulk_todo(bulk_id: str) -> str:
    """List: run keys of a bulk cancel that were not asked yet."""
    return f"outlast:bulk:{bulk_id}:todo"


def bulk_results(bulk_id: str) -> str:
    """Hash: run key -> what became of it in a bulk cancel."""
    return f"outlast:bulk:{bulk_id}:results"


def bulk_lock(bulk_id: str) -> str:
    """String: the process that is at work on a bulk cancel."""
    return f"outlast:bulk:{bulk_id}:lock"


def worker(name: str) -> str:
    """String: a worker's last heartbeat as JSON."""
    return f"outlast:worker:{name}"


def offer(agent: str) -> str:
    """String: there while an agent has been offered lately."""
    return f"outlast:offer:{agent}"


def run_channel(key: str) -> str:
    """Channel: batches of one run's frames, ``first count LF frames``."""
    return f"outlast:run:{key}"


def worker_channel(name: str) -> str:
    """Channel: what one worker process is told, ``cancel KEY CAUSE`` or ``terminate KEY EXECUTION``."""
    return f"{WORKER_CHANNEL_PREFIX}{name}"


def family_channel(name: str) -> str:
    """Channel: what a worker's main process is told, ``child KEY EXECUTION WORKER PID``."""
    return f"{FAMILY_CHANNEL_PREFIX}{name.rpartition(':')[2]}"


def session(digest: str) -> str:
    """String: whose session of the operators' pages this is."""
    return f"outlast:session:{digest}"
