"""JSON Patch (RFC 6902) on plain JSON values, all or nothing, without touching what it is given.

Where the RFC leaves room it decides as the official client's library does, because both must come
to the same state: an index may have leading zeros where something is added, ``move`` and ``copy``
to a place behind a list's end append, and true is not 1.
"""

from collections.abc import Iterable, Mapping
from typing import Any

Operation = Mapping[str, Any]

_FORBIDDEN = ("__proto__", "constructor/prototype")


class PatchError(ValueError):
    """A patch that does not apply; the document is as it was."""


def apply_patch(document: Any, operations: Iterable[Operation]) -> Any:
    """The document after all operations. Only what lies on a changed path is copied, the rest is shared.

    Raises PatchError if one of them does not apply.
    """
    for operation in operations:
        document = _applied(document, operation)
    return document


def _applied(document: Any, operation: Operation) -> Any:
    keys = _keys(operation["path"])
    match operation["op"]:
        case "add":
            return _with(document, keys, operation["value"], strict=True)
        case "replace":
            return _replaced(document, keys, operation["value"])
        case "remove":
            return _without(document, keys)
        case "test":
            if not _same(_at(document, keys), operation["value"]):
                raise PatchError("a test failed")
            return document
        case "copy":
            return _with(document, keys, _at(document, _keys(operation["from"])))
        case "move":
            source = _keys(operation["from"])
            value = _at(document, source)
            if not keys:
                return value
            if not source:
                raise PatchError("a document cannot move into itself")
            return _with(_without(document, source), keys, value)
        case name:
            raise PatchError(f"{name!r} is not an operation")


def _keys(pointer: str) -> list[str]:
    """The pointer's parts; none is the whole document (RFC 6901)."""
    if not pointer:
        return []
    if any(name in pointer for name in _FORBIDDEN):
        raise PatchError("the place is forbidden")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _at(document: Any, keys: list[str]) -> Any:
    for key in keys:
        document = document[_slot(document, key)]
    return document


def _slot(parent: Any, key: str) -> Any:
    """The key or index under which ``parent`` has a value."""
    if isinstance(parent, dict):
        if key in parent:
            return key
    elif isinstance(parent, list) and key.isascii() and key.isdigit() and (key == "0" or key[0] != "0"):
        index = int(key)
        if index < len(parent):
            return index
    raise PatchError("a place does not exist")


def _with(document: Any, keys: list[str], value: Any, *, strict: bool = False) -> Any:
    if not keys:
        return value
    root, parent = _copied(document, keys)
    key = keys[-1]
    if isinstance(parent, dict):
        parent[key] = value
    elif key == "-":
        parent.append(value)
    elif not key or (key.isascii() and key.isdigit()):
        index = int(key or "0")
        if strict and index > len(parent):
            raise PatchError("an index is behind the end")
        parent.insert(index, value)
    else:
        raise PatchError("an index is not a number")
    return root


def _replaced(document: Any, keys: list[str], value: Any) -> Any:
    if not keys:
        return value
    root, parent = _copied(document, keys)
    parent[_slot(parent, keys[-1])] = value
    return root


def _without(document: Any, keys: list[str]) -> Any:
    if not keys:
        return None
    root, parent = _copied(document, keys)
    del parent[_slot(parent, keys[-1])]
    return root


def _copied(document: Any, keys: list[str]) -> tuple[Any, Any]:
    """A document whose containers on the way to the last key are new, and the last of them."""
    root = parent = _copy(document)
    for key in keys[:-1]:
        slot = _slot(parent, key)
        parent[slot] = _copy(parent[slot])
        parent = parent[slot]
    return root, parent


def _copy(value: Any) -> Any:
    if isinstance(value, dict | list):
        return value.copy()
    raise PatchError("a place is inside a value that has no places")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)
