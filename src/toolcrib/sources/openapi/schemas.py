"""Schemas and examples of a description as JSON Schema 2020-12."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from ...core.json import as_mapping, dumps
from ...core.patterns import regex
from ...core.sanitize import clean_text, clip
from ...core.schema.nodes import JSON_TYPES
from .description import Refs
from .request import Operation

_ROOM: Final = 56 << 10
"""Bytes of one tool's schema above which the deepest part is left open; 64 KiB are allowed (security.md R13)."""
_MAX_DEPTH: Final = 40
_MAX_PARTS: Final = 5_000
"""Schemas that one tool's arguments are made of, definitions aside: more do not fit into 64 KiB anyway."""
_PROSE: Final = 1000
"""Characters of the description of one value."""
_INLINE: Final = 300
"""Bytes up to which a referred schema that refers to nothing itself is put in place."""
_SHORT: Final = 60
"""Characters of a default or an example in a description."""

_KEPT: Final = (
    *("const", "contentEncoding", "contentMediaType", "deprecated", "enum", "exclusiveMaximum", "exclusiveMinimum"),
    *("format", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minProperties"),
    *("minimum", "multipleOf", "pattern", "uniqueItems", "maxContains", "minContains", "dependentRequired"),
)
_NODES: Final = ("not", "if", "then", "else", "contains", "propertyNames", "items", "unevaluatedItems")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS: Final = ("patternProperties", "dependentSchemas")
_EXTRA: Final = ("additionalProperties", "unevaluatedProperties")

_BRANCHING: Final = frozenset({"properties", "items", "allOf", "anyOf", "oneOf", "$ref"})
_NOT_BESIDE: Final = ("$ref", "nullable")

_LINK: Final = regex(r"\[([^\[\]\n]{1,200})\]\([^()\s]{1,500}\)")
_TAG: Final = regex(r"</?(?:p|br|b|i|em|strong|code|ul|ol|li|a|span|div)\b[^<>]{0,200}>", re.IGNORECASE)
_UNSAFE: Final = regex(r"[^A-Za-z0-9_.-]+")

_MAX_BYTES: Final = 2048


class Schemas:
    """The schemas of one description. Every referred one is rewritten once."""

    def __init__(self, refs: Refs, *, is_old: bool) -> None:
        """`is_old`: version 3.0, where keywords beside a reference are ignored."""
        self._refs = refs
        self._is_old = is_old
        self._names: dict[str, str] = {}
        self._pointers: dict[str, str] = {}
        self._defs: dict[str, dict[str, Any] | ValueError] = {}
        self._sizes: dict[str, int] = {}
        self._inlined: dict[str, bool] = {}
        self._left: float = _MAX_PARTS

    def begin(self) -> None:
        """Start the next tool: each has limits of its own."""
        self._left = _MAX_PARTS

    def convert(self, node: object) -> dict[str, Any]:
        """Return `node` rewritten, with references to `$defs`. Raises `ValueError` for what cannot be taken."""
        return self._convert(node, 0)

    def complete(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return `schema` with the `$defs` that it needs, near ones first.

        Of a schema that would grow above the limit, what lies deepest admits anything: the server knows better.
        """
        room = _ROOM - len(dumps(schema))
        defs: dict[str, Any] = {}
        waiting = list(_referred(schema))
        while waiting:
            following: list[str] = []
            for name in waiting:
                if name in defs or name not in self._pointers:
                    continue
                definition = self._definition(name)
                room -= self._sizes[name]
                defs[name] = definition if room > 0 else {"description": "See the API's own documentation."}
                if room > 0:
                    following += _referred(definition)
            waiting = following
        return {**schema, "$defs": defs} if defs else schema

    def _definition(self, name: str) -> dict[str, Any]:
        known = self._defs.get(name)
        if known is None:
            left, self._left = self._left, math.inf  # once for all tools, and no larger than the description
            try:
                known = self._convert(self._refs.find(self._pointers[name]), 0)
                self._sizes[name] = len(dumps(known)) + len(name) + 4
            except ValueError as error:
                known = error
            self._left = left
            self._defs[name] = known
        if isinstance(known, ValueError):
            raise ValueError(str(known))
        return known

    def _name(self, reference: str) -> str:
        if reference not in self._names:
            self._refs.find(reference)
            pointer = reference.removeprefix("#/components/schemas/").removeprefix("#/")
            base = _UNSAFE.sub("_", pointer.replace("~1", "/").replace("~0", "~"))[-80:].strip("_") or "schema"
            name, number = base, 1
            while name in self._pointers:
                number += 1
                name = f"{base}_{number}"
            self._names[reference], self._pointers[name] = name, reference
        return self._names[reference]

    def _convert(self, node: object, depth: int) -> dict[str, Any]:
        if depth > _MAX_DEPTH:
            raise ValueError(f"a schema is nested deeper than {_MAX_DEPTH} levels")
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"its schema has more than {_MAX_PARTS:,} parts")
        if isinstance(node, bool):
            return {} if node else {"not": {}}
        given = as_mapping(node)
        if isinstance(given.get("$ref"), str):
            return self._reference(given, depth)
        made = _plain(given)
        self._children(given, made, depth)
        _modernised(given, made)
        return made

    def _reference(self, given: Mapping[str, Any], depth: int) -> dict[str, Any]:
        name = self._name(given["$ref"])
        made: dict[str, Any] = {"$ref": f"#/$defs/{name}"}
        if self._is_inlined(name):
            made = dict(self._definition(name))
        if not self._is_old:
            beside = self._convert({key: value for key, value in given.items() if key not in _NOT_BESIDE}, depth + 1)
            made |= beside
        elif text := prose(given.get("description")):
            made["description"] = text
        return {"anyOf": [made, {"type": "null"}]} if given.get("nullable") is True else made

    def _is_inlined(self, name: str) -> bool:
        """Whether a definition is put in place: it is small, plain, and refers to nothing, itself above all."""
        known = self._inlined.get(name)
        if known is None:
            target = as_mapping(self._refs.find(self._pointers[name]))
            known = not _BRANCHING & target.keys() and not _referred(target)
            if known:
                self._definition(name)
                known = self._sizes[name] <= _INLINE
            self._inlined[name] = known
        return known

    def _children(self, given: Mapping[str, Any], made: dict[str, Any], depth: int) -> None:
        for key in _NODES:
            if isinstance(given.get(key), Mapping | bool):
                made[key] = self._convert(given[key], depth + 1)
        for key in _LISTS:
            branches = given.get(key)
            if isinstance(branches, list) and branches:
                made[key] = [self._convert(branch, depth + 1) for branch in cast("list[Any]", branches)]
        for key in _MAPS:
            if isinstance(given.get(key), Mapping):
                made[key] = {name: self._convert(one, depth + 1) for name, one in as_mapping(given[key]).items()}
        for key in _EXTRA:
            extra = given.get(key)
            if isinstance(extra, bool):
                made[key] = extra
            elif isinstance(extra, Mapping):
                made[key] = self._convert(cast("Any", extra), depth + 1)
        self._properties(given, made, depth)

    def _properties(self, given: Mapping[str, Any], made: dict[str, Any], depth: int) -> None:
        properties = as_mapping(given.get("properties"))
        sent = {name: one for name, one in properties.items() if as_mapping(one).get("readOnly") is not True}
        if sent:
            made["properties"] = {name: self._convert(one, depth + 1) for name, one in sent.items()}
        required = given.get("required")
        if isinstance(required, list):
            names = [
                name for name in cast("list[Any]", required) if isinstance(name, str) and _is_sent(name, properties)
            ]
            if names:
                made["required"] = list(dict.fromkeys(names))


def prose(value: object, limit: int = _PROSE) -> str:
    """Return a description as plain text of one paragraph: no links, no markup, nothing invisible."""
    if not isinstance(value, str):
        return ""
    text = clean_text(_TAG.sub(" ", _LINK.sub(r"\1", value)))[0]
    return clip(" ".join(text.split()), limit)


def _is_sent(name: str, properties: Mapping[str, Any]) -> bool:
    return as_mapping(properties.get(name)).get("readOnly") is not True


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords without subschemas: type, bounds, prose."""
    made: dict[str, Any] = {}
    types = _types(given)
    if types:
        made["type"] = types[0] if len(types) == 1 else types
    if text := _prose(given):
        made["description"] = text
    for key in _KEPT:
        if given.get(key) is not None:
            made[key] = given[key]
    if given.get("format") in ("binary", "byte") and "string" in types:
        del made["format"]
        made["contentEncoding"] = "base64"
    if made.get("deprecated") is not True:
        made.pop("deprecated", None)
    return made


def _types(given: Mapping[str, Any]) -> list[str]:
    stated = given.get("type")
    several = cast("list[Any]", stated) if isinstance(stated, list) else [stated]
    known = [one for one in several if isinstance(one, str) and one in JSON_TYPES]
    if not known and isinstance(given.get("properties"), Mapping):
        return ["object"]
    return known


def _prose(given: Mapping[str, Any]) -> str:
    """The description, and after it what else helps to fill the value in."""
    parts = [prose(given.get("description")) or prose(given.get("title"), _SHORT)]
    for word in ("default", "example"):
        value = given.get(word)
        if word == "example" and ("enum" in given or "default" in given):
            continue
        if value is not None and not isinstance(value, Mapping) and len(shown := dumps(value).decode()) <= _SHORT:
            parts.append(f"{word.capitalize()}: {shown}.")
    return " ".join(part for part in parts if part)


def _modernised(given: Mapping[str, Any], made: dict[str, Any]) -> None:
    """Translate keywords of version 3.0 into 2020-12. Descriptions of later versions use them too, by habit."""
    for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(made.get(bound), bool):
            is_exclusive = made.pop(bound)
            if is_exclusive and limit in made:
                made[bound] = made.pop(limit)
    if given.get("nullable") is not True:
        return
    stated = made.get("type")
    if isinstance(stated, str):
        made["type"] = [stated, "null"]
        if isinstance(made.get("enum"), list) and None not in made["enum"]:
            made["enum"] = [*made["enum"], None]
    branches = {key: made.pop(key) for key in ("allOf", "anyOf", "oneOf") if key in made}
    if branches:
        made["anyOf"] = [branches, {"type": "null"}]
        if list(branches) == ["anyOf"]:
            made["anyOf"] = [*branches["anyOf"], {"type": "null"}]


def _referred(schema: object) -> list[str]:
    """The names of the `$defs` that `schema` refers to, in order."""
    found: dict[str, None] = {}
    stack: list[Any] = [schema]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            node = cast("dict[str, Any]", value)
            reference = node.get("$ref")
            if isinstance(reference, str):
                found[reference.removeprefix("#/$defs/")] = None
            stack.extend(reversed(node.values()))
        elif isinstance(value, list):
            stack.extend(reversed(cast("list[Any]", value)))
    return list(found)


def samples(
    refs: Refs, declared: Iterable[object], node: Mapping[str, Any], operation: Operation
) -> list[Mapping[str, Any]]:
    """Return whole sets of arguments made of the examples of parameters and body, best first; small ones only."""
    given: dict[tuple[str, str], Any] = {}
    for one in declared:
        parameter = refs.resolve(one)
        for value in _values(refs, parameter):
            given[str(parameter.get("in")), str(parameter.get("name"))] = value
            break
    used = {one.argument: (one.place, one.name) for one in operation.parameters if (one.place, one.name) in given}
    base = {argument: given[key] for argument, key in used.items()}
    if operation.body is None:
        return [base] if base and _is_small(base) else []
    content = as_mapping(
        as_mapping(refs.resolve(node.get("requestBody")).get("content")).get(operation.body.media_type)
    )
    found = [_with_body(base, value, operation) for value in _values(refs, content)]
    return [one for one in found if one and _is_small(one)]


def _with_body(base: Mapping[str, Any], value: Any, operation: Operation) -> Mapping[str, Any]:
    body = operation.body
    if body is None or body.files or body.kind == "binary":
        return {}
    if body.argument:
        return {**base, body.argument: value}
    given = as_mapping(value)
    return {**base, **{argument: given[name] for argument, name in body.properties.items() if name in given}}


def _values(refs: Refs, node: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the values of `example`, `examples` and the schema's own example."""
    if "example" in node:
        yield node["example"]
    for one in as_mapping(node.get("examples")).values():
        try:
            resolved = refs.resolve(one)
        except ValueError:
            continue
        if "value" in resolved:
            yield resolved["value"]
    schema = node.get("schema")
    if isinstance(schema, Mapping):
        try:
            resolved = refs.resolve(cast("Any", schema))
        except ValueError:
            return
        if "example" in resolved:
            yield resolved["example"]


def _is_small(value: Mapping[str, Any]) -> bool:
    try:
        return len(dumps(value)) <= _MAX_BYTES
    except TypeError:
        return False
