"""Templates: JSON values with holes (`$from`, `$text`), which results of earlier steps fill."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, cast

from jsonpath_rfc9535 import JSONPathQuery
from jsonpath_rfc9535.selectors import IndexSelector, NameSelector
from msgspec import Struct

from ..core.json import canonical, dumps
from ..core.patterns import regex
from ..core.schema import MAX_ARGUMENT_BYTES
from ..errors import ToolFailure, UsageError
from ..sources.yaml.fields import as_text
from .json_paths import Document, compile_path

_HOLE_OR_BRACE: Final = regex(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_MAX_DEPTH: Final = 64


class MissingValue(ToolFailure):
    """A path that leads to no value in the present document."""

    def __init__(self, path: str) -> None:
        super().__init__("invalid_arguments", f"nothing is at {path}", hint="give the path a `default`")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One hole: where its value comes from. `steps` or `input` is its root.

    A path to many places gives a list, which is empty where it finds nothing; one to a single place needs a value
    there, or a default.
    """

    path: str
    query: JSONPathQuery = dataclasses.field(compare=False)
    root: Literal["input", "steps"]
    step: str = ""
    names: tuple[str | int, ...] | None
    """The way below the root's value, for a path to exactly one place; None for a path to many."""
    default: Any = None
    has_default: bool = False

    def value(self, document: Document) -> Any:
        """Return the value at the path. Raises `MissingValue`, and `ToolFailure` where too much is to be looked at."""
        if self.names is None:
            return document.all(self.query)
        if found := document.first(self.query):
            return found[0]
        if self.has_default:
            return self.default
        raise MissingValue(self.path)


class _Text(Struct, frozen=True):
    pieces: tuple[str | Reference, ...]


class Template:
    """A JSON value with holes, read once. Immutable."""

    def __init__(self, written: Any) -> None:
        """Read `written`. Raises `UsageError` for a hole that cannot be filled, saying where."""
        self._written = written
        self._tree = _read_node(written, ())
        self.references = tuple(_references(self._tree))

    @property
    def steps(self) -> frozenset[str]:
        """The steps whose results it needs."""
        return frozenset(reference.step for reference in self.references if reference.root == "steps")

    @property
    def tree(self) -> Any:
        """The written tree, with a `Reference` in place of each `$from`; `is_text` marks a `$text`."""
        return self._tree

    @property
    def digest(self) -> str:
        """Names what is written: another text, another digest."""
        return hashlib.sha256(canonical(self._written)).hexdigest()

    def fill(self, document: Mapping[str, Any], room: int = MAX_ARGUMENT_BYTES) -> Any:
        """Return the value, taken from `document` (`input` and `steps`), with `room` for bytes of it.

        Raises `MissingValue`, and `ToolFailure` where it is too large or takes too long to find.
        """
        return _fill_node(self._tree, Document(document, room))


class CodeTemplate(Template):
    """Arguments of a tool that runs Python: code, which gets the values as `params`."""

    def __init__(self, params: Any, code: str) -> None:
        """Read `params` as any template."""
        super().__init__(params)
        self._code = code

    @property
    def digest(self) -> str:
        """Names the code, and what is written for `params`."""
        return hashlib.sha256(canonical([super().digest, self._code])).hexdigest()

    @property
    def tree(self) -> Any:
        """The arguments, without the values of `params`."""
        return {"code": self._code}

    def fill(self, document: Mapping[str, Any], room: int = MAX_ARGUMENT_BYTES) -> Any:
        """Return the code, below a line that sets `params`. Raises as any template."""
        params = dumps(super().fill(document, room)).decode()
        return {"code": f"params = __import__('json').loads({params!r})\n{self._code}"}


def is_text(node: Any) -> bool:
    """Whether this part of a tree is a text with holes."""
    return isinstance(node, _Text)


def _read_node(node: Any, where: tuple[str | int, ...]) -> Any:
    if len(where) > _MAX_DEPTH:
        raise UsageError(f"{_at_position(where)}: deeper than {_MAX_DEPTH} levels")
    if isinstance(node, Mapping):
        given = cast("Mapping[str, Any]", node)
        if "$from" in given:
            return _read_hole(given, where)
        if "$text" in given:
            return _read_text(given, where)
        return {key: _read_node(value, (*where, key)) for key, value in given.items()}
    if isinstance(node, list | tuple):
        return [_read_node(item, (*where, place)) for place, item in enumerate(cast("Sequence[Any]", node))]
    return node


