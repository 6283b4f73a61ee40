"""Short forms of a tool: a signature for searches, a description with an example, a brief declaration for lists.

A brief declaration stands in a list that a model reads in every turn. It keeps names, types, choices and meaningful
defaults; it loses bounds, which are still checked, and all but the beginning of each description. The whole is in the
catalog, and in the answers of meta-tools that describe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

from msgspec.structs import replace

from ..core.json import dumps, loads
from ..core.patterns import regex
from ..core.sanitize import clip
from ..core.schema import FieldError, example, join_path, split_path
from ..core.schema.nodes import Node, alternatives, as_node, merged, properties_of, resolve
from ..core.tool import Tool

_MAX_OPTIONAL: Final = 6
"""Optional arguments beyond this many are counted: the description has them all."""
_MAX_DEPTH: Final = 6
"""Lists and alternatives inside one another that a type names."""
_MAX_OPTIONAL_CORRECTED: Final = 20
"""The same for an object in which a name was wrong."""
_MAX_CORRECTIONS: Final = 4
"""Parts of a schema that a correction repeats."""
_MAX_CORRECTION_LENGTH: Final = 400
"""Characters of such a part; a larger one is named by its types."""
_MAX_SUMMARY_LENGTH: Final = 90
_MAX_NAMES: Final = 6
"""Options of an enum, and names inside an object, that a signature has room for."""

_MAX_DESCRIPTION_LENGTH: Final = 80
"""Characters of a tool's description."""
_MAX_ARGUMENT_TEXT: Final = 36
_BOUND_KEYWORDS: Final = frozenset(
    {
        "additionalProperties",
        "examples",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "pattern",
        "title",
    }
)
_EMPTY_DEFAULTS: Final = ("", None, False)
"""Defaults that say no more than that the argument may be left out."""
_SENTENCE_END: Final = regex(r"(?<=[.;])\s")


@lru_cache(maxsize=256)  # searches show the same tools again; a walk through a schema takes 14 µs
def signature(tool: Tool) -> str:
    """Return `name(required: type, optional?: type)`; optional arguments are cut to the first few."""
    return f"{tool.name}({_member_list(tool.input_schema, tool.input_schema)})"


def line(tool: Tool) -> str:
    """Return one line of a search: signature, effects, summary."""
    mark = "" if tool.kind == "read" else f" [{tool.kind}]"
    return f"{signature(tool)}{mark} {clip(tool.summary, _MAX_SUMMARY_LENGTH)}".rstrip()


def describe(tool: Tool) -> str:
    """Return everything a model needs to call `tool` right: description, schema, one valid example, advice."""
    shown: dict[str, Any] = {"name": tool.name, "kind": tool.kind, "description": tool.description}
    shown["input_schema"] = tool.input_schema
    for key, texts in tool.guidance.policy.items():
        shown[key] = list(texts)
    return "\n".join([dumps(shown).decode(), *_example_line(tool)])


def correction(tool: Tool, errors: Sequence[FieldError]) -> str:
    """Return the correction of wrong arguments for a model: the type of each wrong part, and one valid example.

    An unknown argument gets the names and types of its place. The rest of the schema is in the model's context already,
    or in the answer of a meta-tool that describes: repeated with every error it would cost more than the call.
    """
    parts: dict[str, str] = {}
    for error in errors:
        place, text = _expected_at(tool, error)
        parts.setdefault(place, text)
    shown = [f"{place} takes {text}" for place, text in list(parts.items())[:_MAX_CORRECTIONS]]
    return "\n".join([*shown, *_example_line(tool)])


def _example_line(tool: Tool) -> list[str]:
    """Return the line with valid arguments; none where they may all be left out, which the schema says."""
    arguments = call_example(tool)
    return [f"example: {dumps(arguments).decode()}"] if arguments else []


def _expected_at(tool: Tool, error: FieldError) -> tuple[str, str]:
    """Return the declared place that is nearest to an error, and what it takes."""
    root, steps = tool.input_schema, split_path(error.path)
    node, known = root, 0
    while known < len(steps) and (below := _child_schema(node, steps[known], root)) is not None:
        node, known = below, known + 1
    if not known:
        return tool.name, f"({_member_list(root, root, _MAX_OPTIONAL_CORRECTED)})"
    schema = dumps(resolve(node, root)).decode()
    is_told = known == len(steps) and len(schema) <= _MAX_CORRECTION_LENGTH and "$ref" not in schema
    return join_path(steps[:known]), schema if is_told else _type_text(node, root, is_open=True)


def _child_schema(node: Node, step: str | int, root: Node) -> Node | None:
    """Return the one schema of a property or an item; None if there is none, or several alternatives have one."""
    node = resolve(node, root)
    found = list[Node]()
    for one in (node, *(resolve(branch, root) for branch in alternatives(node))):
        if isinstance(step, str):
            found.append(properties_of(one, root).get(step, {}))
        else:
            places = cast("list[Any]", one.get("prefixItems") or ())
            found.append(as_node(places[step] if step < len(places) else one.get("items")))
    schemas = list(filter(None, found))
    return schemas[0] if len(schemas) == 1 else None


@lru_cache(maxsize=128)
def call_example(tool: Tool) -> Mapping[str, Any]:
    """Return valid arguments: the tool's first example, else the smallest that the schema accepts.

    Kept, because the schema is compiled for it: each refusal of wrong arguments shows it twice.
    """
    return tool.guidance.examples[0] if tool.guidance.examples else example(tool.input_schema)


