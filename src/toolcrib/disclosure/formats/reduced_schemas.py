"""Reduced schemas: without the marks of generators, and in the subset that a model's API accepts.

Marks of generators cost tokens and tell a model nothing. The original schema still validates; descriptions mention the
parts that the subset dropped. The subset is a tree without references: an object at its root without combinators,
one type a node, `anyOf` if there are several, no node without a type, no array without items, `null` never inside an
`enum`. A recursive schema is followed once, and then becomes an object without details.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from msgspec import Struct, field

from ...core.json import dumps
from ...core.patterns import regex
from ...core.sanitize import clip
from ...core.schema import json_type
from ...core.schema.nodes import Node, alternatives, as_node, merged

_DIALECTS: Final = frozenset(
    {
        "http://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
    }
)
_OLD_WORDS: Final = frozenset({"$recursiveRef", "additionalItems", "dependencies"})
"""Keywords that an older dialect reads in another way than the one that MCP assumes."""

_CONSTRAINTS: Final[Mapping[str, tuple[str, ...]]] = {
    "string": ("format", "minLength", "maxLength", "pattern"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("minItems", "maxItems", "uniqueItems"),
    "object": ("minProperties", "maxProperties"),
    "boolean": (),
    "null": (),
}
"""Keywords that narrow a value of a type, and that an API may take."""
CONSTRAINT_KEYS: Final = frozenset(key for keys in _CONSTRAINTS.values() for key in keys)

_NOTED: Final = (
    "not",
    "if",
    "then",
    "else",
    "patternProperties",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "prefixItems",
    "contains",
    "minContains",
    "maxContains",
    "contentEncoding",
    "contentMediaType",
)
"""Keywords that APIs do not accept: they are described in text."""
_HINTS: Final = (
    ("properties", "object"),
    ("required", "object"),
    ("additionalProperties", "object"),
    ("items", "array"),
)
_NO_WORD: Final = regex(r"\W+", re.ASCII)
_LONGEST_KEY: Final = 64
_NOTE: Final = 160
"""Characters of one keyword in a note."""
_MAX_NODES: Final = 3000
"""Nodes of one cut schema: references that fan out are not written out without end."""
_MAX_DEPTH: Final = 24


def lean_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an input schema without a dialect that changes nothing and without titles that repeat a name."""
    lean = _untitled(schema)
    name = schema.get("title")
    if isinstance(name, str) and _squash(name).endswith(("arguments", "args", "input", "params")):
        lean.pop("title", None)
    if schema.get("$schema") in _DIALECTS and not _is_old(schema):
        lean.pop("$schema")
    return lean


