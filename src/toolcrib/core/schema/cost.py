"""Cost of a schema: how often it looks at one value, and the limits above which it is refused.

The cost of a schema is counted before anything is compiled. jsonschema-rs is linear for ordinary schemas. Two shapes
are not, and both fit in a kilobyte: a chain of definitions that each refer twice to the next doubles the work with
every link, and a recursive alternative doubles it with every level of the value (measured on 0.60.3: 22 links take 0.1
s and each further one twice as long; collecting the errors of a value 20 levels deep takes a minute and all memory).
The number of checks of one position of a value separates both from large harmless schemas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import unquote, urldefrag, urljoin

import orjson
from msgspec import Struct, field

from ..json import value_at
from .nodes import Node, as_node

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
    """Number of checks of a value (`here`) and of each part of it (`below`).

    Keys of `below` are those of `_children`: `.name`, `[0]`, and `.` or `[` for any part, which count for each named
    one.
    """

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

        measure({"type": "object", "properties": {"name": {"type": "string"}}})    looks 1, growth 1
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
    walk = _CostWalk(schema)
    looks = walk.weigh(schema)[0].peak() if is_costly else 1
    if looks > _MAX_LOOKS:
        message = f"the schema looks {looks:,} times at one value through nested references"
        raise ValueError(f"{message}; {_MAX_LOOKS:,} times are allowed")
    if walk.unfollowed > _MAX_UNFOLLOWED:
        raise ValueError(f"the schema has {walk.unfollowed} references that cannot be followed")
    return Cost(looks=looks, growth=walk.growth, patterns=walk.patterns, defaults=defaults)


class _CostWalk:
    """One pass to find the names of things, one to weigh them.

    The weight of a node is a pair: all checks at a value, and the ones among them that come back to a schema which is
    being weighed (`_open`). The second is the growth: 1 for a tree (`children: [$ref: "#"]`), 2 where each level looks
    twice at the same part. Weights are kept by the node's identity, so a definition is weighed once, however often it
    is referred to.
    """

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
        """Find the schemas by name, and count nodes and patterns. Raises `ValueError` above a limit."""
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
        """Return the schema that a reference means: an empty one, which is counted, where there is none."""
        url, fragment = urldefrag(urljoin(base, reference))
        if fragment and not fragment.startswith("/"):
            found: Any = self._named.get(f"{url}#{fragment}")
        else:
            try:
                found = value_at(self._named.get(url), unquote(fragment))
            except KeyError:
                found = None
        if found is None:
            self.unfollowed += 1
        return as_node(found)


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
