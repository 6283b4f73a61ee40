"""References to artifacts in the arguments of later calls, and their expansion."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from ..core.call import Reference
from ..core.json import canonical, read_json
from ..core.schema import MAX_ARGUMENT_BYTES
from ..core.schema.nodes import Node, alternatives, as_node, properties_of, resolve, types_of
from ..errors import ToolFailure
from .artifacts import URI_PREFIX, Artifact, Artifacts

__all__ = ["KEY", "expand", "holds_reference"]

KEY: Final = "$artifact"


_URI: Final = re.compile(re.escape(URI_PREFIX) + r"([0-9a-f]{32})")


_REFERENCED_ID: Final = re.compile(rf"(?:{re.escape(URI_PREFIX)})?([0-9a-f]{{32}})")


_GIVEN: Final = frozenset({KEY, "limit", "offset", "path"})


_TOLD: Final = frozenset({"bytes", "head", "sha256"})
"""Keys of a placeholder that return when its reader edits it; they change nothing."""


_HEAD: Final = 200
"""Characters of a value that its placeholder shows."""


_PLAIN: Final = frozenset({bool, float, int, type(None)})


_DEPTH: Final = 16
"""Levels below the arguments at which references are found."""


_LINKS: Final = frozenset({"iri", "iri-reference", "uri", "uri-reference", "uri-template", "url"})


@dataclass(frozen=True, slots=True)
class _Place:
    """Position of a value in the arguments: its schema, and its path."""

    node: Node
    path: tuple[str | int, ...]


def holds_reference(value: object, depth: int = 0) -> bool:
    """Whether `value` may hold a reference: the question that nearly every call answers with no."""
    if isinstance(value, str):
        return value.startswith(URI_PREFIX)
    if type(value) in _PLAIN or depth > _DEPTH:
        return False
    if isinstance(value, Mapping):
        inside = cast("Mapping[str, object]", value)
        if KEY in inside:
            return True
        for inner in inside.values():  # a loop: a generator costs twice as much, and most calls end here
            kind = type(inner)
            if kind not in _PLAIN and (
                cast("str", inner).startswith(URI_PREFIX) if kind is str else holds_reference(inner, depth + 1)
            ):
                return True
        return False
    if isinstance(value, list):
        return any(holds_reference(inner, depth + 1) for inner in cast("list[object]", value))
    return False


async def expand(
    arguments: Mapping[str, Any], schema: Node, owner: str, artifacts: Artifacts
) -> tuple[Mapping[str, Any], tuple[Reference, ...]]:
    """Return `arguments` with artifact references replaced by values, and the references.

    Raises `ToolFailure`, naming the argument: `not_found` for an artifact of another owner, `too_large` for more than
    arguments may have, `invalid_arguments` for a malformed reference.
    """
    work = _Expansion(schema, owner, artifacts)
    expanded = await work.value(arguments, _Place(schema, ()))
    return expanded, tuple(work.found)


class _Expansion:
    def __init__(self, root: Node, owner: str, artifacts: Artifacts) -> None:
        self._root = root
        self._owner = owner
        self._artifacts = artifacts
        self._left = MAX_ARGUMENT_BYTES
        self.found: list[Reference] = []

    async def value(self, value: Any, place: _Place) -> Any:
        if isinstance(value, str):
            uri = _URI.fullmatch(value)
            return await self._put({KEY: value}, place) if uri and self._wants_text(place.node) else value
        if len(place.path) > _DEPTH or not isinstance(value, Mapping | list):
            return value
        if isinstance(value, list):
            items = as_node(resolve(place.node, self._root).get("items"))
            entries = enumerate(cast("list[Any]", value))
            return [await self.value(inner, _Place(items, (*place.path, index))) for index, inner in entries]
        given = cast("Mapping[str, Any]", value)
        if KEY in given and place.path:
            return await self._put(given, place)
        return {
            name: await self.value(inner, _Place(self._node(place.node, name), (*place.path, name)))
            for name, inner in given.items()
        }

    def _node(self, node: Node, name: str) -> Node:
        for candidate in (node, *alternatives(resolve(node, self._root))):
            if found := properties_of(candidate, self._root).get(name):
                return found
        return as_node(resolve(node, self._root).get("additionalProperties"))

    def _wants_text(self, node: Node) -> bool:
        """Whether a plain text belongs here: a string that is not declared a link."""
        node = resolve(node, self._root)
        return node.get("type") == "string" and node.get("format") not in _LINKS

    async def _put(self, reference: Mapping[str, Any], place: _Place) -> Any:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place.path).lstrip(".")
        try:
            _check(reference)
            artifact, data = await self._data(reference)
            value = _value(reference, artifact, data, types_of(place.node, self._root))
        except ToolFailure as failure:
            message = f"{where}: {failure.message}"
            raise ToolFailure(failure.code, message, hint=failure.hint, details={"path": where}) from None
        written = canonical(value)
        self._left -= len(written)
        if self._left < 0:
            raise ToolFailure(
                "too_large", f"{where}: the arguments have more than {MAX_ARGUMENT_BYTES:,} bytes with it"
            )
        head = value if isinstance(value, str) else written.decode()
        display = {
            **{key: reference[key] for key in _GIVEN if key in reference},
            KEY: artifact.uri,
            "bytes": len(written),
            "sha256": hashlib.sha256(written).hexdigest(),
            "head": head[:_HEAD],
        }
        self.found.append(Reference(path=place.path, display=display, trust=artifact.trust))
        return value

    async def _data(self, reference: Mapping[str, Any]) -> tuple[Artifact, bytes]:
        name = _REFERENCED_ID.fullmatch(reference[KEY])
        if name is None:
            hint = f'It is written {{"{KEY}": "{URI_PREFIX}ID"}}, with the id from the note of a long result.'
            raise ToolFailure("invalid_arguments", f"{reference[KEY]!r} names no artifact", hint=hint)
        if "offset" in reference or "limit" in reference:
            offset, limit = int(reference.get("offset", 0)), int(reference.get("limit", MAX_ARGUMENT_BYTES))
            return await self._artifacts.piece(name[1], self._owner, offset, min(limit, MAX_ARGUMENT_BYTES))
        most = MAX_ARGUMENT_BYTES if "path" not in reference else _PARSED
        return await self._artifacts.value(name[1], self._owner, most)


_PARSED: Final = 16 * MAX_ARGUMENT_BYTES
"""Bytes of JSON out of which one value is taken."""


def _check(reference: Mapping[str, Any]) -> None:
    unknown = sorted(reference.keys() - _GIVEN - _TOLD)
    if unknown:
        raise ToolFailure(
            "invalid_arguments",
            f"a reference to an artifact has no key {unknown[0]!r}",
            hint=f'Beside "{KEY}" it may have "offset" and "limit" (bytes), or "path" (a JSON pointer).',
        )
    for key in ("limit", "offset"):
        number = reference.get(key, 1 if key == "limit" else 0)
        if isinstance(number, bool) or not isinstance(number, int) or number < (key == "limit"):
            raise ToolFailure("invalid_arguments", f"{key} is a number of bytes, not {number!r}")
    if not isinstance(reference[KEY], str) or not isinstance(reference.get("path", ""), str):
        raise ToolFailure("invalid_arguments", f'"{KEY}" and "path" are texts')
    if "path" in reference and ("offset" in reference or "limit" in reference):
        raise ToolFailure(
            "invalid_arguments", 'a piece is taken by "offset" and "limit", or a value by "path": not both'
        )


def _value(reference: Mapping[str, Any], artifact: Artifact, data: bytes, types: frozenset[str]) -> Any:
    is_piece = "offset" in reference or "limit" in reference
    wants_json = "path" in reference or ("string" not in types and artifact.mime_type == "application/json")
    if wants_json and not is_piece:
        try:
            found = _pointed(read_json(data, limit=len(data)), reference.get("path", ""))
        except ValueError as error:
            raise ToolFailure("invalid_arguments", f"artifact {artifact.id} is not JSON: {error}") from None
        return found if "string" not in types or len(types) > 1 or isinstance(found, str) else canonical(found).decode()
    if not artifact.is_text:
        return base64.b64encode(data).decode()
    return data.decode("utf-8", "ignore" if is_piece else "replace")


def _pointed(value: Any, pointer: str) -> Any:
    """Return the value at the JSON pointer (RFC 6901) `pointer`."""
    if pointer and not pointer.startswith("/"):
        raise ToolFailure("invalid_arguments", f"{pointer!r} is not a JSON pointer: it begins with /, as in /items/0")
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping) and key in value:
            value = cast("Mapping[str, Any]", value)[key]
        elif (
            isinstance(value, list)
            and re.fullmatch(r"0|[1-9]\d{0,9}", key)
            and int(key) < len(cast("list[Any]", value))
        ):
            value = cast("list[Any]", value)[int(key)]
        else:
            raise ToolFailure("invalid_arguments", f"no value at {pointer!r}: {key!r} was not found")
    return value
