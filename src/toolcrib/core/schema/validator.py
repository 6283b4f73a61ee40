"""Validation of arguments: every error with its path, in words a model can act on, in bounded time.

Schemas and values are untrusted. So references are never fetched, regular expressions run on a linear engine (those
with look-around on a bounded one), `measure` refuses exponential schemas, and values have a size and a depth.
Compiling takes 0.02 to 0.2 ms for an ordinary schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, cast

import jsonschema_rs
import orjson

from ..bounded_mapping import BoundedMapping
from ..json import as_list, loads
from ..tool import Tool
from .cost import Cost, measure
from .errors import FieldError, describe, explain, join_path
from .json_limits import MAX_ARGUMENT_BYTES, MAX_ARGUMENT_DEPTH, json_errors, limit_error, may_be_deep
from .nodes import Node, properties_of
from .values import DefaultsPlan, plan_defaults

_MAX_ERRORS: Final = 100
_SHOWN: Final = 80
"""Characters of a broken part that the reason quotes."""
_MAX_STEPS: Final = 10_000
"""Maximum failures that the engine may collect; beyond it only the first one is reported."""
_MAX_PATHS: Final = 500
"""Ways through a schema that grows with the depth of the value; above it one plain error must do."""
_BACKTRACKS: Final = 10_000
_REGEX_MEMORY: Final = 32 << 20
"""Bytes that all regular expressions of one schema may take when compiled."""
_LEAST_REGEX: Final = 64 << 10
_MOST_REGEX: Final = 4 << 20

_DIALECTS: Final = ("draft-04/schema", "draft-06/schema", "draft-07/schema", "2019-09/schema", "2020-12/schema")
_IN_PLACE: Final = ("$dynamicRef", "$ref", "allOf", "anyOf", "dependentSchemas", "if", "not", "oneOf")
_OPEN: Final = ("additionalProperties", "patternProperties", "unevaluatedProperties")

_JSON_ONLY: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


class Validator:
    """A compiled schema. Immutable, and safe to use from any thread.

    `ValidatorCache` holds those of tools; `compile_schema` makes one for any other schema.
    """

    __slots__ = ("_compiled", "_cost", "_declared", "_defaults", "_is_valid")

    def __init__(self, compiled: jsonschema_rs.Validator, schema: Node, cost: Cost) -> None:
        self._compiled = compiled
        self._is_valid = compiled.is_valid
        self._cost = cost
        self._declared: Sequence[str] = tuple(properties_of(schema, schema))
        self._defaults: DefaultsPlan | None = plan_defaults(schema) if cost.defaults else None

    def check(self, value: Any) -> tuple[FieldError, ...]:
        """Return everything that is wrong with `value` (at most 100 errors), nothing when it is right."""
        if odd := self._odd(value):
            return odd
        return self._errors(value)

    def fill(self, value: Any) -> Any:
        """Return `value` with schema defaults filled in; the same object when nothing changes. Never mutates it."""
        return value if self._defaults is None else self._defaults.fill(value)

    def strip_nulls(self, value: Any) -> Any:
        """Return `value` without the nulls that `fill` would put back; the same object when there are none.

        An incomplete value, whose defaults would make it invalid (`accept`), stays as it is.
        """
        if self._defaults is None or self._defaults.fill(value) is not value:
            return value
        return self._defaults.strip_nulls(value)

    def complete(self, value: Any) -> Any:
        """Return `value` with defaults, as `accept` does, regardless of its other errors. Never mutates it."""
        if self._defaults is None:
            return value
        filled = self._defaults.fill(value)
        if filled is value or self._is_valid(filled) or not self._is_valid(value):
            return filled
        return value

    def accept(self, value: Any) -> tuple[Any, tuple[FieldError, ...]]:
        """Return the value to run with, defaults included, and its errors.

        A required argument with a default may be left out. Defaults that would make a good value bad (two branches of a
        `oneOf`, say) are left out.

            accept({})   with `{"properties": {"n": {"default": 5}}, "required": ["n"]}`   returns `({"n": 5}, ())`
        """
        if odd := self._odd(value):
            return value, odd
        if self._defaults is not None:
            filled = self._defaults.fill(value)
            if filled is not value and self._is_valid(filled):
                return filled, ()
        return value, self._errors(value)

    def failing(self, value: Any) -> tuple[tuple[str | int, ...], ...]:
        """Return the paths of invalid parts of `value`, those inside of branches too; empty when it is valid.

        Unlike `check` it takes values of any size, since we made them. The root alone represents a value that is too
        large or too deep for its failures to be collected. Raises `ValueError` for a value that is not JSON.
        """
        if self._is_valid(value):
            return ()
        found = (place for error in self._failures(value) for place in _places(error))
        return tuple(dict.fromkeys(islice(found, _MAX_ERRORS))) or ((),)

    @staticmethod
    def _odd(value: Any) -> tuple[FieldError, ...]:
        """Errors that no schema can allow. One pass in C for good values; only suspicious ones are walked in Python.

        `_JSON_ONLY`: orjson would write data classes and times, which no JSON Schema describes.
        """
        try:
            text = orjson.dumps(value, option=_JSON_ONLY)
        except TypeError:
            return tuple(islice(json_errors(value), _MAX_ERRORS))
        if len(text) > MAX_ARGUMENT_BYTES:
            return (limit_error(f"the arguments have {len(text):,} bytes, {MAX_ARGUMENT_BYTES:,} are allowed"),)
        has_depth = (
            len(text) > 2 * MAX_ARGUMENT_DEPTH
            and text.count(b"{") + text.count(b"[") > MAX_ARGUMENT_DEPTH
            and may_be_deep(text)
        )
        # NaN is written as null, and read as another value
        if has_depth or (b"null" in text and loads(text) != value):
            return tuple(islice(json_errors(value), _MAX_ERRORS))
        return ()

    def _errors(self, value: Any) -> tuple[FieldError, ...]:
        try:
            if self._is_valid(value):
                return ()
            found = (one for error in self._failures(value) for one in explain(error, self._declared))
            errors = list(islice(found, _MAX_ERRORS))
        except ValueError as error:
            return (FieldError(path="", keyword="json", message=f"the arguments are not JSON: {error}"),)
        if not errors:
            message = "does not fit the schema; the value is nested too deeply to say where"
            return (FieldError(path="", keyword="schema", message=message),)
        # What no branch evaluated is only worth saying when the branches themselves are content.
        others = [one for one in errors if one.keyword != "unevaluatedProperties"]
        return tuple(others or errors)

    def _failures(self, value: Any) -> Iterator[jsonschema_rs.ValidationError]:
        """Yield all failures, the first alone of a value so large that all would take long, or none if even that would.

        The engine collects before it yields, some 15 µs a failure, with those of every branch inside.
        """
        nodes, depth = _extent(value)
        paths = self._cost.growth**depth
        if paths > _MAX_PATHS:
            return
        if self._cost.looks * max(nodes, paths) <= _MAX_STEPS:
            yield from self._compiled.iter_errors(value)
            return
        try:
            self._compiled.validate(value)
        except jsonschema_rs.ValidationError as error:
            yield error


def _places(error: jsonschema_rs.ValidationError) -> Iterator[tuple[str | int, ...]]:
    """Yield where an error arose; of a choice between branches, the places below it where the branches failed."""
    here = tuple(error.instance_path)
    branches: Sequence[Sequence[jsonschema_rs.ValidationError]] = getattr(error.kind, "context", ())
    inner = [place for branch in branches for one in branch for place in _places(one) if len(place) > len(here)]
    yield from inner or (here,)


def compile_schema(schema: Node | bool, *, strict_extra: bool = True) -> Validator:
    """Compile `schema`: draft 2020-12 unless its `$schema` names another.

    With `strict_extra` an undeclared argument is an error if the schema declares properties and does not mention
    others: servers leave that open by oversight far more often than on purpose.

    Raises `ValueError` with a reason when the schema is broken or costs too much. Takes up to some 10 ms for a schema
    at the limits; it needs no event loop and may run in a thread.
    """
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    cost = measure(schema)
    root = _closed(schema) if strict_extra else dict(schema)
    if not _known_dialect(root.get("$schema")):
        root.pop("$schema", None)
    return Validator(_compile(root, cost.patterns), schema, cost)


def _closed(schema: Node) -> dict[str, Any]:
    """Refuse undeclared arguments, if the root declares some and does not mention others.

    With combinators beside `properties`, `additionalProperties` would refuse what a branch declares;
    `unevaluatedProperties` counts that as declared.
    """
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or any(keyword in schema for keyword in _OPEN):
        return dict(schema)
    if any(isinstance(name, str) and name not in properties for name in as_list(schema.get("required"))):
        return dict(schema)  # no call could be right
    if any(keyword in schema for keyword in _IN_PLACE):
        return {**schema, "unevaluatedProperties": False}
    return {**schema, "additionalProperties": False}


def _known_dialect(identifier: object) -> bool:
    return (
        isinstance(identifier, str) and identifier.rstrip("#").endswith(_DIALECTS) and "json-schema.org/" in identifier
    )


def _compile(root: dict[str, Any], patterns: int) -> jsonschema_rs.Validator:
    """Return the compiled schema; patterns with look-around, which the linear engine refuses, have a step limit."""
    size = max(_LEAST_REGEX, min(_MOST_REGEX, _REGEX_MEMORY // max(1, patterns)))
    try:
        return _build(root, jsonschema_rs.RegexOptions(size_limit=size))
    except ValueError as error:
        if not patterns:
            raise ValueError(_reason(error)) from None
    try:
        return _build(root, jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS, size_limit=size))
    except ValueError as error:
        raise ValueError(_reason(error)) from None


def _build(
    root: dict[str, Any], options: jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions
) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(
        root, retriever=_refuse, pattern_options=options, mask="the value", ignore_unknown_formats=True
    )


def _refuse(uri: str) -> Any:
    raise ValueError(f"references outside the schema are not followed: {uri}")


def _reason(error: ValueError) -> str:
    if not isinstance(error, jsonschema_rs.ValidationError):
        return f"broken schema: {error}"
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Referencing):
        return f"broken schema: {error.message}"
    shown = repr(error.instance)
    shown = shown if len(shown) <= _SHOWN else "the value"
    return f"broken schema at {join_path(error.instance_path) or 'its root'}: {shown} {describe(error)}"


def _extent(value: Any) -> tuple[int, int]:
    """Count the nodes of `value` (no further than needed) and its levels.

    Level by level, so that neither a deep nor a wide value is walked beyond the limits that matter to the caller.
    """
    nodes, depth = 1, 0
    level: list[Any] = [value]
    while level and depth <= MAX_ARGUMENT_DEPTH and nodes <= _MAX_STEPS:
        depth += 1
        parts = [part for item in level for part in _parts(item)]
        nodes += len(parts)
        level = [part for part in parts if isinstance(part, (Mapping, list, tuple))]
    return nodes, depth


def _parts(value: Any) -> Sequence[Any]:
    if isinstance(value, Mapping):
        return list(cast("Mapping[Any, Any]", value).values())
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()


class ValidatorCache:
    """Validators of the tools in use, the least recently used forgotten first. One is some 40 KB."""

    def __init__(self, size: int = 1024) -> None:
        self._kept = BoundedMapping[bytes, Validator](size)

    def of(self, tool: Tool) -> Validator:
        """Return the validator of the tool's input; raises `ValueError` when its schema cannot be taken."""
        key = tool.digest
        kept = self._kept.get(key)
        if kept is not None:
            try:
                self._kept.move_to_end(key)
            except KeyError:  # another thread dropped it just now
                self._kept[key] = kept
            return kept
        made = self._kept[key] = compile_schema(tool.input_schema)
        return made
