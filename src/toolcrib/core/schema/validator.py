"""Validation of arguments: every error with its path, in words a model can act on, in bounded time.

Schemas and values are untrusted. So references are never fetched, regular expressions run on a linear engine (those
with look-around on a bounded one), `measure` refuses exponential schemas, and values have a size and a depth.
Compiling takes 0.02 to 0.2 ms for an ordinary schema.

The cost of a schema is counted before anything is compiled. jsonschema-rs is linear for ordinary schemas. Two shapes
are not, and both fit in a kilobyte: a chain of definitions that each refer twice to the next doubles the work with
every link, and a recursive alternative doubles it with every level of the value (measured on 0.60.3: 22 links take 0.1
s and each further one twice as long; collecting the errors of a value 20 levels deep takes a minute and all memory).
The number of checks of one position of a value separates both from large honest schemas.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, cast
from urllib.parse import unquote, urldefrag, urljoin

import jsonschema_rs
import orjson
from msgspec import Struct, field

from ..tool import Tool
from .errors import FieldError, describe, explain, join_path
from .nodes import Node, as_node, properties_of
from .values import DefaultsPlan, plan_defaults

__all__ = [
    "MAX_ARGUMENT_BYTES",
    "MAX_ARGUMENT_DEPTH",
    "MAX_SCHEMA_BYTES",
    "MAX_SCHEMA_DEPTH",
    "MAX_SCHEMA_NODES",
    "Cost",
    "Validator",
    "ValidatorCache",
    "compile_schema",
    "measure",
]

MAX_SCHEMA_BYTES: Final = 1 << 20
"""Absolute maximum; sources set a smaller limit for foreign schemas (security.md R13: 64 KiB)."""
MAX_SCHEMA_NODES: Final = 20_000
MAX_SCHEMA_DEPTH: Final = 64
_MAX_LOOKS: Final = 1_000
"""Maximum number of checks of one position of a value."""
_MAX_CHAIN: Final = 150
"""Schemas on one path of references."""
_MAX_UNFOLLOWED: Final = 16
"""References that this module cannot follow (a relative `urn:`), though the compiler may."""

_IN_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE_SCHEMAS: Final = ("not", "if", "then", "else")
_CHILDREN: Final = {
    "additionalItems": "[",
    "additionalProperties": ".",
    "contains": "[",
    "items": "[",
    "propertyNames": ".",
    "unevaluatedItems": "[",
    "unevaluatedProperties": ".",
}

_COSTLY: Final = (b'Ref"', b'"$ref"', b'Of"', b'"if"', b'"not"', b'"dependentSchemas"', b'"patternP')
"""Keywords by which one value may be looked at several times."""

MAX_ARGUMENT_BYTES: Final = 1 << 20
MAX_ARGUMENT_DEPTH: Final = 64
"""Objects and arrays inside one another, the arguments themselves included (security.md T4, both)."""

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


class Cost(Struct, frozen=True, kw_only=True):
    """Estimated cost of a schema before it is compiled."""

    looks: int
    """Maximum number of checks of one position of a value."""
    growth: int
    """Factor from one level of a recursive schema to the next: 1 is harmless, 2 doubles with every level."""
    patterns: int
    """Number of regular expressions."""
    defaults: bool
    """Whether there may be defaults to fill in."""


class _Weight(Struct):
    """Number of checks of a value (`here`) and of each part of it (`below`)."""

    here: int = 1
    below: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: _Weight) -> None:
        self.here += other.here
        self.below += other.below

    def peak(self) -> int:
        """The most that one place is looked at."""
        common = {".": self.below["."], "[": self.below["["]}
        parts = (count + (common[name[0]] if len(name) > 1 else 0) for name, count in self.below.items())
        return max(self.here, *parts, 0)


def measure(schema: Node) -> Cost:
    """Return the cost of `schema`; raises `ValueError` with a reason when it is above a limit.

    A small schema without references or alternatives, which most are, is known from its text alone.
    """
    try:
        text = orjson.dumps(schema, default=dict)
    except TypeError as error:
        raise ValueError(f"the schema is not JSON: {error}") from None
    if len(text) > MAX_SCHEMA_BYTES:
        raise ValueError(f"the schema has {len(text):,} bytes, {MAX_SCHEMA_BYTES:,} are allowed")
    defaults = b'"default"' in text
    is_costly = any(word in text for word in _COSTLY)
    if not is_costly and b'"pattern"' not in text and text.count(b"{") + text.count(b"[") <= MAX_SCHEMA_DEPTH:
        return Cost(looks=1, growth=1, patterns=0, defaults=defaults)
    walk = _Walk(schema)
    looks = walk.weigh(schema)[0].peak() if is_costly else 1
    if looks > _MAX_LOOKS:
        message = f"the schema looks {looks:,} times at one value through nested references"
        raise ValueError(f"{message}; {_MAX_LOOKS:,} times are allowed")
    if walk.unfollowed > _MAX_UNFOLLOWED:
        raise ValueError(f"the schema has {walk.unfollowed} references that cannot be followed")
    return Cost(looks=looks, growth=walk.growth, patterns=walk.patterns, defaults=defaults)


class _Walk:
    """One pass to find the names of things, one to weigh them."""

    def __init__(self, root: Node) -> None:
        self.growth = 1
        self.patterns = 0
        self.unfollowed = 0
        self._named: dict[str, Node] = {"": root}
        self._base: dict[int, str] = {}
        self._weights: dict[int, tuple[_Weight, _Weight]] = {}
        self._open = set[int]()
        self._collect(root)

    def _collect(self, root: Node) -> None:
        nodes = 0
        stack: list[tuple[Any, str, int]] = [(root, "", 1)]
        while stack:
            value, base, depth = stack.pop()
            nodes += 1
            if nodes > MAX_SCHEMA_NODES:
                raise ValueError(f"the schema has more than {MAX_SCHEMA_NODES:,} nodes")
            if depth > MAX_SCHEMA_DEPTH:
                raise ValueError(f"the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")
            if isinstance(value, list):
                stack.extend((item, base, depth + 1) for item in cast("list[Any]", value))
            elif isinstance(value, Mapping):
                node = cast("Node", value)
                base = self._name(node, base)
                stack.extend((item, base, depth + 1) for item in node.values())

    def _name(self, node: Node, base: str) -> str:
        if isinstance(identity := node.get("$id", node.get("id")), str):
            base = urldefrag(urljoin(base, identity)).url
            self._named.setdefault(base, node)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := node.get(keyword), str):
                self._named.setdefault(f"{base}#{anchor}", node)
        self._base[id(node)] = base
        self.patterns += isinstance(node.get("pattern"), str)
        self.patterns += len(as_node(node.get("patternProperties")))
        return base

    def weigh(self, node: Node) -> tuple[_Weight, _Weight]:
        """Return the number of checks of `node`, and of those that lead back to a schema being checked."""
        key = id(node)
        if known := self._weights.get(key):
            return known
        if key in self._open:
            return _Weight(), _Weight()
        if len(self._open) > _MAX_CHAIN:
            raise ValueError(f"the schema refers from one definition to the next more than {_MAX_CHAIN} times")
        self._open.add(key)
        looks, returns = _Weight(), _Weight(here=0)
        for part in self._in_place(node):
            for total, more in zip((looks, returns), self.weigh(part), strict=True):
                total.add(more)
            if looks.here > _MAX_LOOKS:
                break
        for name, child in _children(node):
            for total, more in zip((looks, returns), self.weigh(child), strict=True):
                total.below[name] += more.peak()
        self.growth = max(self.growth, returns.peak())
        self._open.discard(key)
        self._weights[key] = looks, returns
        return looks, returns

    def _in_place(self, node: Node) -> Iterator[Node]:
        for keyword in _IN_PLACE_LISTS:
            branches = node.get(keyword)
            if isinstance(branches, list):
                yield from map(as_node, cast("list[Any]", branches))
        for keyword in _IN_PLACE_SCHEMAS:
            if keyword in node:
                yield as_node(node[keyword])
        yield from map(as_node, as_node(node.get("dependentSchemas")).values())
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(reference := node.get(keyword), str):
                yield self._follow(reference, self._base.get(id(node), ""))

    def _follow(self, reference: str, base: str) -> Node:
        url, fragment = urldefrag(urljoin(base, reference))
        if fragment and not fragment.startswith("/"):
            found: Any = self._named.get(f"{url}#{fragment}")
        else:
            found = self._named.get(url)
            for part in fragment.split("/")[1:]:
                found = _step(found, unquote(part).replace("~1", "/").replace("~0", "~"))
        if found is None:
            self.unfollowed += 1
        return as_node(found)


def _step(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Node", value).get(key)
    if isinstance(value, list) and key.isdigit() and int(key) < len(cast("list[Any]", value)):
        return cast("list[Any]", value)[int(key)]
    return None


def _children(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield the schemas of a value's parts, and which: `.name`, `[0]`, `.` for any of an object, `[` of an array."""
    for name, child in as_node(node.get("properties")).items():
        yield f".{name}", as_node(child)
    for child in as_node(node.get("patternProperties")).values():
        yield ".", as_node(child)
    for keyword, part in _CHILDREN.items():
        child = node.get(keyword)
        if isinstance(child, Mapping):
            yield part, as_node(cast("Node", child))
    for keyword in ("prefixItems", "items"):
        items = node.get(keyword)
        if isinstance(items, list):
            for position, child in enumerate(cast("list[Any]", items)):
                yield f"[{position}]", as_node(child)


