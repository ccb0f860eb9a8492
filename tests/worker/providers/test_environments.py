"""The same codes whichever of the HTTP libraries is there; none of them is needed to classify."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PROGRAM = '''
import importlib, json, sys

blocked = set(sys.argv[1].split(","))

class Blocks:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocks())

from worker.failures import code_of

loaded = {"httpx", "httpx2", "httpcore", "httpcore2", "openai", "anthropic", "requests", "aiohttp", "grpc"}
told = {"imported": sorted(loaded & set(sys.modules)), "importable": [], "codes": {}}

def raised(package, name):
    """The library's own class, or one that only bears its name."""
    try:
        kind = getattr(importlib.import_module(package), name)
    except ImportError:
        base = type("TransportError", (Exception,), {"__module__": package})
        listed = {"ReadTimeout": "TimeoutException", "ConnectError": "RequestError"}
        parent = type(listed[name], (base,), {"__module__": package + "._exceptions"})
        kind = type(name, (parent,), {"__module__": package})
    else:
        told["importable"].append(package)
    return kind("failed")

for package in ("httpx", "httpx2"):
    for name in ("ReadTimeout", "ConnectError"):
        error = raised(package, name)
        told["codes"][f"{package}.{name}"] = code_of(error)
        try:
            raise RuntimeError("an SDK's own") from error
        except RuntimeError as wrapped:
            told["codes"][f"{package}.{name}, wrapped"] = code_of(wrapped)

if "httpx2" not in blocked:  # the shipped agents speak it
    import worker.driver, worker.agents.echo

print(json.dumps(told))
'''

BOTH = {"httpx", "httpx2"}


@pytest.mark.parametrize(
    "there", [{"httpx"}, {"httpx2"}, BOTH, set()], ids=lambda names: "+".join(sorted(names)) or "none"
)
def test_the_product_classifies_the_same_with_either_both_or_none_of_the_http_libraries(there: set[str]):
    blocked = (BOTH - there) | {name.replace("httpx", "httpcore") for name in BOTH - there}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(blocked) or "nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["imported"] == []
    assert set(told["importable"]) == there
    for name, code in told["codes"].items():
        assert code == ("transport_timeout" if "Timeout" in name else "transport_error"), name
