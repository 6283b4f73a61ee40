"""Result of a call: always a `ToolResult`, with any outcome.

Content blocks are the plain JSON objects of MCP (`{"type": "text", "text": …}` and the like), so they cross every
edge without being rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from ..errors import ToolFailure
from .json import encodable

__all__ = ["SpooledResult", "ToolError", "ToolResult", "Trust"]

Trust = Literal["local", "reviewed", "untrusted"]
"""Trust in a result: written by this machine or the caller; by a source that the operator trusts; by strangers.

`policy.origin` is the table of what has which.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolError:
    """Error of a call, for the model: a key of `errors.CODES`, a sentence, the next step."""

    code: str
    message: str
    hint: str = ""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_json(self) -> dict[str, Any]:
        """Return the non-empty fields."""
        shown: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.hint:
            shown["hint"] = self.hint
        if self.details:
            shown["details"] = self.details
        return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledResult:
    """An output too large for memory, on disk and still raw. The `limit` step turns it into an artifact and deletes it.

    `path` holds the text itself (UTF-8) or, when `mime_type` is application/json, the raw `result` object as the
    server sent it. `head` and `tail` are short decoded excerpts, in characters.
    """

    path: Path
    size: int
    mime_type: str
    head: str
    tail: str


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """The outcome of one call: success, the tool's own failure, or a refusal. Frozen; steps return a new one."""

    content: tuple[Mapping[str, Any], ...] = ()
    structured_content: Any = None
    """The typed result; None when the tool gave none (a tool that means null wraps it in an object)."""
    error: ToolError | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """For callers, never for the model: latency, the rule that decided, the artifact, the call id."""
    spooled: SpooledResult | None = None
    input_required: Mapping[str, Any] | None = None
    """MCP 2026-07-28: the tool asks for input first (`inputRequests`, `requestState`); neither success nor failure."""

    @classmethod
    def of_text(cls, text: str, *, structured: Any = None) -> ToolResult:
        """A success that is one piece of text."""
        new = _new(cls)
        content = ({"type": "text", "text": encodable(text)},)
        _set_fields(new, {**_EMPTY, "content": content, "structured_content": structured, "meta": {}})
        return new

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
        return _NOTHING.evolve(content=({"type": "text", "text": text},), error=error, meta={})

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

    def evolve(self, **changes: Any) -> ToolResult:
        """Return a copy with `changes`, fields of the result. Made as `Call.evolve` does it, for the same reason.

        Raises `TypeError` for other names.
        """
        values = self.__dict__ | changes
        if len(values) > len(_EMPTY):
            raise TypeError(f"a result has no field {', '.join(sorted(values.keys() - _EMPTY))}")
        new = _new(ToolResult)
        _set_fields(new, values)
        return new

    def with_meta(self, **entries: Any) -> ToolResult:
        """Return the same result with more metadata."""
        new, meta = _new(ToolResult), self.meta
        _set_fields(new, {**self.__dict__, "meta": {**meta, **entries} if meta else entries})
        return new


_new: Final = object.__new__
_set_fields: Final[Callable[[ToolResult, dict[str, Any]], None]] = ToolResult.__dict__["__dict__"].__set__
"""Sets all fields of a new result at once; each call makes three."""
_NOTHING: Final = ToolResult()
_EMPTY: Final = _NOTHING.__dict__
"""Fields of an empty result, to be copied: each call makes one."""