def _untitled(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's schema with the titles of its properties left out that repeat the property's name."""
    lean = dict(schema)
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        inner = cast("Mapping[str, Any]", properties)
        lean["properties"] = {name: _property(name, value) for name, value in inner.items()}
    return lean


def _property(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    schema = _untitled(cast("Mapping[str, Any]", value))
    title = schema.get("title")
    if isinstance(title, str) and _squash(title) == _squash(name):
        del schema["title"]
    return schema


def _squash(text: str) -> str:
    from ...catalog.ranking.terms import squash  # it brings the stemmer: only for schemas with titles

    return squash(text)


def _is_old(value: Any) -> bool:
    """Whether a schema uses what two dialects read in different ways: lists of item schemas, older keywords."""
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        if isinstance(mapping.get("items"), list) or isinstance(mapping.get("id"), str) or _OLD_WORDS & mapping.keys():
            return True
        return any(map(_is_old, mapping.values()))
    return isinstance(value, list | tuple) and any(map(_is_old, cast("list[Any]", value)))


class Subset(Struct, frozen=True, kw_only=True):
    """Schema features that one API accepts."""

    constraints: frozenset[str]
    """Of the keywords in `CONSTRAINT_KEYS`."""
    defaults: bool = True
    enums: frozenset[str] = frozenset({"string", "integer", "number", "boolean"})
    """Types whose values may be listed."""
    closed: bool = False
    """Whether every object is closed, so that only declared properties can be sent."""
    keys: re.Pattern[str] | None = None
    """Pattern of valid property names; others are rewritten."""


class Cut(Struct, frozen=True, kw_only=True):
    """A schema as an API takes it."""

    schema: dict[str, Any]
    is_open: bool
    """Whether an object of unknown shape occurs: it has no strict form."""
    optional: tuple[str, ...]
    """Paths of properties that may be left out."""


def cut(schema: Mapping[str, Any], subset: Subset) -> Cut:
    """Return `schema`, which is that of a tool's arguments, as the API takes it."""
    cutter = _Cutter(root=schema, subset=subset)
    shown = cutter.arguments()
    return Cut(schema=shown, is_open=bool(cutter.free), optional=tuple(cutter.optional))


class _Cutter(Struct, kw_only=True):
    """One walk through one schema, for `cut`.

    `seen` are the references on the way from the root, so that a recursion ends; `free` counts the places where any
    value is taken, and `nodes` ends a schema whose references fan out.
    """

    root: Node
    subset: Subset
    free: int = 0
    optional: list[str] = field(default_factory=list[str])
    nodes: int = 0

    def arguments(self) -> dict[str, Any]:
        """Return the root: always an object, its combinators folded into it."""
        facts = _merged(self.root, self.root)
        branches = alternatives(facts)
        notes: list[str] = []
        for branch in branches:
            inner = _merged(branch, self.root)
            facts["properties"] = {**as_node(inner.get("properties")), **as_node(facts.get("properties"))}
        if branches:
            notes.append(self._choice(branches))
            always = [_merged(branch, self.root).get("required") or () for branch in branches]
            shared = [str(name) for name in always[0] if all(name in names for names in always[1:])]
            facts["required"] = [*(facts.get("required") or ()), *shared]
        return self._object({**facts, "anyOf": [], "oneOf": []}, (), "", notes)

    def node(self, given: Any, seen: tuple[str, ...], path: str) -> dict[str, Any]:
        """Return one schema below the root."""
        self.nodes += 1
        node = as_node(given)
        reference = node.get("$ref")
        if isinstance(reference, str):
            if reference in seen or not reference.startswith("#"):
                return self._unknown(
                    node, f"as {reference.rpartition('/')[2]} above" if reference in seen else reference
                )
            seen = (*seen, reference)
        if self.nodes > _MAX_NODES or path.count(".") + path.count("[") > _MAX_DEPTH:
            return self._unknown(node, "more levels than are shown")
        facts = _merged(node, self.root)
        branches = alternatives(facts)
        if branches and not facts.get("properties"):
            return self._union(facts, branches, seen, path)
        notes = [self._choice(branches)] if branches else []
        return self._typed(facts, seen, path, notes)

    def _typed(self, facts: dict[str, Any], seen: tuple[str, ...], path: str, notes: list[str]) -> dict[str, Any]:
        if "const" in facts or isinstance(facts.get("enum"), list):
            return self._listed(facts, notes)
        types = _types(facts)
        if not types:
            return self._outer(facts, {"anyOf": self._anything()}, notes)
        if len(types) > 1:
            own = {key: value for key, value in facts.items() if key not in ("description", "default", "title")}
            shown = [self._one(kind, own, seen, path, []) for kind in types]
            return self._outer(facts, {"anyOf": shown}, notes)
        return self._one(types[0], facts, seen, path, notes)

    def _one(
        self, kind: str, facts: dict[str, Any], seen: tuple[str, ...], path: str, notes: list[str]
    ) -> dict[str, Any]:
        """Return a node of one type."""
        if kind == "object":
            return self._object(facts, seen, path, notes)
        shown: dict[str, Any] = {"type": kind}
        if kind == "array":
            items = facts.get("items")
            is_known = isinstance(items, Mapping) and bool(cast("Node", items))
            shown["items"] = self.node(items, seen, f"{path}[]") if is_known else {"anyOf": self._anything()[:4]}
        self._narrow(kind, facts, shown, notes)
        return self._outer(facts, shown, notes)

    def _object(self, facts: dict[str, Any], seen: tuple[str, ...], path: str, notes: list[str]) -> dict[str, Any]:
        properties = as_node(facts.get("properties"))
        names = self._keys(properties, notes)
        below = f"{path}." if path else ""
        shown: dict[str, Any] = {
            "type": "object",
            "properties": {names[name]: self.node(properties[name], seen, below + name) for name in names},
        }
        required = [names[name] for name in dict.fromkeys(facts.get("required") or ()) if name in names]
        self.optional += [below + name for name in names if names[name] not in required]
        if required:
            shown["required"] = required
        extra = facts.get("additionalProperties")
        is_free = not properties and extra is not False and path != ""
        self.free += is_free or extra is True or isinstance(extra, Mapping)
        if self.subset.closed or extra is False:
            shown["additionalProperties"] = False
        elif isinstance(extra, Mapping) and extra:
            shown["additionalProperties"] = self.node(extra, seen, f"{below}*")
        self._narrow("object", facts, shown, notes)
        return self._outer(facts, shown, notes)

    def _union(self, facts: dict[str, Any], branches: list[Node], seen: tuple[str, ...], path: str) -> dict[str, Any]:
        shared = {key: value for key, value in facts.items() if key in ("type", *CONSTRAINT_KEYS)}
        shown = [self.node({**shared, **branch}, seen, path) for branch in branches]
        flat = [one for part in shown for one in (part["anyOf"] if list(part) == ["anyOf"] else [part])]
        unique = list({dumps(part): part for part in flat}.values())
        inner = dict(unique[0]) if len(unique) == 1 else {"anyOf": unique}
        return self._outer(facts, inner, [])

    def _listed(self, facts: dict[str, Any], notes: list[str]) -> dict[str, Any]:
        """Return an `enum` a type; `null` is a type of its own."""
        values = [facts["const"]] if "const" in facts else cast("list[Any]", facts["enum"])
        by_type: dict[str, list[Any]] = {}
        for value in values:
            by_type.setdefault(json_type(value), []).append(value)
        shown: list[dict[str, Any]] = []
        for kind, listed in by_type.items():
            if kind == "null":
                shown.append({"type": "null"})
            elif kind in self.subset.enums:
                shown.append({"type": kind, "enum": listed})
            else:
                notes.append(_note("one of", listed))
                shown.append(
                    {"type": kind} if kind != "array" else {"type": kind, "items": {"anyOf": self._anything()[:4]}}
                )
                self.free += kind == "object"
        return self._outer(facts, shown[0] if len(shown) == 1 else {"anyOf": shown or self._anything()}, notes)

    def _outer(self, facts: Mapping[str, Any], shown: dict[str, Any], notes: list[str]) -> dict[str, Any]:
        """Return `shown` with its description, and notes on dropped parts."""
        notes = [*notes, *(_note(key, facts[key]) for key in _NOTED if facts.get(key) not in (None, {}, []))]
        if "default" in facts:
            if self.subset.defaults and facts["default"] is not None:
                shown["default"] = facts["default"]
            elif facts["default"] is not None:
                notes.append(f"default {_short(facts['default'])}")
        words = str(facts.get("description") or facts.get("title") or "").strip()
        note = f"({'; '.join(notes)})" if notes else ""
        text = " ".join(part for part in (words, note) if part)
        if text:
            shown["description"] = text
        return shown

    def _narrow(self, kind: str, facts: Mapping[str, Any], shown: dict[str, Any], notes: list[str]) -> None:
        for key in _CONSTRAINTS[kind]:
            if facts.get(key) is None or facts[key] is False:  # 0 is a bound
                continue
            if key in self.subset.constraints:
                shown[key] = facts[key]
            else:
                notes.append(_note(key, facts[key]))

    def _choice(self, branches: Iterable[Node]) -> str:
        """Return a text on the properties that one of the branches requires."""
        named = [" and ".join(_merged(branch, self.root).get("required") or ()) for branch in branches]
        return f"one of: {' | '.join(name for name in named if name)}" if all(named) else "in one of several forms"

    def _unknown(self, node: Node, why: str) -> dict[str, Any]:
        self.free += 1
        return self._outer({**node, "default": None}, {"type": "object"}, [_note("shape", why)])

    def _anything(self) -> list[dict[str, Any]]:
        self.free += 1
        plain: list[dict[str, Any]] = [{"type": kind} for kind in ("string", "number", "boolean", "object")]
        return [*plain, {"type": "array", "items": {"anyOf": plain}}, {"type": "null"}]

    def _keys(self, names: Iterable[str], notes: list[str]) -> dict[str, str]:
        """Return the name under which each property is sent; one whose name is occupied is only mentioned in a note."""
        found: dict[str, str] = {}
        fine = self.subset.keys
        for name in names:
            is_fine = fine is None or fine.fullmatch(name) is not None
            key = name if is_fine else _NO_WORD.sub("_", name)[:_LONGEST_KEY]
            if key in found.values() or (key != name and key in names):
                notes.append(f"also {_short(name)}, which this API cannot name")
            else:
                found[name] = key
        return found


def _note(key: str, value: Any) -> str:
    return f"{key} {_short(value)}"


def _short(value: Any) -> str:
    return clip(value if isinstance(value, str) else dumps(value).decode(), _NOTE)


def _merged(node: Node, root: Node) -> dict[str, Any]:
    """Return a schema merged with all that it includes by `$ref` and `allOf`: the first value of a keyword holds."""
    facts: dict[str, Any] = {}
    for part in merged(node, root):
        for key, value in part.items():
            if key == "properties":
                facts[key] = {**as_node(value), **as_node(facts.get(key))}
            elif key == "required":
                facts[key] = [*(facts.get(key) or ()), *(value or ())]
            elif key in ("anyOf", "oneOf") and key in facts:
                continue
            elif key not in ("allOf", "$defs", "definitions"):
                facts.setdefault(key, value)
    return facts


def _types(facts: Mapping[str, Any]) -> list[str]:
    """Return the types of a node, in order; derived from its keywords if it has no type; empty for any value."""
    stated = facts.get("type")
    known = [stated] if isinstance(stated, str) else [str(kind) for kind in cast("list[Any]", stated or [])]
    known = [kind for kind in known if kind in _CONSTRAINTS]
    if known:
        return list(dict.fromkeys(known))
    for key, kind in _HINTS:
        if key in facts:
            return [kind]
    for kind in ("string", "number"):
        if any(key in facts for key in _CONSTRAINTS[kind]):
            return [kind]
    return []
