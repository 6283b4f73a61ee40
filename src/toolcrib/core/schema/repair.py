"""Repair of arguments as models really send them, only where the schema leaves no doubt.

Every change is reported in a note. Nothing is guessed: a text that could be valid is kept, two possible names change
nothing.

`dispatch.steps.arguments.Repair` runs it before validation; what it returns is validated as any other arguments.

    '{"path": "a"}'                        {"path": "a"}              text, read
    {"arguments": {"path": "a"}}           {"path": "a"}              unwrapped
    {"File-Path": "a"}                     {"file_path": "a"}         renamed
    {"body": "a"}                          {"content": "a"}           renamed, where the tool has this alias
    {"paths": '["a"]'}                     {"paths": ["a"]}           a list in text, where no text is admitted
    {"count": "3"}                         unchanged                  scalars are never coerced
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from json import JSONDecodeError
from types import MappingProxyType
from typing import Any, Final, cast

import orjson

from ...errors import ToolFailure
from ..json import JsonTooLarge, as_list, as_mapping, read_json
from .json_limits import MAX_ARGUMENT_BYTES
from .nodes import Node, alternatives, as_node, json_type, merged, properties_of, resolve, types_of

WRAPPERS: Final = ("args", "arguments", "input", "parameters", "params")
"""Names under which models pass all arguments as one object."""
_SHOWN: Final = 500
"""Characters of an unreadable text that the error quotes."""
_LONGEST: Final = 500
"""Characters of an argument's name that are compared."""
_MAX_TEXT: Final = 1 << 20
_MAX_DEPTH: Final = 16
"""Levels below the root that are looked at for stringified values."""
_SETTLED: Final = (int, float)
"""Types that are final; text, objects and arrays may contain further values."""
_NO_ALIASES: Final[Mapping[str, str]] = MappingProxyType({})
_OPENING: Final = ("{", "[")
"""Any other text is not read as an object or array."""


def repair(
    arguments: Any, schema: Node, *, is_read: bool = False, aliases: Mapping[str, str] = _NO_ALIASES
) -> tuple[Any, tuple[str, ...]]:
    """Return the arguments as an object, and a note for each change.

    Reads JSON text (also encoded twice), unwraps a single `args`-like key, renames an argument that differs from a
    declared one only in case and separators or is one of its `aliases`, and reads stringified objects and arrays where
    strings are not admitted.
    A null that the schema does not admit counts as an argument that is not given, where it has a default or the tool
    only reads: to a write it may mean a field that is to be cleared.
    Correct arguments come back as the same object. Raises `ToolFailure("invalid_arguments")` for a text that is not a
    JSON object.
    """
    if arguments is None:
        return {}, ()
    notes: list[str] = []
    if isinstance(arguments, str | bytes | bytearray):
        arguments = _read_object(arguments, notes)
    if not isinstance(arguments, Mapping):
        raise ToolFailure(
            "invalid_arguments",
            f"the arguments must be an object, not {json_type(arguments)}",
            hint='Send the arguments by name: {"name": value, …}.',
        )
    given = cast("Mapping[str, Any]", arguments)
    if _is_too_large(given):  # it is refused in any case, and a walk would take seconds
        return given, tuple(notes)
    unwrapped = _unwrap(given, schema, notes)
    return _Repair(schema, notes, is_read=is_read, aliases=aliases).object(unwrapped, schema, "", 0), tuple(notes)


def plain_check(schema: Node) -> Callable[[Any], bool]:
    """Return a check for one schema: whether nothing in the arguments can need repair, as in most calls.

    Made once for a tool. It may say no for arguments that need no repair, never yes for others that do.
    """
    declared = schema.get("properties")
    has_properties = isinstance(declared, dict)
    nodes = as_mapping(declared)
    texts = {name: _admits_text(as_node(node).get("type")) for name, node in nodes.items()}
    lists = {name: as_node(as_node(node).get("items")).get("type") == "string" for name, node in nodes.items()}
    nulls = {name: "null" in types_of(as_node(node), schema) for name, node in nodes.items()}

    def is_plain(arguments: Any) -> bool:
        given = arguments  # not narrowed by the check: a `cast` is a call
        if not has_properties or (type(arguments) is not dict and not isinstance(arguments, Mapping)):
            return False
        for name, value in given.items():
            if name not in texts:
                return False
            if isinstance(value, str):
                if not texts[name] and value.lstrip()[:1] in _OPENING:
                    return False
            elif value is None:
                if not nulls[name]:
                    return False
            elif not isinstance(value, _SETTLED) and not (isinstance(value, list) and lists[name]):
                return False
        return True

    return is_plain


