"""Navigation in a schema: local references, types, and the parts that apply to the same value.

Nothing here validates; a schema that cannot be followed is left to the compiler, which refuses it with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import unquote

from ..json import read_json, value_at

Node = Mapping[str, Any]

JSON_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})

_SCALARS: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    type(None): "null",
}
_MAX_HOPS: Final = 32
"""`$ref` chains and nested combinators longer than this are not followed: they prove nothing."""


def as_node(value: object) -> Node:
    """Return `value` when it is a schema object; everything else (true, false, rubbish) counts as an empty one."""
    return cast("Node", value) if isinstance(value, Mapping) else {}


def resolve(node: Node, root: Node) -> Node:
    """Follow a local `$ref` (`#`, `#/$defs/x`) of `node`; a reference that cannot be followed gives an empty schema."""
    for _ in range(_MAX_HOPS):
        reference = node.get("$ref")
        if not isinstance(reference, str):
            return node
        target = _lookup(reference, root)
        siblings = {key: value for key, value in node.items() if key != "$ref"}
        node = {**target, **siblings} if siblings else target
    return {}


def _lookup(reference: str, root: Node) -> Node:
    try:
        return as_node(value_at(root, unquote(reference[1:]))) if reference.startswith("#") else {}
    except KeyError:
        return {}


def merged(node: Node, root: Node, hops: int = 0) -> Iterator[Node]:
    """Yield the schemas that a value of `node` must fit in any case: itself, its `$ref`, its `allOf`.

    `anyOf` and `oneOf` are not among them: no single branch of these has to fit.
    """
    resolved = resolve(node, root)
    yield resolved
    if hops < _MAX_HOPS:
        for part in resolved.get("allOf") or ():
            yield from merged(as_node(part), root, hops + 1)


def alternatives(node: Node) -> list[Node]:
    """Return the branches of `anyOf` and `oneOf`, in order."""
    branches = [*(node.get("anyOf") or ()), *(node.get("oneOf") or ())]
    return [as_node(branch) for branch in branches]


def properties_of(node: Node, root: Node) -> dict[str, Node]:
    """Return the declared properties of `node`, those of its `$ref` and `allOf` included."""
    found: dict[str, Node] = {}
    for part in merged(node, root):
        for name, value in as_node(part.get("properties")).items():
            found.setdefault(name, as_node(value))
    return found


def types_of(node: Node, root: Node, hops: int = 0) -> frozenset[str]:
    """Return the JSON types that `node` can admit; all of them if it has no restriction.

    Branches of a choice add up: `{"anyOf": [{"type": "string"}, {"type": "null"}]}` admits both types.
    """
    admitted = JSON_TYPES
    if hops > _MAX_HOPS:
        return admitted
    for part in merged(node, root):
        admitted &= _stated_types(part)
        for keyword in ("anyOf", "oneOf"):
            branches = part.get(keyword)
            if isinstance(branches, list) and branches:
                admitted &= frozenset[str]().union(
                    *(types_of(as_node(branch), root, hops + 1) for branch in cast("list[Any]", branches))
                )
    return admitted


def _stated_types(node: Node) -> frozenset[str]:
    stated = node.get("type")
    types = frozenset([stated]) if isinstance(stated, str) else frozenset(stated or JSON_TYPES)
    if "number" in types:
        types |= {"integer"}
    if "const" in node:
        types &= {json_type(node["const"])}
    if isinstance(node.get("enum"), list):
        types &= {json_type(value) for value in node["enum"]}
    return types


def json_type(value: object) -> str:
    """Return the JSON name of a Python value's type; the Python name of a type without one."""
    if isinstance(value, Mapping):
        return "object"
    if isinstance(value, list | tuple):
        return "array"
    return _SCALARS.get(type(value)) or type(value).__name__


def value_of(text: str, types: frozenset[str]) -> Any:
    """Return the value that a text stands for where a schema admits these types; itself where text is admitted."""
    if "string" in types:
        return text
    try:
        return read_json(text, strict=True)
    except ValueError:
        return text


def type_in_words(schema: Node) -> str:
    """Return the type of the values that a schema describes, the parts of a union joined by ` | `; else `any`."""
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(str(one) for one in cast("list[Any]", kind))
    if kind == "array":
        items = type_in_words(as_node(schema.get("items")))
        return "array" if items == "any" else f"array of {items}"
    if isinstance(kind, str):
        return kind
    branches = [branch for key in ("anyOf", "oneOf") for branch in schema.get(key) or ()]
    if branches:
        return " | ".join(dict.fromkeys(type_in_words(as_node(branch)) for branch in branches))
    values = [schema["const"]] if "const" in schema else schema.get("enum") or ()
    return " | ".join(dict.fromkeys(json_type(value) for value in values)) or "any"