class Validator:
    """A compiled schema. Immutable, and safe to use from any thread."""

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
        """Errors that no schema can allow. One pass in C for good values; only suspicious ones are walked in Python."""
        try:
            text = orjson.dumps(value, option=_JSON_ONLY)
        except TypeError:
            return tuple(islice(_oddities(value), _MAX_ERRORS))
        if len(text) > MAX_ARGUMENT_BYTES:
            return (_limit(f"the arguments have {len(text):,} bytes, {MAX_ARGUMENT_BYTES:,} are allowed"),)
        if b"null" in text or (len(text) > 2 * MAX_ARGUMENT_DEPTH and _brackets(text) > MAX_ARGUMENT_DEPTH):
            return tuple(islice(_oddities(value), _MAX_ERRORS))
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
    """Refuse undeclared arguments, if the root declares some and does not mention others."""
    if not isinstance(schema.get("properties"), Mapping) or any(keyword in schema for keyword in _OPEN):
        return dict(schema)
    if any(keyword in schema for keyword in _IN_PLACE):
        return {**schema, "unevaluatedProperties": False}
    return {**schema, "additionalProperties": False}


def _known_dialect(identifier: object) -> bool:
    return (
        isinstance(identifier, str) and identifier.rstrip("#").endswith(_DIALECTS) and "json-schema.org/" in identifier
    )