def _is_too_large(value: Mapping[str, Any]) -> bool:
    try:
        return len(orjson.dumps(value)) > MAX_ARGUMENT_BYTES
    except TypeError:
        return False


def _admits_text(kind: Any) -> bool:
    """Whether a `type` admits every text."""
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _read_object(text: str | bytes | bytearray, notes: list[str]) -> Any:
    value: Any = text
    for _ in range(3):
        if isinstance(value, bytes | bytearray):
            value = _decode(value)
        if not isinstance(value, str):
            return value
        if not value.strip():
            return {}
        value = _parse(value)
        if not notes:
            notes.append("read the arguments from JSON text")
    return value


def _decode(text: bytes | bytearray) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"the arguments are not UTF-8: bad byte at position {error.start}"
        raise ToolFailure("invalid_arguments", message, hint="Send the arguments as a JSON object.") from None


def _parse(text: str) -> Any:
    try:
        return read_json(text, limit=_MAX_TEXT, strict=True)
    except JsonTooLarge:
        raise ToolFailure(
            "too_large", f"the arguments have {len(text):,} characters, {_MAX_TEXT:,} are allowed"
        ) from None
    except JSONDecodeError as error:
        where = _reason(text, error)
    except ValueError as error:
        where = str(error)
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    raise ToolFailure(
        "invalid_arguments",
        f"the arguments are not valid JSON: {where}; received: {shown}",
        hint="Send the arguments as a JSON object.",
    )


def _reason(text: str, error: JSONDecodeError) -> str:
    """Return the position and the reason of the syntax error in `text`, by the slower parser, which says it better."""
    try:
        json.loads(text, parse_constant=_no_constant)
    except JSONDecodeError as plain:
        return f"{plain.msg.lower()} at line {plain.lineno}, column {plain.colno} (character {plain.pos})"
    except (ValueError, RecursionError) as plain:
        return str(plain)
    return str(error)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _unwrap(arguments: Mapping[str, Any], schema: Node, notes: list[str]) -> Mapping[str, Any]:
    if len(arguments) != 1:
        return arguments
    ((key, inner),) = arguments.items()
    if key not in WRAPPERS:
        return arguments
    declared = properties_of(schema, schema)
    if key in declared or not declared or _admits_extra(schema, schema):
        return arguments
    if isinstance(inner, str):
        inner = _try_json(inner)
    if not isinstance(inner, Mapping):
        return arguments
    found = cast("Mapping[str, Any]", inner)
    known = {_canonical(name) for name in declared}
    if found and not any(_canonical(name) in known for name in found):
        return arguments
    notes.append(f"took the arguments out of {key!r}")
    return found


def _admits_extra(node: Node, root: Node) -> bool:
    """Whether the schema explicitly admits arguments that it does not name."""
    resolved = resolve(node, root)
    keywords = ("additionalProperties", "unevaluatedProperties")
    stated = any(resolved.get(keyword) not in (None, False) for keyword in keywords)
    return stated or bool(resolved.get("patternProperties"))


def _canonical(name: str) -> str:
    return "".join(letter for letter in name[:_LONGEST].lower() if letter.isalnum())


def _by_canonical(names: Iterable[Any], aliases: Mapping[str, str] = _NO_ALIASES) -> dict[str, list[Any]]:
    found = dict[str, list[Any]]()
    for name in names:
        found.setdefault(_canonical(aliases.get(str(name), str(name))), []).append(name)
    return found


def _try_json(text: str) -> Any:
    """The value of a JSON text; the text itself when it is not valid JSON."""
    try:
        return read_json(text, limit=_MAX_TEXT, strict=True)
    except ValueError:
        return text


