"""Values that a schema gives: the defaults of absent arguments, and one small example of a call.

A plan of the defaults is made once per schema and holds only the parts that lead to a default, so a schema without
defaults costs nothing. A default that does not have the type its own schema asks for (`default: null` for a string is
common in the wild, and means "none") is not filled in.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import jsonschema_rs

from .nodes import JSON_TYPES, Node, alternatives, as_node, merged, properties_of, resolve, types_of

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


def plan_defaults(root: Node) -> DefaultsPlan | None:
    """Return the plan of the defaults of `root`, None when it has none. Values must be JSON and at most 64 deep."""
    plan = _Planner(root).plan(root)
    useful = _leading_somewhere(plan)
    if plan not in useful:
        return None
    for known in useful:
        known.prune(useful)
    return plan


class DefaultsPlan:
    """The defaults at one place of a value, and the places below it that have some.

    A recursive schema gives a recursive plan: `fill` follows the value, which ends.
    """

    __slots__ = ("defaults", "extra", "items", "properties")

    def __init__(self) -> None:
        self.defaults: list[tuple[str, Any]] = []
        self.properties: dict[str, DefaultsPlan] = {}
        self.items: DefaultsPlan | None = None
        self.extra: DefaultsPlan | None = None

    def below(self) -> list[DefaultsPlan]:
        """Return the plans of the parts of a value."""
        return [plan for plan in (*self.properties.values(), self.items, self.extra) if plan is not None]

    def prune(self, useful: set[DefaultsPlan]) -> None:
        """Forget the parts without any default."""
        self.properties = {name: plan for name, plan in self.properties.items() if plan in useful}
        self.items = self.items if self.items in useful else None
        self.extra = self.extra if self.extra in useful else None

    def fill(self, value: Any) -> Any:
        """Return `value` with defaults filled in; the same object when there was nothing to fill."""
        if isinstance(value, Mapping):
            value = cast("Mapping[str, Any]", value)
            changes: dict[str, Any] = {}
            for name, default in self.defaults:
                if name not in value:
                    changes[name] = copy.deepcopy(default)
            for name, plan in self.properties.items():
                if name in value or name in changes:
                    self._fill_part(plan, name, value, changes)
            if self.extra is not None:
                for name in value:
                    if name not in self.properties:
                        self._fill_part(self.extra, name, value, changes)
            return {**value, **changes} if changes else value
        if self.items is not None and isinstance(value, list | tuple):
            old = cast("list[Any]", value)
            new = [self.items.fill(item) for item in old]
            return new if any(a is not b for a, b in zip(old, new, strict=True)) else old
        return value

    @staticmethod
    def _fill_part(plan: DefaultsPlan, name: str, value: Mapping[str, Any], changes: dict[str, Any]) -> None:
        old = changes[name] if name in changes else value[name]
        new = plan.fill(old)
        if new is not old:
            changes[name] = new

    def strip_nulls(self, value: Any) -> Any:
        """Return `value` without every null that `fill` would put there; the same object when nothing is removed.

        `fill` restores it exactly, provided that `value` is complete: `fill(value)` changes nothing.
        """
        if isinstance(value, Mapping):
            value = cast("Mapping[str, Any]", value)
            nulls = {
                name for name, default in self.defaults if default is None and name in value and value[name] is None
            }
            kept = {name: self._strip_part(name, part) for name, part in value.items() if name not in nulls}
            return kept if nulls or any(part is not value[name] for name, part in kept.items()) else value
        if self.items is not None and isinstance(value, list | tuple):
            old = cast("list[Any]", value)
            new = [self.items.strip_nulls(item) for item in old]
            return new if any(a is not b for a, b in zip(old, new, strict=True)) else old
        return value

    def _strip_part(self, name: str, part: Any) -> Any:
        plan = self.properties.get(name, self.extra)
        return part if plan is None else plan.strip_nulls(part)


class _Planner:
    """Makes the plans of one schema, each once: by the identity of its node, which `_alive` therefore keeps."""

    def __init__(self, root: Node) -> None:
        self._root = root
        self._known: dict[int, DefaultsPlan] = {}
        self._alive: list[Node] = []

    def plan(self, node: Node) -> DefaultsPlan:
        known = self._known.get(id(node))
        if known is not None:
            return known
        plan = self._known[id(node)] = DefaultsPlan()
        self._alive.append(node)
        for part in merged(node, self._root):
            self._add(plan, part)
            branch = self._only_container(part)
            if branch is not None:
                for inner in merged(branch, self._root):
                    self._add(plan, inner)
        return plan

    def _add(self, plan: DefaultsPlan, part: Node) -> None:
        for name, child in as_node(part.get("properties")).items():
            schema = as_node(child)
            if _usable_default(schema, self._root) and name not in dict(plan.defaults):
                plan.defaults.append((name, resolve(schema, self._root)["default"]))
            plan.properties.setdefault(name, self.plan(schema))
        if isinstance(part.get("items"), Mapping):
            plan.items = plan.items or self.plan(as_node(part["items"]))
        if isinstance(part.get("additionalProperties"), Mapping):
            plan.extra = plan.extra or self.plan(as_node(part["additionalProperties"]))

    def _only_container(self, part: Node) -> Node | None:
        """The one branch that can be an object or an array (`Model | None`); with two of them nothing is certain."""
        branches = [b for b in alternatives(part) if types_of(b, self._root) & {"object", "array"}]
        return branches[0] if len(branches) == 1 else None


def _usable_default(schema: Node, root: Node) -> bool:
    """Whether a default fits the type and the `enum` of its own schema."""
    resolved = resolve(schema, root)
    if "default" not in resolved:
        return False
    default = resolved["default"]
    types = types_of(resolved, root)
    match default:
        case None:
            fits = "null" in types
        case bool():
            fits = "boolean" in types
        case int():
            fits = "integer" in types
        case float():
            fits = "number" in types or (default.is_integer() and "integer" in types)
        case str():
            fits = "string" in types
        case list():
            fits = "array" in types
        case _:
            fits = "object" in types
    options = resolved.get("enum")
    return fits and (not isinstance(options, list) or default in options)


def _leading_somewhere(plan: DefaultsPlan) -> set[DefaultsPlan]:
    """Every plan from which a default can be reached.

    Backwards from the plans that have defaults, since plans may be circular.
    """
    above: dict[DefaultsPlan, list[DefaultsPlan]] = {plan: []}
    stack = [plan]
    while stack:
        current = stack.pop()
        for child in current.below():
            if child not in above:
                above[child] = []
                stack.append(child)
            above[child].append(current)
    useful = {known for known in above if known.defaults}
    stack = list(useful)
    while stack:
        for parent in above[stack.pop()]:
            if parent not in useful:
                useful.add(parent)
                stack.append(parent)
    return useful


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
