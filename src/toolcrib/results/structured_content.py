"""Shortening of structured content, so that it stays valid for the schema that its tool declares.

An MCP client rejects a result of a typed tool whose `structuredContent` is missing or invalid. So arrays keep their
first items, long strings their beginning, and objects what the schema requires and declares; the schema decides where
nothing may be cut (`enum`, `const`, `pattern`, `format`) and how little is too little (`minItems`, `minLength`,
`minProperties`, `required`). Keywords that relate values to one another (`contains`, `oneOf`, `dependentRequired` …)
are not interpreted: the shortened value is validated, the places that fail are restored, and it is shortened again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, cast

from ..core.json import as_list, dumps
from ..core.schema import Validator, compile_schema
from ..core.schema.nodes import Node, as_node, resolve

_MAX_ROUNDS: Final = 12
"""Attempts to restore required parts of a shortened value."""
_MAX_VISITED_PLACES: Final = 20_000
"""Places that may be looked at for one value: about a second (measured: 25 to 60 µs each)."""
_MAX_DEPTH: Final = 48
"""Levels below which nothing is cut."""
_MAX_SCHEMAS: Final = 64
"""Schemas of one place that are read; a place with more is only cut as the validation allows."""
_ELLIPSIS: Final = "…"
_ITEMS_PER_MEASUREMENT: Final = 16
"""Items of an array that are measured at once."""
_MIN_TEXT_BYTES: Final = 24
"""Bytes below which cutting a string saves nothing worth the loss."""
_MIN_MEMBER_BYTES: Final = 48
"""Bytes that an optional member of an object must at least get, else it is left out."""
_BRANCH_KEYWORDS: Final = ("allOf", "anyOf", "oneOf")
_CONDITION_KEYWORDS: Final = ("if", "then", "else")
_WHOLE_STRING_KEYWORDS: Final = ("const", "contentEncoding", "contentMediaType", "enum", "format", "pattern")
"""Keywords of a string that a beginning of it hardly fulfils."""

_K = TypeVar("_K")
_Path = tuple[str | int, ...]
_Keep = Literal["shape", "whole"]
"""`shape`: every member or item stays, and may be shortened itself."""


def shorten(value: Any, schema: Node, room: int) -> Any:
    """Return `value` in at most `room` bytes of JSON, valid for `schema`; None when no such shortening is found.

    Blocking: some tens of milliseconds for a few megabytes.
    """
    try:
        validator = compile_schema(schema, strict_extra=False)
        return _Shortener(schema, validator).run(value, room)
    except (ValueError, RecursionError):
        return None


class _Shortener:
    """One value on its way; `_kept` holds the places that validation showed to be needed.

        cut ── validate ── restore what fails ── cut again ……  at most `_MAX_ROUNDS` times

    The same value and schema always give the same shortening.
    """

    def __init__(self, schema: Node, validator: Validator) -> None:
        self._root = schema
        self._validator = validator
        self._kept: dict[_Path, _Keep] = {}
        self._work = _MAX_VISITED_PLACES

    def run(self, value: Any, room: int) -> Any:
        for _ in range(_MAX_ROUNDS):
            short = self._cut(value, _measure(value, room), [self._root], room, ())
            if len(dumps(short)) > room:
                return None
            failing = self._validator.failing(short)
            if not failing:
                return short
            if not self._keep_more(failing, value, short):
                return None
        return None

    def _keep_more(self, failing: Iterable[_Path], value: Any, short: Any) -> bool:
        """Restore more of every place that fails; False when nothing is left to restore."""
        changed = False
        for path in failing:
            changed |= self._keep_at(path, value, short)
        return changed

    def _keep_at(self, path: _Path, value: Any, short: Any) -> bool:
        """Restore the place itself, or the next one above it that was cut."""
        for length in range(len(path), -1, -1):
            place = path[:length]
            before, after = _value_at(value, place), _value_at(short, place)
            if before == after or self._kept.get(place) == "whole":
                continue
            is_shape = isinstance(before, Mapping | list) and isinstance(after, Mapping | list)
            is_shape = is_shape and place not in self._kept and _json_length(before) != _json_length(after)
            self._kept[place] = "shape" if is_shape else "whole"
            return True
        return False

    def _cut(self, value: Any, size: int, nodes: Sequence[Node], room: int, path: _Path) -> Any:
        """Return `value`, which has `size` bytes as `_measure` counts them, in `room` bytes if it can be.

        `room` is a wish: places that must stay may exceed it, and `run` checks the whole.
        """
        keep = self._kept.get(path)
        self._work -= 1
        if self._work < 0:
            raise ValueError("there is too much in it that must stay")
        if keep == "whole" or len(path) > _MAX_DEPTH or not isinstance(value, str | list | Mapping):
            return value
        if not value or size <= room:
            return cast("Any", value)
        known = self._applicable_schemas(nodes)
        if isinstance(value, str):
            return (
                value
                if any(word in node for node in known for word in _WHOLE_STRING_KEYWORDS)
                else _cut_text(value, known, room)
            )
        if isinstance(value, list):
            return self._cut_array(cast("list[Any]", value), known, room, path)
        return self._cut_object(cast("Mapping[str, Any]", value), known, room, path)

    def _cut_array(self, items: list[Any], known: Sequence[Node], room: int, path: _Path) -> list[Any]:
        """Keep the first items whole; where not even the least number of them fits, shorten each of those."""
        needed = max((cast("int", part) + 1 for part in self._kept_below(path)), default=0)
        least = min(max(_largest_keyword(known, "minItems"), needed), len(items))
        least = len(items) if self._kept.get(path) == "shape" else least
        left, count = room - 2, 0
        for item in items:
            left -= len(dumps(item)) + 1
            if left < 0:
                break
            count += 1
        if count >= max(least, 1):
            return items[:count]
        sizes = {index: _measure(items[index], room) + 1 for index in range(max(least, 1))}
        shares = share_out(sizes, room - 2)
        short = [
            self._cut(items[i], size - 1, self._schemas_of_item(known, i), shares[i] - 1, (*path, i))
            for i, size in sizes.items()
        ]
        return short if least or len(dumps(short)) <= room else []

    def _cut_object(self, value: Mapping[str, Any], known: Sequence[Node], room: int, path: _Path) -> dict[str, Any]:
        """Keep the members that must stay, then as many others as have room, and share the room among them."""
        sizes = {key: _measure(inner, room) for key, inner in value.items()}
        frames = {key: len(dumps(key)) + 2 for key in value}
        required, declared = self._members(known, value, path)
        least = _largest_keyword(known, "minProperties")
        taken = dict.fromkeys(required)
        left = room - 2 - sum(frames[key] + min(sizes[key], _MIN_MEMBER_BYTES) for key in taken)
        for key in (*declared, *(key for key in value if key not in declared)):
            price = frames[key] + min(sizes[key], _MIN_MEMBER_BYTES)
            if key in taken or (price > left and len(taken) >= least):
                continue
            taken[key] = None
            left -= price
        shares = share_out({key: sizes[key] for key in taken}, room - 2 - sum(frames[key] for key in taken))
        short = {
            key: self._cut(inner, sizes[key], self._schemas_of_member(known, key), shares[key], (*path, key))
            for key, inner in value.items()
            if key in taken
        }
        over = len(dumps(short)) - room
        for key in sorted(taken.keys() - required.keys(), key=lambda name: shares[name] - len(dumps(short[name]))):
            if over <= 0 or len(short) <= least:
                break
            over -= frames[key] + len(dumps(short.pop(key)))
        return short

    def _kept_below(self, path: _Path) -> list[str | int]:
        """Return the names or places, directly at `path`, below which something must stay."""
        return [place[len(path)] for place in self._kept if len(place) > len(path) and place[: len(path)] == path]

    def _members(
        self, known: Sequence[Node], value: Mapping[str, Any], path: _Path
    ) -> tuple[dict[str, None], dict[str, None]]:
        """Return the members that must stay and those that the schema declares, in the order of `value`."""
        if self._kept.get(path) == "shape":
            return dict.fromkeys(value), {}
        named = {str(name) for node in known for name in as_list(node.get("required"))}
        named |= {str(part) for part in self._kept_below(path)}
        stated = {name for node in known for name in as_node(node.get("properties"))}
        return dict.fromkeys(k for k in value if k in named), dict.fromkeys(k for k in value if k in stated)

    def _applicable_schemas(self, nodes: Iterable[Node]) -> list[Node]:
        """Return every schema that may look at the place: references followed, branches and conditions included."""
        found: list[Node] = []
        waiting = [(node, 0) for node in nodes]
        while waiting and len(found) < _MAX_SCHEMAS:
            node, depth = waiting.pop(0)
            node = resolve(node, self._root)
            found.append(node)
            if depth < _MAX_DEPTH:
                inner = [part for word in _BRANCH_KEYWORDS for part in as_list(node.get(word))]
                inner += [node[word] for word in _CONDITION_KEYWORDS if word in node]
                inner += as_node(node.get("dependentSchemas")).values()
                waiting += [(as_node(part), depth + 1) for part in inner if part]
        return found

    def _schemas_of_item(self, known: Sequence[Node], index: int) -> list[Node]:
        found: list[Node] = []
        for node in known:
            first = as_list(node.get("prefixItems")) or as_list(node.get("items"))
            if index < len(first):
                found.append(as_node(first[index]))
            else:
                found += [as_node(node[word]) for word in ("items", "additionalItems") if word in node]
            if "contains" in node:
                found.append(as_node(node["contains"]))
        return found

    def _schemas_of_member(self, known: Sequence[Node], key: str) -> list[Node]:
        found: list[Node] = []
        for node in known:
            properties, patterns = as_node(node.get("properties")), as_node(node.get("patternProperties"))
            if key in properties:
                found.append(as_node(properties[key]))
            found += map(as_node, patterns.values())
            others = () if key in properties else ("additionalProperties", "unevaluatedProperties")
            found += [as_node(node[word]) for word in others if word in node]
        return found


def _measure(value: Any, most: int) -> int:
    """Return the bytes of `value` in JSON, any number above `most` where it has more: for long tables."""
    size = 1
    if isinstance(value, list):
        items = cast("list[Any]", value)
        for start in range(0, len(items), _ITEMS_PER_MEASUREMENT):
            if size > most:
                break
            size += len(dumps(items[start : start + _ITEMS_PER_MEASUREMENT])) - 1
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, Any]", value).items():
            if size > most:
                break
            size += len(dumps(key)) + _measure(inner, most - size) + 2
    else:
        return len(dumps(value))
    return max(size, 2)


def _cut_text(text: str, known: Iterable[Node], room: int) -> str:
    """Return the beginning of `text`, with a mark, in `room` bytes of JSON; never below its `minLength`."""
    least = max(_largest_keyword(known, "minLength"), 1)
    low, high = 0, min(len(text) - 1, max(room, _MIN_TEXT_BYTES))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if len(dumps(text[:middle] + _ELLIPSIS)) <= max(room, _MIN_TEXT_BYTES) else (low, middle - 1)
        )
    return text[: max(low, least - 1)] + _ELLIPSIS


def share_out(sizes: Mapping[_K, int], room: int) -> dict[_K, int]:
    """Divide `room`: small parts stay whole, the large ones get equal parts of the rest."""
    shares: dict[_K, int] = {}
    left = room
    for place, (key, size) in enumerate(sorted(sizes.items(), key=lambda entry: entry[1])):
        shares[key] = max(0, min(size, left // (len(sizes) - place)))
        left -= shares[key]
    return shares


def _largest_keyword(known: Iterable[Node], word: str) -> int:
    """Return the largest whole number under `word` in any of the schemas; 0 without one."""
    return max((int(node[word]) for node in known if isinstance(node.get(word), int | float)), default=0)


def _json_length(value: Any) -> int:
    return len(value)


def _value_at(value: Any, path: _Path) -> Any:
    """Return the value at `path`; None if missing."""
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value
