"""Steps on arguments: repair, migrate, expand references, validate.

`Expand` replaces references to artifacts by their content: `{"$artifact": …}` and URIs.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from collections.abc import Awaitable, Mapping
from typing import Any, Final, cast

from msgspec import Struct

from ...core.call import Call, Reference, complete_arguments, validator_of
from ...core.json import canonical, read_json, value_at
from ...core.patterns import regex
from ...core.schema import MAX_ARGUMENT_BYTES, FieldError, plain_check, repair
from ...core.schema.nodes import Node, alternatives, as_node, properties_of, resolve, types_of
from ...core.tool import Tool
from ...core.versions import migrate, pin_of_session
from ...disclosure import signatures
from ...disclosure.meta_tools import SOURCE
from ...errors import ToolFailure
from ...jobs.tools import SOURCE as JOBS
from ...policy.secret_arguments import LINK_FORMATS
from ...policy.taint import Taint
from ...results.artifacts import URI_PREFIX, Artifact, Artifacts
from ..plan import Before, Subject

KEY: Final = "$artifact"

_URI: Final = regex(re.escape(URI_PREFIX) + r"([0-9a-f]{32})")

_REFERENCED_ID: Final = regex(rf"(?:{re.escape(URI_PREFIX)})?([0-9a-f]{{32}})")

_GIVEN: Final = frozenset({KEY, "limit", "offset", "path"})

_IGNORED: Final = frozenset({"bytes", "head", "sha256"})
"""Keys of a placeholder that return when its reader edits it; they change nothing."""

_HEAD: Final = 200
"""Characters of a value that its placeholder shows."""

_PLAIN: Final = frozenset({bool, float, int, type(None)})

_DEPTH: Final = 16
"""Levels below the arguments at which references are found."""

_PARSED: Final = 16 * MAX_ARGUMENT_BYTES
"""Bytes of JSON out of which one value is taken."""

_logger = logging.getLogger(__name__)


class _Place(Struct, frozen=True):
    """Position of a value in the arguments: its schema, and its path."""

    node: Node
    path: tuple[str | int, ...]


def holds_reference(value: Any, depth: int = 0) -> bool:
    """Whether `value` may hold a reference: the question that nearly every call answers with no."""
    if isinstance(value, str):
        return value.startswith(URI_PREFIX)
    if type(value) in _PLAIN or depth > _DEPTH:
        return False
    parts: Any = value
    if type(value) is dict or isinstance(value, Mapping):
        if KEY in parts:
            return True
        parts = parts.values()
    elif not isinstance(value, list):
        return False
    for inner in parts:  # a loop: a generator costs twice as much, and most calls end here
        if isinstance(inner, str):
            if inner.startswith(URI_PREFIX):
                return True
        elif type(inner) not in _PLAIN and holds_reference(inner, depth + 1):
            return True
    return False


async def expand(
    arguments: Mapping[str, Any], schema: Node, owner: str, artifacts: Artifacts
) -> tuple[Mapping[str, Any], tuple[Reference, ...]]:
    """Return `arguments` with artifact references replaced by values, and the references.

    Raises `ToolFailure`, naming the argument: `not_found` for an artifact of another owner, `too_large` for more than
    arguments may have, `invalid_arguments` for a malformed reference.

        {"$artifact": "toolcrib://artifact/ID"}                              the whole: text, or JSON where no text fits
        {"$artifact": "toolcrib://artifact/ID", "offset": 0, "limit": 100}   a piece, in bytes
        {"$artifact": "toolcrib://artifact/ID", "path": "/items/0/id"}       a value of JSON

    The text `toolcrib://artifact/ID` alone counts as the first one, where the schema wants a text that is not a link.
    """
    work = _Expansion(schema, owner, artifacts)
    expanded = await work.value(arguments, _Place(schema, ()))
    return expanded, tuple(work.found)


class _Expansion:
    """One walk through the arguments of a call. `_left` are the bytes that further references may bring."""

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
        return node.get("type") == "string" and node.get("format") not in LINK_FORMATS

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


def _check(reference: Mapping[str, Any]) -> None:
    """Raise `ToolFailure("invalid_arguments")` for a reference with other keys, or with values of other types."""
    unknown = sorted(reference.keys() - _GIVEN - _IGNORED)
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
    """Return what a reference brings to a place with these types: JSON, text, or base64 of other content."""
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
    try:
        return value_at(value, pointer)
    except KeyError as error:
        raise ToolFailure("invalid_arguments", f"no value at {pointer!r}: {error.args[0]!r} was not found") from None


class Repair:
    """Make the arguments an object; raises `ToolFailure` for text that is not JSON."""

    def __call__(self, call: Call) -> Call:
        """Return the call with arguments that are an object."""
        tool = call.target
        aliases = tool.capability.argument_aliases
        arguments, notes = repair(call.arguments, tool.input_schema, is_read=tool.kind == "read", aliases=aliases)
        if arguments is call.arguments and not notes:
            return call
        return call.evolve(arguments=arguments, repairs=(*call.changes.repairs, *notes))

    def bind(self, subject: Subject) -> Before:
        """Return the step for one schema: arguments that need no repair pass at once."""
        if subject.tool is None:
            return self
        is_plain = plain_check(subject.tool.input_schema)
        return lambda call: call if is_plain(call.arguments) else self(call)


class Migrate:
    """Make the arguments those that the tool takes now, where the call or its session pins an older version."""

    def __call__(self, call: Call) -> Call:
        """Return the call with migrated arguments. Raises `ToolFailure` when a migration breaks.

        A call that is made again was migrated the first time.
        """
        tool = call.target
        version = call.options.version or pin_of_session(call.session.scope.versions, tool)
        if not version or call.changes.migrated or version not in tool.migrations or version == tool.version:
            return call
        try:
            arguments, notes = migrate(tool, version, call.arguments)
        except Exception as error:
            _logger.exception("the migration of %s from version %s failed", tool.name, version)
            raise ToolFailure(
                "invalid_arguments",
                f"{tool.name} did not run: the arguments of version {version} could not be made those of "
                f"{tool.version}",
                hint=f"call it as version {tool.version} wants it",
            ) from error
        asked = f"{call.route.requested or tool.name}@{version}"  # the requested name in the audit row
        repairs = (*call.changes.repairs, *notes)
        return call.evolve(arguments=arguments, repairs=repairs, migrated=version, requested=asked)

    def bind(self, subject: Subject) -> Before | None:
        """Return nothing for a tool without migrations."""
        return None if subject.tool is not None and not subject.tool.migrations else self


class Expand:
    """Replace artifact references by their values."""

    def __init__(self, artifacts: Artifacts, taint: Taint) -> None:
        """`artifacts` holds the outputs, each for its owner; `taint` records which of them are untrusted."""
        self._artifacts = artifacts
        self._taint = taint

    def __call__(self, call: Call) -> Call | Awaitable[Call]:
        """Return the call with real arguments; raises `ToolFailure` naming the argument that cannot be resolved.

        Arguments of meta-tools and of the tools for jobs stay as they are: they belong to another call.
        """
        if call.target.source in (SOURCE, JOBS) or not holds_reference(call.arguments):
            return call
        return self._expanded(call)

    def bind(self, subject: Subject) -> Before | None:
        """Return the step for one tool; nothing for meta-tools and the tools for jobs."""
        if subject.tool is None:
            return self
        if subject.tool.source in (SOURCE, JOBS):
            return None
        return lambda call: self._expanded(call) if holds_reference(call.arguments) else call

    async def _expanded(self, call: Call) -> Call:
        tool, owner = call.target, call.session.principal
        arguments, references = await expand(call.arguments, tool.input_schema, owner, self._artifacts)
        if any(reference.trust == "untrusted" for reference in references):
            # another session may have read it, so the tool's own declaration counts here
            self._taint.mark_tainted(tool, call.session)
        return call.evolve(arguments=arguments, references=references) if references else call


class Validate:
    """Check the arguments against the schema, and fill in its defaults and those of the session."""

    def __call__(self, call: Call) -> Call:
        """Return the call with its effective arguments; raises `ToolFailure` listing every field that is wrong."""
        arguments, errors = complete_arguments(call.target, call.arguments, call.session.defaults)
        return _validated(call, arguments, errors)

    def bind(self, subject: Subject) -> Before:
        """Return the step for one schema; a session with values of its own takes the whole step."""
        try:
            accept = validator_of(subject.tool).accept if subject.tool is not None else None
        except ValueError:  # the schema cannot be taken: the step fails with its reason at each call
            return self
        if accept is None:
            return self

        def validate(call: Call) -> Call:
            if call.session.defaults:
                return self(call)
            arguments, errors = accept(call.arguments)
            return call if arguments is call.arguments and not errors else _validated(call, arguments, errors)

        return validate


def _validated(call: Call, arguments: Any, errors: tuple[FieldError, ...]) -> Call:
    """Return the call with its effective arguments. Raises `ToolFailure` where there are errors."""
    if errors:
        raise _in_profile_words(call) or _invalid(call.target, errors)
    return call if arguments is call.arguments else call.evolve(arguments=arguments)


def _in_profile_words(call: Call) -> ToolFailure | None:
    """Return the errors in the argument names that the caller used; None for a call in the tool's own."""
    if call.route.as_written is None:
        return None
    shown, given = call.route.as_written
    _, errors = complete_arguments(shown, given, call.session.defaults)
    return _invalid(shown, errors) if errors else None


def _invalid(tool: Tool, errors: tuple[FieldError, ...]) -> ToolFailure:
    listed = "; ".join(str(error) for error in errors[:10])
    more = f" (and {len(errors) - 10} more)" if len(errors) > 10 else ""
    return ToolFailure(
        "invalid_arguments",
        f"{tool.name} did not run: {listed}{more}",
        hint=signatures.correction(tool, errors),
        details={"field_errors": [error.to_json() for error in errors], "example": signatures.call_example(tool)},
    )
