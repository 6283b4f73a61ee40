"""One small valid value for a schema, as an example of a call for a model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final, cast

import jsonschema_rs

from .nodes import JSON_TYPES, Node, alternatives, as_node, merged, properties_of, resolve, types_of

__all__ = ["example"]

_NULL: Final = frozenset({"null"})
_MAX_DEPTH: Final = 12
_MAX_TRIES: Final = 8

_BY_FORMAT: Final = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "duration": "PT1H",
    "email": "name@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "time": "12:00:00Z",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
}
"""Values of RFC 2606, 5737 and 3849: reserved for documentation."""

_TYPE_ORDER: Final = ("object", "string", "integer", "number", "boolean", "array", "null")


def example(schema: Node) -> dict[str, Any]:
    """Return a minimal object that `schema` accepts: the required properties, with values that it names itself if any.

    Where none was found (a pattern without examples, a contradiction) it is the nearest guess: every required property
    with a value of its type. The schema must be one that `compile_schema` accepts.
    """
    for candidate in _candidates(schema):
        if isinstance(candidate, dict) and _accepts(schema, cast("dict[str, Any]", candidate)):
            return cast("dict[str, Any]", candidate)
    return _object(resolve(schema, schema), schema, 0)


def _candidates(schema: Node) -> Iterator[Any]:
    yield from _listed(schema)
    yield _value(schema, schema, 0)
    for branch in alternatives(resolve(schema, schema))[:_MAX_TRIES]:
        merged_branch = {
            **schema,
            **branch,
            "properties": {**properties_of(schema, schema), **properties_of(branch, schema)},
        }
        required = [*_required(schema, schema), *_required(branch, schema)]
        yield _value({**merged_branch, "required": required, "anyOf": [], "oneOf": []}, schema, 0)


def _accepts(schema: Node, candidate: Any) -> bool:
    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000)
    root = {key: value for key, value in schema.items() if key != "$schema"}
    try:
        return jsonschema_rs.validator_for(root, offline=True, pattern_options=options).is_valid(candidate)
    except ValueError:
        return False


def _listed(node: Node) -> Iterator[Any]:
    if "const" in node:
        yield node["const"]
    examples = node.get("examples")
    if isinstance(examples, list):
        yield from cast("list[Any]", examples)[:_MAX_TRIES]
    if "default" in node and node["default"] is not None:
        yield node["default"]
    options = node.get("enum")
    if isinstance(options, list):
        yield from cast("list[Any]", options)[:1]


def _value(node: Node, root: Node, depth: int) -> Any:
    resolved = resolve(node, root)
    for listed in _listed(resolved):
        return listed
    if depth > _MAX_DEPTH:
        return None
    branches = [branch for branch in alternatives(resolved) if types_of(branch, root) != _NULL]
    if branches and "properties" not in resolved:
        return _value(branches[0], root, depth + 1)
    match _kind(resolved, root, depth):
        case "object":
            return _object(resolved, root, depth)
        case "array":
            return _array(resolved, root, depth)
        case "string":
            return _string(resolved)
        case "integer":
            return math.ceil(_number(resolved))
        case "number":
            return _number(resolved)
        case "boolean":
            return True
        case _:
            return None


def _kind(node: Node, root: Node, depth: int) -> str:
    """Return the type to show: the first admitted one; text if every type is, except for the arguments themselves."""
    types = types_of(node, root)
    if depth and types == JSON_TYPES and "properties" not in node:
        return "string"
    return next((name for name in _TYPE_ORDER if name in types), "null")


def _required(node: Node, root: Node) -> list[str]:
    return [str(name) for part in merged(node, root) for name in part.get("required") or ()]


def _object(node: Node, root: Node, depth: int) -> dict[str, Any]:
    properties = properties_of(node, root)
    return {name: _value(properties.get(name, {}), root, depth + 1) for name in dict.fromkeys(_required(node, root))}


def _array(node: Node, root: Node, depth: int) -> list[Any]:
    least = node.get("minItems", 0)
    count = min(least, _MAX_TRIES) if isinstance(least, int) else 0
    leading = [as_node(item) for item in node.get("prefixItems") or ()]
    rest = as_node(node.get("items"))
    values = [_value(leading[i] if i < len(leading) else rest, root, depth + 1) for i in range(count)]
    if not values and rest and node.get("maxItems") != 0:
        item = _value(rest, root, depth + 1)  # an empty list shows nothing, and many tools refuse it
        return [item] if _accepts({**rest, "$defs": root.get("$defs", {})}, item) else []
    return values


def _string(node: Node) -> str:
    shown = _BY_FORMAT.get(str(node.get("format", "")), "text")
    least, most = node.get("minLength", 0), node.get("maxLength", 1_000)
    if isinstance(least, int) and len(shown) < least <= 1_000:
        shown = shown.ljust(least, "x")
    return shown[:most] if isinstance(most, int) else shown


def _number(node: Node) -> float:
    step = node.get("multipleOf")
    if isinstance(step, int | float) and step > 0:
        low = node.get("minimum", node.get("exclusiveMinimum", 0))
        return max(1, math.floor(low / step) + 1) * step if isinstance(low, int | float) else step
    if isinstance(low := node.get("minimum"), int | float):
        return low
    if isinstance(low := node.get("exclusiveMinimum"), int | float) and not isinstance(low, bool):
        return low + 1
    if isinstance(high := node.get("maximum"), int | float) and high < 1:
        return high
    if isinstance(high := node.get("exclusiveMaximum"), int | float) and not isinstance(high, bool) and high <= 1:
        return high - 1
    return 1
