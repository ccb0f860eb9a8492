"""An interrupt's response schema against an answer to it, within a bound of work.

The answer is a stranger's, and the check holds up every stream of this process: so what is compared is
counted, patterns are matched in linear time, and a schema with one that has none (look-around, a back
reference) is not applied.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from pydantic_core import SchemaError as PatternError
from pydantic_core import SchemaValidator, core_schema

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MOST_STEPS = 20_000
"""How many keywords all answers of a request may have applied to them, about a tenth of a second."""

MOST_VALUES = 20_000
"""How many values one answer may have; 200 characters of a text count as one."""

LARGEST_SCHEMA = 32 * 1024
"""Bytes of a schema that is used; to check a larger one against its own rules takes too long."""

_LEAST: tuple[Any, ...] = (None, "", [], {})
"""Answers of which none takes work; a schema that comes to no end with one of them is of no use."""

_FEW_MISTAKES = 20
_CHARACTERS = 200

_steps: ContextVar[Iterator[int]] = ContextVar("outlast_schema_steps")


class Unusable(Exception):
    """The schema cannot be applied, whatever the answer is; the text says why."""


class TooMuch(Exception):
    """The answer would take more work than a request may cost."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """Where an answer does not fit, below the answer itself, the rule it breaks, and members it lacks."""

    path: tuple[str | int, ...]
    rule: Any
    missing: tuple[str, ...] = ()


class Judge:
    """Judges the answers of one request, which share one bound of work."""

    def __init__(self, most: int = MOST_STEPS) -> None:
        self._left = iter(range(most))

    def misfit(self, schema: Any, answer: Any) -> Misfit | None:
        """The most telling mistake of an answer, None if it fits. Raises Unusable and TooMuch."""
        from referencing.exceptions import Unresolvable

        validator = _validator(_text(schema))
        if isinstance(validator, str):
            raise Unusable(validator)
        _require_small(answer)
        try:
            mistake = _mistake(validator, answer, self._left)
        except Unresolvable as error:
            raise Unusable(type(error).__name__) from error
        except RecursionError as error:
            raise TooMuch from error
        if mistake is None:
            return None
        rule = {str(mistake.validator): mistake.validator_value} if mistake.validator else False
        wanted = mistake.validator_value if mistake.validator == "required" else ()
        missing = tuple(name for name in wanted if name not in mistake.instance)
        return Misfit(tuple(mistake.absolute_path), rule, missing)


def _mistake(validator: Validator, answer: Any, steps: Iterator[int]) -> Any:
    from jsonschema.exceptions import best_match

    mark = _steps.set(steps)
    try:
        return best_match(itertools.islice(validator.iter_errors(answer), _FEW_MISTAKES))
    finally:
        _steps.reset(mark)


def _text(schema: Any) -> bytes:
    try:
        text = orjson.dumps(schema)
    except TypeError as error:
        raise Unusable("no JSON") from error
    if len(text) > LARGEST_SCHEMA:
        raise Unusable("too large")
    return text


def _require_small(answer: Any) -> None:
    values, rest = 0, [answer]
    while rest:
        value = rest.pop()
        values += 1
        if isinstance(value, str):
            values += len(value) // _CHARACTERS
        elif isinstance(value, dict):
            values += sum(map(len, value)) // _CHARACTERS
            rest.extend(value.values())
        elif isinstance(value, list):
            rest.extend(value)
        if values + len(rest) > MOST_VALUES:
            raise TooMuch


@functools.lru_cache(maxsize=64)
def _validator(text: bytes) -> Validator | str:
    """What judges by this schema, or why nothing does."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    if b'"patternProperties"' in text and b'"unevaluatedProperties"' in text:
        return "patternProperties beside unevaluatedProperties"
    schema = orjson.loads(text)
    try:
        kind = validator_for(schema, default=Draft202012Validator)
        kind.check_schema(schema)
        # A registry without anything: a reference to elsewhere is not fetched.
        judging: Validator = _bounded(kind)(schema, registry=Registry())
        for answer in _LEAST:
            _mistake(judging, answer, iter(range(MOST_STEPS)))
    except Unusable as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever an agent made of it
        return type(error).__name__
    return judging


@functools.cache
def _bounded(kind: Any) -> Any:
    from jsonschema import validators

    extend: Callable[..., Any] = validators.extend
    kind = extend(
        kind,
        {
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties(kind.VALIDATORS["additionalProperties"]),
            "uniqueItems": _unique_items,
        },
    )
    kind = extend(kind, {name: _counted(keyword) for name, keyword in kind.VALIDATORS.items()})
    # By a ``$schema`` further down the library would leave the bounded validator.
    kind.evolve = _evolved
    return kind


def _evolved(validator: Any, **changes: Any) -> Any:
    kept = {field.alias: getattr(validator, field.name) for field in validator.__attrs_attrs__ if field.init}
    return type(validator)(**kept | changes)


def _counted(keyword: Callable[..., Any]) -> Callable[..., Any]:
    def apply(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if next(_steps.get(), None) is None:
            raise TooMuch
        return keyword(validator, value, instance, schema)

    return apply


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if isinstance(instance, str) and not _matches(pattern, instance):
        yield ValidationError("does not match")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _schema: Any
) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    for pattern, subschema in patterns.items():
        for name, value in instance.items():
            if _matches(pattern, name):
                yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(keyword: Callable[..., Any]) -> Callable[..., Any]:
    def apply(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Any:
        patterns = schema.get("patternProperties")
        if not patterns or not isinstance(instance, dict):
            return keyword(validator, value, instance, schema)
        rest = {
            name: member
            for name, member in instance.items()
            if not any(_matches(pattern, name) for pattern in patterns)
        }
        known = {"properties": schema.get("properties", {})}
        return keyword(validator, value, rest, known)

    return apply


def _unique_items(_validator: Any, wanted: bool, instance: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if wanted and isinstance(instance, list) and len(set(map(_comparable, instance))) < len(instance):
        yield ValidationError("has non-unique elements")


def _comparable(value: Any) -> Any:
    """Equal for equal JSON values: 1 is 1.0, and neither is true."""
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, list):
        return tuple(map(_comparable, value))
    if isinstance(value, dict):
        return frozenset((name, _comparable(member)) for name, member in value.items())
    return value


def _matches(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the text. Raises Unusable for one that has no linear time."""
    if next(_steps.get(), None) is None:
        raise TooMuch
    linear = _linear(pattern)
    if linear is None:
        raise Unusable("a pattern without linear time")
    return linear.isinstance_python(text)


@functools.lru_cache(maxsize=256)
def _linear(pattern: str) -> SchemaValidator | None:
    """The pattern in an engine that never goes back, None if it needs one that does."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except PatternError:
        return None