def _compile(root: dict[str, Any], patterns: int) -> jsonschema_rs.Validator:
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


def _limit(message: str, path: Sequence[str | int] = ()) -> FieldError:
    return FieldError(path=join_path(path), keyword="limit", message=message)


def _extent(value: Any) -> tuple[int, int]:
    """Count the nodes of `value` (no further than needed) and its levels."""
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


def _brackets(text: bytes) -> int:
    return text.count(b"{") + text.count(b"[")


def _oddities(root: Any) -> Iterator[FieldError]:
    """Yield values that JSON cannot hold, and those nested too deeply or too large."""
    stack: list[tuple[Any, tuple[str | int, ...]]] = [(root, ())]
    size = 0
    while stack:
        value, path = stack.pop()
        if isinstance(value, Mapping | list | tuple):
            if len(path) >= MAX_ARGUMENT_DEPTH:
                yield _limit(f"is nested deeper than {MAX_ARGUMENT_DEPTH} levels", path[:1])
                return
            yield from _odd_names(cast("Any", value), path)
            stack.extend(reversed(list(_entries(cast("Any", value), path))))
        elif problem := _odd_scalar(value):
            yield FieldError(path=join_path(path), keyword="json", message=problem)
        size += len(cast("Any", value)) if isinstance(value, str | Mapping | list | tuple) else 1
        if size > MAX_ARGUMENT_BYTES:
            yield _limit(f"the arguments have more than {MAX_ARGUMENT_BYTES:,} bytes")
            return


def _odd_names(value: Any, path: tuple[str | int, ...]) -> Iterator[FieldError]:
    if isinstance(value, Mapping):
        for name in cast("Mapping[Any, Any]", value):
            if not isinstance(name, str):
                message = f"has a name that is {type(name).__name__}, not text"
                yield FieldError(path=join_path(path), keyword="json", message=message)


def _entries(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[Any, tuple[str | int, ...]]]:
    if isinstance(value, Mapping):
        for name, item in cast("Mapping[Any, Any]", value).items():
            yield item, (*path, str(name))
    else:
        for position, item in enumerate(cast("Sequence[Any]", value)):
            yield item, (*path, position)


def _odd_scalar(value: Any) -> str:
    match value:
        case None | bool():
            return ""
        case int():
            return (
                ""
                if -(1 << 63) <= value < 1 << 64
                else "must be a number of at most 64 bits; send it as text if you can"
            )
        case float():
            return "" if math.isfinite(value) else "must be a finite number"
        case str():
            return "" if value.isascii() or not _has_surrogate(value) else "is not valid Unicode"
        case _:
            return f"is {type(value).__name__}, which JSON does not know"


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


class ValidatorCache:
    """Validators of the tools in use, the least recently used forgotten first. One is some 40 KB."""

    def __init__(self, size: int = 1024) -> None:
        self._size = size
        self._kept: OrderedDict[bytes, Validator] = OrderedDict()

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
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)
        return made