def _member_list(node: Node, root: Node, most: int = _MAX_OPTIONAL) -> str:
    """Return `required: type, optional?: type` of an object, with at most so many optional ones."""
    properties = properties_of(node, root)
    names = [name for part in merged(node, root) for name in part.get("required", ()) if name in properties]
    required = list(dict.fromkeys(names))
    optional = [name for name in properties if name not in required]
    shown = [f"{name}: {_type_text(properties[name], root)}" for name in required]
    shown += [f"{name}?: {_type_text(properties[name], root)}" for name in optional[:most]]
    if len(optional) > most:
        shown.append(f"+{len(optional) - most} optional")
    return ", ".join(shown)


def _type_text(schema: Any, root: Node, depth: int = 0, *, is_open: bool = False) -> str:
    """Return the type of a value in short; `is_open` names the types inside an object, too."""
    node = resolve(as_node(schema), root)
    if "enum" in node and len(node["enum"]) <= _MAX_NAMES:
        return "|".join(dumps(value).decode() for value in node["enum"])
    if "const" in node:
        return dumps(node["const"]).decode()
    if depth > _MAX_DEPTH:  # a list of itself
        return "any"
    if branches := alternatives(node):
        return "|".join(dict.fromkeys(_type_text(branch, root, depth + 1, is_open=is_open) for branch in branches))
    kind = node.get("type")
    if kind == "array":
        return _list_text(node, root, depth + 1, is_open=is_open)
    if kind == "object" or "allOf" in node:
        return (
            f"{{{_member_list(node, root, _MAX_OPTIONAL_CORRECTED)}}}"
            if is_open
            else _object_text(properties_of(node, root))
        )
    if isinstance(kind, list):
        return "|".join(str(one) for one in cast("list[Any]", kind))
    return kind if isinstance(kind, str) else "any"


def _list_text(node: Node, root: Node, depth: int, *, is_open: bool) -> str:
    """Return the type of a list: `string[]`, or `[number, string]` where each place has its own."""
    places = cast("list[Any]", node.get("prefixItems") or ())
    if 0 < len(places) <= _MAX_NAMES:
        return f"[{', '.join(_type_text(one, root, depth, is_open=is_open) for one in places)}]"
    item = _type_text(node.get("items"), root, depth, is_open=is_open)
    return f"({item})[]" if "|" in item else f"{item}[]"


def _object_text(properties: Node) -> str:
    """Return the names inside an object while they are few: a model that only sees `object` has to ask again."""
    return f"{{{', '.join(properties)}}}" if 0 < len(properties) <= _MAX_NAMES else "object"


def in_brief(tool: Tool) -> Tool:
    """Return a tool with a short description, and arguments that say what they take and no more."""
    return replace(
        tool,
        description=_first_sentence(tool.description, _MAX_DESCRIPTION_LENGTH),
        input_schema={"type": "object", **_inline_definitions(_shorten_schema(tool.input_schema, 0))},
    )


def _inline_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with each definition that is used once, and names no other, in its place."""
    text = dumps(schema).decode()
    for name, definition in list(schema.get("$defs", {}).items()):
        reference = dumps({"$ref": f"#/$defs/{name}"}).decode()
        if text.count(reference) == 1 and b"$ref" not in dumps(definition):
            text = text.replace(reference, dumps(definition).decode())
            schema = cast("dict[str, Any]", loads(text))
            del schema["$defs"][name]
            text = dumps(schema).decode()
    return {key: value for key, value in schema.items() if key != "$defs" or value}


def _shorten_schema(node: Mapping[str, Any], depth: int) -> dict[str, Any]:
    short: dict[str, Any] = {}
    for key, value in node.items():
        if key in _BOUND_KEYWORDS or (key == "default" and value in _EMPTY_DEFAULTS):
            continue
        if key in ("properties", "$defs") and isinstance(value, Mapping):
            inner = cast("Mapping[str, Any]", value)
            below = depth + (1 if key == "properties" else 2)
            short[key] = {
                name: _shorten_schema(cast("Mapping[str, Any]", one), below) if isinstance(one, Mapping) else one
                for name, one in inner.items()
            }
        elif key == "items" and isinstance(value, Mapping):
            short[key] = _shorten_schema(cast("Mapping[str, Any]", value), depth + 1)
        elif key == "anyOf" and isinstance(value, list):
            kinds = [
                _shorten_schema(one, depth) for one in cast("list[Mapping[str, Any]]", value) if one != {"type": "null"}
            ]
            short |= kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        elif key == "description":
            if depth == 1 and "enum" not in node and (text := _first_sentence(str(value), _MAX_ARGUMENT_TEXT)):
                short[key] = text
        elif not (key == "required" and not value):
            short[key] = value
    return short


def _first_sentence(text: str, most: int) -> str:
    """Return the first sentence of a text; of a long one the part before its last comma that fits, or as many words."""
    first = _SENTENCE_END.split(" ".join(text.split()), maxsplit=1)[0].rstrip(" .:;,")
    if len(first) <= most:
        return first
    part = first[:most].rpartition(", ")[0] or first[:most].rpartition(" ")[0]
    return part.rstrip(" .:;,")
