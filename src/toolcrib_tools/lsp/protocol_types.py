"""Answer types of the Language Server Protocol, with the fields that we read; others are ignored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from toolcrib.plugin import ToolFailure

__all__ = [
    "KINDS",
    "SEVERITIES",
    "ChangedText",
    "CodeAction",
    "Diagnostic",
    "DocumentSymbol",
    "FileChange",
    "Hover",
    "Link",
    "Place",
    "Position",
    "Range",
    "SymbolInformation",
    "TextEdit",
    "WorkspaceEdit",
    "parse_answer",
]

T = TypeVar("T")

SEVERITIES: Final = ("error", "warning", "information", "hint")
"""Numbered from 1."""
KINDS: Final = (
    "file module namespace package class method property field constructor enum interface function variable constant"
    " string number boolean array object key null enum-member struct event operator type-parameter"
).split()
"""Kinds of symbols, numbered from 1 (LSP 3.17, SymbolKind)."""


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)


class Position(_Shape):
    """A place in a text; both count from 0, characters in UTF-16."""

    line: int = Field(ge=0)
    character: int = Field(ge=0)


class Range(_Shape):
    """From a place up to another one."""

    start: Position
    end: Position


class Place(_Shape):
    """A range in a file (`Location`)."""

    uri: str
    range: Range


class Link(_Shape):
    """Target of a definition (`LocationLink`)."""

    uri: str = Field(alias="targetUri")
    range: Range = Field(alias="targetSelectionRange")


class DocumentSymbol(_Shape):
    """A symbol of a file, with those in it."""

    name: str
    kind: int
    range: Range
    selection: Range = Field(alias="selectionRange")
    children: Sequence[DocumentSymbol] = ()


class _SymbolLocation(_Shape):
    uri: str
    range: Range | None = None
    """A `WorkspaceSymbol` may leave it out until it is asked for."""


class SymbolInformation(_Shape):
    """A symbol of the workspace, or of a file in a server of the older kind."""

    name: str
    kind: int
    location: _SymbolLocation
    container: str | None = Field(default=None, alias="containerName")


class Hover(_Shape):
    """Hover content: text, `{language, value}`, `{kind, value}`, or a list of them."""

    contents: Any


class Diagnostic(_Shape):
    """One finding."""

    range: Range
    severity: int | None = None
    code: Any = None
    source: str | None = None
    message: str


class TextEdit(_Shape):
    """A piece of text in the place of another one."""

    range: Range
    text: str = Field(alias="newText")


class _Versioned(_Shape):
    uri: str
    version: int | None = None


class ChangedText(_Shape):
    """Edits of one file (`TextDocumentEdit`)."""

    document: _Versioned = Field(alias="textDocument")
    edits: Sequence[TextEdit]


class _Choices(_Shape):
    overwrite: bool = False
    skips_existing: bool = Field(default=False, alias="ignoreIfExists")
    skips_missing: bool = Field(default=False, alias="ignoreIfNotExists")
    recursive: bool = False


class FileChange(_Shape):
    """A file that is made, renamed or removed."""

    kind: str
    uri: str = ""
    old: str = Field(default="", alias="oldUri")
    new: str = Field(default="", alias="newUri")
    options: _Choices = _Choices()


class WorkspaceEdit(_Shape):
    """Changes in several files."""

    changes: dict[str, list[TextEdit]] | None = None
    in_order: Sequence[ChangedText | FileChange] | None = Field(default=None, alias="documentChanges")


class CodeAction(_Shape):
    """A code action; `command` is a text where the whole of it is a command."""

    title: str
    kind: str | None = None
    is_preferred: bool = Field(default=False, alias="isPreferred")
    disabled: dict[str, Any] | None = None
    edit: WorkspaceEdit | None = None
    command: str | dict[str, Any] | None = None
    arguments: list[Any] | None = None


def parse_answer(shape: type[T] | Any, answer: Any, what: str) -> T:
    """Return an answer in its shape. Raises `ToolFailure("tool_error")` for one that has another."""
    try:
        return TypeAdapter[T](shape).validate_python(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ToolFailure("tool_error", f"the language server answered {what} in no known way: {where}") from None
