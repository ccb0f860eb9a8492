"""The RFC 6902 operations that lead from one JSON value to another, found in time linear in their size.

Agents publish on the event loop, which all runs share: a patch that is not the shortest one costs
some bytes, a search for the shortest one may cost seconds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

Operations = list[dict[str, Any]]


def canonical(value: Any) -> str:
    """One text per JSON value, whatever the order of its members; true, 1 and 1.0 are three."""
    # As text, because they are all the same to Python but not to a client.
    return json.dumps(value, sort_keys=True)


def difference(before: Any, now: Any, path: str = "") -> Operations:
    """The operations, none for equal values."""
    if isinstance(before, dict) and isinstance(now, dict):
        return _of_objects(before, now, path)
    if isinstance(before, list) and isinstance(now, list):
        return _of_lists(before, now, path)
    if canonical(before) == canonical(now):
        return []
    return [{"op": "replace", "path": path, "value": now}]


def _of_objects(before: dict[str, Any], now: dict[str, Any], path: str) -> Operations:
    found: Operations = []
    for name, value in before.items():
        place = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name in now:
            found += difference(value, now[name], place)
        else:
            found.append({"op": "remove", "path": place})
    for name, value in now.items():
        if name not in before:
            place = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
            found.append({"op": "add", "path": place, "value": value})
    return found


def _of_lists(before: Sequence[Any], now: Sequence[Any], path: str) -> Operations:
    """Side by side from the front: what is gone is removed, what is new added, what took a place replaced."""
    old, new = [canonical(one) for one in before], [canonical(one) for one in now]
    left, wanted = Counter(old), Counter(new)
    found: Operations = []
    at_old = at_new = place = 0
    while at_old < len(old) and at_new < len(new):
        was, will = old[at_old], new[at_new]
        kept, known = wanted[was] > 0, left[will] > 0
        if was == will:
            left[was] -= 1
            wanted[will] -= 1
            at_old, at_new, place = at_old + 1, at_new + 1, place + 1
        elif not kept and not known:
            found += difference(before[at_old], now[at_new], f"{path}/{place}")
            left[was] -= 1
            wanted[will] -= 1
            at_old, at_new, place = at_old + 1, at_new + 1, place + 1
        elif not known or (kept and new[at_new + 1 : at_new + 2] == [was]):
            found.append({"op": "add", "path": f"{path}/{place}", "value": now[at_new]})
            wanted[will] -= 1
            at_new, place = at_new + 1, place + 1
        else:
            # Gone, or moved: then it is added where it went.
            found.append({"op": "remove", "path": f"{path}/{place}"})
            left[was] -= 1
            at_old += 1
    found += [{"op": "remove", "path": f"{path}/{place}"} for _ in old[at_old:]]
    found += [
        {"op": "add", "path": f"{path}/{place + more}", "value": one} for more, one in enumerate(now[at_new:])
    ]
    return found
