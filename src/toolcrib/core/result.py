"""Result of a call: always a `ToolResult`, with any outcome.

Content blocks are the plain JSON objects of MCP (`{"type": "text", "text": …}` and the like), so they cross every
edge without being rebuilt.

A source returns one; the steps behind `Execute` each return a changed one (enriched, redacted, limited, wrapped). The
model reads `content`, programs read `structured_content`, callers of the library also `error` and `meta`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ToolFailure
from .json import dumps, encodable

Trust = Literal["local", "reviewed", "untrusted"]
"""Trust in a result: written by this machine or the caller; by a source that the operator trusts; by strangers.

`policy.origin` is the table of what has which.
"""

PAGE_BYTES: Final = 12_000
"""Bytes of the rows of a page: a result has room for 16,000 (4,000 estimated tokens by default)."""
_Row = TypeVar("_Row", bound=Mapping[str, Any])


class ToolError(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Error of a call, for the model: a key of `errors.CODES`, a sentence, the next step."""

    code: str
    message: str
    hint: str = ""
    details: Mapping[str, Any] = {}

    def to_json(self) -> dict[str, Any]:
        """Return the non-empty fields."""
        shown: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.hint:
            shown["hint"] = self.hint
        if self.details:
            shown["details"] = self.details
        return shown


class SpooledResult(Struct, frozen=True, kw_only=True):
    """An output too large for memory, on disk and still raw. The `limit` step turns it into an artifact and deletes it.

    `path` holds the text itself (UTF-8) or, when `mime_type` is application/json, the raw `result` object as the
    server sent it. `head` and `tail` are short decoded excerpts, in characters.

    `Limit` deletes the file once the artifact has it, the pipeline one that no step took.
    """

    path: Path
    size: int
    mime_type: str
    head: str
    tail: str


class _JsonText(dict[str, Any]):
    """Text block with a value in JSON, and the value: to write a large one again takes as long as to read it.

    `ToolResult.json` compares the value by identity: a step that replaces the structured content makes the text
    invalid.
    """

    __slots__ = ("value",)
    value: Any


class ToolResult(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """The outcome of one call: success, the tool's own failure, or a refusal.

    `text` is what a model reads of it, `structured_content` what a program does, `error` is None for a success. Frozen;
    steps return a new one.

        ToolResult.of_text("3 files")                                       a success
        ToolResult.of_json({"files": 3})                                    one with a typed result
        ToolResult.failed("not_found", "no such file", hint="list_files")   a failure, which a tool may also raise
    """

    content: tuple[Mapping[str, Any], ...] = ()
    structured_content: Any = None
    """The typed result; None when the tool gave none (a tool that means null wraps it in an object)."""
    error: ToolError | None = None
    meta: Mapping[str, Any] = {}
    """For callers, never for the model: latency, the rule that decided, the artifact, the call id."""
    spooled: SpooledResult | None = None
    input_required: Mapping[str, Any] | None = None
    """MCP 2026-07-28: the tool asks for input first (`inputRequests`, `requestState`); neither success nor failure."""

    @classmethod
    def of_text(cls, text: str, *, structured_content: Any = None) -> ToolResult:
        """A success that is one piece of text."""
        return cls(content=({"type": "text", "text": encodable(text)},), structured_content=structured_content)

    @classmethod
    def of_json(cls, value: Any, written: bytes = b"") -> ToolResult:
        """A success that is a JSON value, `written` compactly: structured content, and the same as text.

        Nothing may change the value in place from now on.
        """
        block = _JsonText(type="text", text=(written or dumps(value)).decode())
        block.value = value
        return cls(content=(block,), structured_content=value)

    @classmethod
    def failed(cls, code: str, message: str, *, hint: str = "", details: Mapping[str, Any] | None = None) -> ToolResult:
        """A failure by code; the text that the model reads is made of the code, the message and the hint."""
        return cls.of_failure(ToolFailure(code, message, hint=hint, details=details))

    @classmethod
    def of_failure(cls, failure: ToolFailure) -> ToolResult:
        """Build the error result for `failure`."""
        # the failure may repeat the caller's text
        message, hint, details = encodable([failure.message, failure.hint, failure.details])
        text = f"{failure.code}: {message}"
        if hint:
            text = f"{text}\n{hint}"
        error = ToolError(code=failure.code, message=message, hint=hint, details=details)
        is_ours = not failure.sent and failure.code in ("denied", "invalid_arguments")
        return cls(content=({"type": "text", "text": text},), error=error, meta={"trust": "local"} if is_ours else {})

    @property
    def is_error(self) -> bool:
        """True for every outcome but success."""
        return self.error is not None

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")

    @property
    def only_text(self) -> str | None:
        """The text of a success that is one text and nothing else, as most are; None for any other result."""
        content = self.content
        if len(content) != 1 or self.structured_content is not None or self.error is not None:
            return None
        block = content[0]
        if (
            len(block) != 2
            or block.get("type") != "text"
            or self.spooled is not None
            or self.input_required is not None
        ):
            return None
        text = block.get("text")
        return text if isinstance(text, str) else None

    @property
    def json(self) -> bytes:
        """The structured content as compact JSON, of `of_json` as it was written; empty without one."""
        if self.structured_content is None:
            return b""
        block = self.content[0] if len(self.content) == 1 else None
        if type(block) is _JsonText and block.value is self.structured_content:
            return cast("str", block["text"]).encode()
        return dumps(self.structured_content)

    def to_json(self) -> dict[str, Any]:
        """Return the result for programs: content, whether it failed, structured content, error and metadata."""
        shown: dict[str, Any] = {"content": list(self.content), "isError": self.is_error}
        if self.structured_content is not None:
            shown["structuredContent"] = self.structured_content
        if self.error is not None:
            shown["error"] = self.error.to_json()
        if self.meta:
            shown["_meta"] = self.meta
        return shown

    def evolve(self, **changes: Any) -> ToolResult:
        """Return a copy with `changes`, fields of the result. Raises `TypeError` for other names."""
        return replace(self, **changes)

    def with_meta(self, **entries: Any) -> ToolResult:
        """Return the same result with more metadata."""
        return replace(self, meta={**self.meta, **entries})


def fit_page(rows: Iterable[_Row]) -> list[_Row]:
    """Return the first rows that fit into one result together, one at least; the next page begins with the others."""
    page: list[_Row] = []
    room = PAGE_BYTES
    for row in rows:
        room -= len(dumps(row))
        if room < 0 and page:
            break
        page.append(row)
    return page
