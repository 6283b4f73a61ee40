"""Bundle of a JSON Schema with the schemas that it refers to, of those that the operator has on disk.

References are never fetched. A reference to a known URI is kept by a copy of that schema inside the referring one
(JSON Schema 2020-12, section 9.3): the result is one document, so that its digest pins the copies, limits count them,
and readers of the schema, the model among others, need no registry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import urldefrag, urljoin

from .nodes import Node

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_DEFINITIONS: Final = ("draft-04/schema", "draft-06/schema", "draft-07/schema")
"""Dialects that keep the schemas inside of a schema under `definitions`, later ones under `$defs`."""
_DEPTH: Final = 64


def bundle(schema: Node, known: Mapping[str, Any]) -> Node:
    """Return `schema` with a copy of each schema of `known`, by URI, that it refers to, directly or through others.

    The same object where it refers to none. References that `known` does not answer stay as they are. Raises
    `ValueError` for a schema that is nested too deeply, or one of `known` that has another `$id` than its URI and is
    referred to by a part of it.
    """
    if not known:
        return schema
    own = set[str]()
    waiting = list(_references(schema, "", own, 0))
    copies: dict[str, Node] = {}
    renamed: dict[str, str] = {}
    while waiting:
        reference = waiting.pop()
        uri, fragment = urldefrag(reference)
        if uri in copies:
            name = renamed.get(uri)
        elif uri in own or uri not in known:
            continue
        else:
            copies[uri], name = _copy(uri, known[uri])
            waiting += _references(copies[uri], uri, own, 0)
            if name is not None:
                renamed[uri] = name
        if name is not None and fragment:
            raise ValueError(f"{reference}: the schema has the `$id` {name}; refer to its part by that")
    if not copies:
        return schema
    identifier = schema.get("$schema")
    old = isinstance(identifier, str) and identifier.rstrip("#").endswith(_DEFINITIONS)
    key = "definitions" if old else "$defs"
    named = schema.get(key)
    definitions = dict(cast("Node", named)) if isinstance(named, Mapping) else {}
    for uri in sorted(copies):
        name = uri
        while name in definitions:
            name += "_"
        definitions[name] = copies[uri]
    return {**schema, key: definitions}


def _copy(uri: str, document: Any) -> tuple[Node, str | None]:
    """Return the schema at `uri` with its `$id`, and the other one that it has, if it does: `uri` then refers to it."""
    if isinstance(document, bool):
        return ({"$id": uri} if document else {"$id": uri, "not": {}}), None
    if not isinstance(document, Mapping):
        raise ValueError(f"{uri}: a schema is an object, true or false")
    node = cast("Node", document)
    key = "id" if "id" in node and "$id" not in node and isinstance(node["id"], str) else "$id"
    own = node.get(key)
    if not isinstance(own, str):
        return {"$id": uri, **node}, None
    canonical = urldefrag(urljoin(uri, own)).url
    if canonical == uri:
        return {**node, key: uri}, None
    return {"$id": uri, "$ref": canonical, "$defs": {canonical: {**node, key: canonical}}}, canonical


def _references(value: Any, base: str, own: set[str], depth: int) -> Iterator[str]:
    """Yield the references below `value` as absolute URIs, and add the URIs that it defines itself to `own`."""
    if depth > _DEPTH:
        raise ValueError(f"the schema is nested deeper than {_DEPTH} levels")
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _references(item, base, own, depth + 1)
    elif isinstance(value, Mapping):
        node = cast("Node", value)
        if isinstance(identity := node.get("$id", node.get("id")), str):
            base = urldefrag(urljoin(base, identity)).url
            own.add(base)
        for key, item in node.items():
            if key in _REFERENCES and isinstance(item, str):
                yield urljoin(base, item)
            else:
                yield from _references(item, base, own, depth + 1)