def _read_hole(given: Mapping[str, Any], where: tuple[str | int, ...]) -> Reference:
    if others := sorted(set(given) - {"$from", "default"}):
        raise UsageError(f"{_at_position(where)}: beside $from only `default` can stand, not {', '.join(others)}")
    reference = _reference(given["$from"], where)
    if "default" not in given:
        return reference
    if reference.names is None:
        raise UsageError(f"{_at_position(where)}: a path to many values has no default; it gives an empty list")
    return Reference(
        path=reference.path,
        query=reference.query,
        root=reference.root,
        step=reference.step,
        names=reference.names,
        default=given["default"],
        has_default=True,
    )


def _read_text(given: Mapping[str, Any], where: tuple[str | int, ...]) -> _Text:
    written = given["$text"]
    if len(given) > 1 or not isinstance(written, str):
        raise UsageError(f"{_at_position(where)}: $text takes one text, and nothing beside it")
    pieces: list[str | Reference] = []
    end = 0
    for match in _HOLE_OR_BRACE.finditer(written):
        pieces.append(written[end : match.start()])
        end = match.end()
        if match[0] in ("{{", "}}"):
            pieces.append(match[0][0])
        elif match[1] is None:
            raise UsageError(
                f"{_at_position(where)}: a brace stands alone in $text; write {match[0] * 2} for the brace itself"
            )
        else:
            pieces.append(_reference(match[1].strip(), where))
    return _Text((*pieces, written[end:]))


def _reference(path: Any, where: tuple[str | int, ...]) -> Reference:
    if not isinstance(path, str):
        raise UsageError(f"{_at_position(where)}: $from takes a JSON path such as $.steps.name.field")
    try:
        query = compile_path(path)
    except UsageError as error:
        raise UsageError(f"{_at_position(where)}: {error}") from None
    way = _path_of_query(query)
    root, *rest = way
    if root not in ("input", "steps") or (root == "steps" and not (rest and isinstance(rest[0], str))):
        raise UsageError(f"{_at_position(where)}: {path!r} begins neither at $.input nor at $.steps.NAME")
    step = str(rest.pop(0)) if root == "steps" else ""
    names = tuple(rest) if query.singular_query() else None
    return Reference(path=path, query=query, root=cast("Any", root), step=step, names=names)


def _path_of_query(query: JSONPathQuery) -> list[str | int]:
    """Return the names and places at the beginning of the path, up to the first that means many."""
    way: list[str | int] = []
    for segment in query.segments:
        selectors = segment.selectors
        only = selectors[0] if len(selectors) == 1 and type(segment).__name__ == "JSONPathChildSegment" else None
        if isinstance(only, NameSelector):
            way.append(only.name)
        elif isinstance(only, IndexSelector):
            way.append(only.index)
        else:
            break
    return way or [""]


def _references(node: Any) -> Iterator[Reference]:
    if isinstance(node, Reference):
        yield node
    elif isinstance(node, _Text):
        yield from (piece for piece in node.pieces if isinstance(piece, Reference))
    elif isinstance(node, dict):
        for value in cast("dict[str, Any]", node).values():
            yield from _references(value)
    elif isinstance(node, list):
        for item in cast("list[Any]", node):
            yield from _references(item)


def _fill_node(node: Any, document: Document) -> Any:
    if isinstance(node, Reference):
        return node.value(document)
    if isinstance(node, _Text):
        return "".join(piece if isinstance(piece, str) else as_text(piece.value(document)) for piece in node.pieces)
    if isinstance(node, dict):
        return {key: _fill_node(value, document) for key, value in cast("dict[str, Any]", node).items()}
    if isinstance(node, list):
        return [_fill_node(item, document) for item in cast("list[Any]", node)]
    return node


def _at_position(where: tuple[str | int, ...]) -> str:
    return ".".join(map(str, where)) or "the value"