class _Repair:
    """Walk through a value beside its schema; only changed parts are copied.

    Lives for one call. It leaves the given value as it is.
    """

    __slots__ = ("_aliases", "_is_read", "_known", "_notes", "_root")

    def __init__(self, root: Node, notes: list[str], *, is_read: bool, aliases: Mapping[str, str]) -> None:
        self._aliases = aliases
        self._is_read = is_read
        self._known: dict[tuple[int, str], tuple[Node, Node | None]] = {}
        """Lookups in a schema, by its identity, with the schema: the items of an array share theirs."""
        self._root = root
        self._notes = notes

    def object(self, value: Mapping[str, Any], node: Node, path: str, depth: int) -> Mapping[str, Any]:
        declared = self._declared(node)
        if not declared or depth > _MAX_DEPTH:
            return value
        names = self._renamed(value, node, declared, path)
        unset = self._unset(value, node, declared, names, path)
        if unset:
            value = {name: old for name, old in value.items() if name not in unset}
            names = {old: new for old, new in names.items() if old not in unset}
        changed = {
            name: new for name, old in value.items() if (new := self._part(old, declared, name, path, depth)) is not old
        }
        if not names and not changed:
            return value
        taken = {**value, **changed}
        renamed = {names.get(name, name): item for name, item in taken.items()}
        for old, new in names.items():
            renamed[new] = self._part(taken[old], declared, new, path, depth)
        return renamed

    def _unset(
        self, value: Mapping[str, Any], node: Node, declared: Node, names: Mapping[str, str], path: str
    ) -> list[str]:
        """Return the names whose null means that the argument is not given."""
        nulls = [name for name, old in value.items() if old is None and names.get(name, name) in declared]
        if not nulls:
            return nulls
        required = {name for part in merged(node, self._root) for name in as_list(part.get("required"))}
        unset = [
            name
            for name in nulls
            if (meant := names.get(name, name)) not in required
            and (self._is_read or "default" in as_node(declared[meant]))
            and "null" not in types_of(as_node(declared[meant]), self._root)
        ]
        self._notes += [f"left out {_at(path, name)}, which was null" for name in unset]
        return unset

    def _part(self, value: Any, declared: Node, name: str, path: str, depth: int) -> Any:
        if name in declared and not isinstance(value, _SETTLED):
            return self._value(value, as_node(declared[name]), _at(path, name), depth + 1)
        return value

    def _renamed(self, value: Mapping[str, Any], node: Node, declared: Node, path: str) -> dict[str, str]:
        """Map each unknown name to the one declared, absent name that it can only mean."""
        unknown = [name for name in value if name not in declared]
        if not unknown or _admits_extra(node, self._root):
            return {}
        absent = _by_canonical(name for name in declared if name not in value)
        found: dict[str, str] = {}
        for written, names in _by_canonical(unknown, self._aliases).items():
            meant = absent.get(written, ())
            if len(meant) == 1 and len(names) == 1:
                found[names[0]] = meant[0]
                self._notes.append(f"took {_at(path, names[0])} for {_at(path, meant[0])}")
        return found

    def _value(self, value: Any, node: Node, path: str, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            return value
        if isinstance(value, str):
            return self._text(value, node, path, depth)
        return self._container(value, node, path, depth)

    def _text(self, value: str, node: Node, path: str, depth: int) -> Any:
        if node.get("type") == "string" or value.lstrip()[:1] not in _OPENING:
            return value
        types = types_of(node, self._root)
        if "string" in types:
            return value
        read = _read_as(value, types)
        if read is value:
            return cast("Any", value)
        self._notes.append(f"read {path} from text as {json_type(read)}")
        return self._container(read, node, path, depth)

    def _container(self, value: Any, node: Node, path: str, depth: int) -> Any:
        """Repair the content of an object or array that matches exactly one schema."""
        wanted = "object" if isinstance(value, Mapping) else "array" if isinstance(value, list) else ""
        if not wanted:
            return cast("Any", value)
        meant = self._branch(node, wanted)
        if meant is None:
            return cast("Any", value)
        if wanted == "object":
            return self.object(cast("Mapping[str, Any]", value), meant, path, depth)
        return self._items(cast("list[Any]", value), as_node(meant.get("items")), path, depth)

    def _declared(self, node: Node) -> Node:
        known = self._known.get((id(node), "properties"))
        if known is None:
            is_plain = "$ref" not in node and "allOf" not in node
            found = as_node(node.get("properties")) if is_plain else properties_of(node, self._root)
            known = self._known[id(node), "properties"] = node, found
        return known[1] or {}

    def _branch(self, node: Node, wanted: str) -> Node | None:
        """Return the schema that an object or array has here; None where it may have several."""
        known = self._known.get((id(node), wanted))
        if known is None:
            whole = resolve(node, self._root)
            branches = [branch for branch in alternatives(whole) if wanted in types_of(branch, self._root)]
            one = resolve(branches[0], self._root) if len(branches) == 1 else whole
            known = self._known[id(node), wanted] = node, one if len(branches) < 2 else None
        return known[1]

    def _items(self, value: list[Any], node: Node, path: str, depth: int) -> list[Any]:
        if not node or node.get("type") == "string":
            return value
        new = [self._value(item, node, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
        return new if any(a is not b for a, b in zip(value, new, strict=True)) else value


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _read_as(text: str, types: frozenset[str]) -> Any:
    """Read `text`, which begins like an object or array, as that if `types` allow it, else leave it.

    A number or a boolean in quotes stays text, and is refused: scalars are never coerced (security.md T4).
    """
    value = _try_json(text.strip())
    return value if json_type(value) in types else text
