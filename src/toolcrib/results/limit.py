"""Keeping a result within its budget: whole when it fits, else its beginning and its end, and the rest an artifact.

The budget is in tokens, estimated as UTF-8 bytes / 4 (measured ratios to a real tokenizer: 0.89 to 1.05). What is shown
is 60 % head and 40 % tail, cut between lines where lines are short enough, between items where the text is JSON that
can be rebuilt byte for byte; in between a marker counts what was left out and says how to read it.

What was limited fits, so a second pass with the same budget leaves it alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from anyio import to_thread

from ..core.json import dumps, loads
from ..core.result import Spill, ToolError, ToolResult
from ..errors import ToolFailure
from .artifacts import Artifact, Artifacts
from .cut import Cut, cut_json, cut_text
from .redact import Redactor

__all__ = ["Limiter", "estimate_tokens"]

_BYTES_PER_TOKEN: Final = 4
_MEDIA_BYTES: Final = 8 * 1024 * 1024
"""Bytes of base64 in images, audio and blobs that one result may carry."""
_IN_THREAD: Final = 256 * 1024
"""Above this many bytes the work is done in a thread; below it costs less than the hop."""
_LEAST: Final = 400
"""Bytes that are shown whatever the budget: a marker alone takes about 250."""
_STATUS_BYTES: Final = 2000
"""Of an error's message and of its hint."""
_DETAIL_BYTES: Final = 16 * 1024
"""Longer details of an error are dropped: the text says what they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """Where the whole output went: an artifact, or why there is none."""

    artifact: Artifact | None = None
    problem: str = ""


class Limiter:
    """Cuts results to their budget. `redactor` cleans spilled files on their way into an artifact."""

    def __init__(
        self,
        artifacts: Artifacts,
        redactor: Redactor,
        *,
        media_bytes: int = _MEDIA_BYTES,
        read_tool: str = "read_artifact",
    ) -> None:
        """`read_tool` is the name under which the model finds the tool that reads artifacts."""
        self._artifacts = artifacts
        self._read_tool = read_tool
        self._redactor = redactor
        self._media_bytes = media_bytes

    async def apply(self, result: ToolResult, budget_tokens: int, owner: str) -> ToolResult:
        """Return `result` within `budget_tokens`, its whole kept for `owner` where something was left out.

        Expects a redacted result. Never raises for lack of room: then the text says that the rest is lost.
        """
        budget = max(budget_tokens * _BYTES_PER_TOKEN, _LEAST)
        if result.spill is not None:
            return await to_thread.run_sync(self._unspill, result, result.spill, budget, owner)
        media = sum(map(_block_media, result.content))
        size = _text_bytes(result.content) + _json_bytes(result.structured_content)
        if size <= budget and media <= self._media_bytes and _is_short(result.error):
            return result
        if size + media > _IN_THREAD:
            return await to_thread.run_sync(self._limit, result, budget, owner)
        return self._limit(result, budget, owner)

    def _limit(self, result: ToolResult, budget: int, owner: str) -> ToolResult:
        content = self._limit_media(result.content)
        shown, notes = self._limit_structured(result, content, budget, owner)
        budget = max(_LEAST, budget - _text_bytes(notes))
        meta: dict[str, Any] = dict(result.meta)
        if _text_bytes(content) > budget:
            text = _joined(content)
            kept = self._keep(text.encode("utf-8", "replace"), owner, _mime_type(text))
            cut = cut_json(text, budget) or cut_text(text, budget, _size(text))
            content = _with_text(content, cut.render(self._go_on(kept, cut.head_bytes)), kept)
            if kept.artifact is not None:
                meta["artifact"] = kept.artifact.id
        error = result.error and _short_error(result.error)
        return replace(result, content=(*content, *notes), structured_content=shown, error=error, meta=meta)

    def _limit_structured(
        self, result: ToolResult, content: tuple[Mapping[str, Any], ...], budget: int, owner: str
    ) -> tuple[Any, tuple[Mapping[str, Any], ...]]:
        """The structured content if it may stay, and what to say when it may not and the text does not repeat it."""
        structured = result.structured_content
        size = _json_bytes(structured)
        if structured is None or _text_bytes(content) + size <= budget:
            return structured, ()
        if _same(_joined(content), structured):
            return (structured if size <= budget else None), ()
        kept = self._keep(dumps(structured), owner, "application/json")
        text = f"[toolcrib: structured content of {size} bytes left out. {self._go_on(kept, 0)}]"
        return None, ({"type": "text", "text": text}, *_links(kept))

    def _limit_media(self, content: tuple[Mapping[str, Any], ...]) -> tuple[Mapping[str, Any], ...]:
        """Replace the media that no longer fit, by notes that say so."""
        shown: list[Mapping[str, Any]] = []
        room = self._media_bytes
        for block in content:
            size = _block_media(block)
            if size <= room:
                room -= size
                shown.append(block)
                continue
            kind = str(block.get("mimeType") or block.get("type"))
            text = f"[toolcrib: {kind} of {size} base64 bytes left out: more than {self._media_bytes} in one result]"
            shown.append({"type": "text", "text": text})
        return tuple(shown)

    def _unspill(self, result: ToolResult, spill: Spill, budget: int, owner: str) -> ToolResult:
        """Turn the raw file into a clean artifact, and delete it whatever happens."""
        meta: dict[str, Any] = dict(result.meta)
        try:
            kept = self._keep_file(spill, owner)
        finally:
            spill.path.unlink(missing_ok=True)
        if kept.artifact is None:
            head, tail = self._redactor.text(spill.head), self._redactor.text(spill.tail)
            cut = cut_text(head, budget, spill.size, tail=tail)
        else:
            meta["artifact"] = kept.artifact.id
            cut = self._excerpt(kept.artifact, budget)
        text = cut.render(self._go_on(kept, cut.head_bytes))
        content = ({"type": "text", "text": text}, *_links(kept))
        error = result.error and _short_error(result.error)
        return replace(result, content=content, structured_content=None, spill=None, error=error, meta=meta)

    def _excerpt(self, artifact: Artifact, budget: int) -> Cut:
        """Head and tail of what was stored, read from there so that offsets fit."""
        with self._artifacts.open(artifact) as source:
            head = source.read(min(budget, artifact.size)).decode("utf-8", "ignore")
            source.seek(max(0, artifact.size - budget))
            tail = source.read(budget).decode("utf-8", "ignore")
        return cut_text(head, budget, artifact.size, tail=tail)

    def _go_on(self, kept: _Kept, offset: int) -> str:
        if kept.artifact is None:
            return f"The rest is lost: {kept.problem}."
        name = kept.artifact.id
        return f'The whole is artifact {name}: {self._read_tool} {{"id": "{name}", "offset": {offset}}} goes on here.'

    def _keep_file(self, spill: Spill, owner: str) -> _Kept:
        try:
            with Path(spill.path).open("rb") as source:
                return _Kept(
                    artifact=self._artifacts.put_stream(
                        lambda target: self._redactor.stream(source, target), owner, spill.mime_type
                    )
                )
        except ToolFailure as failure:
            return _Kept(problem=failure.message)
        except OSError as error:
            return _Kept(problem=f"the output could not be read again: {error.strerror or error}")

    def _keep(self, data: bytes, owner: str, mime_type: str) -> _Kept:
        try:
            return _Kept(artifact=self._artifacts.put(data, owner, mime_type))
        except ToolFailure as failure:
            return _Kept(problem=failure.message)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _json_bytes(value: Any) -> int:
    return 0 if value is None else len(dumps(value))


def _text_of(block: Mapping[str, Any]) -> str | None:
    """The text in a block: its own, or that of the resource it embeds."""
    if block.get("type") == "text":
        return str(block.get("text", ""))
    if block.get("type") == "resource":
        text = block.get("resource", {}).get("text")
        return text if isinstance(text, str) else None
    return None


def _text_bytes(content: tuple[Mapping[str, Any], ...]) -> int:
    return sum([_size(text) for block in content if (text := _text_of(block)) is not None])


def _block_media(block: Mapping[str, Any]) -> int:
    kind = block.get("type")
    if kind in ("image", "audio"):
        return len(block.get("data", ""))
    return len(block.get("resource", {}).get("blob", "")) if kind == "resource" else 0


def _joined(content: tuple[Mapping[str, Any], ...]) -> str:
    return "\n".join([text for block in content if (text := _text_of(block)) is not None])


def _same(text: str, value: Any) -> bool:
    """Whether `text` is `value` in JSON, as tools repeat it for clients that read text only."""
    try:
        return bool(loads(text) == value)
    except ValueError:
        return False


def _mime_type(text: str) -> str:
    """`application/json` for what parses, up to a size where trying is cheap."""
    if text[:1] in ("{", "[") and len(text) <= _MEDIA_BYTES:
        try:
            loads(text)
        except ValueError:
            return "text/plain"
        return "application/json"
    return "text/plain"


def _with_text(content: tuple[Mapping[str, Any], ...], text: str, kept: _Kept) -> tuple[Mapping[str, Any], ...]:
    """`content` with one text in the place of all its texts; a resource that lost its text becomes a link."""
    shown: list[Mapping[str, Any]] = []
    pending: list[Mapping[str, Any]] = [{"type": "text", "text": text}, *_links(kept)]
    for block in content:
        if _text_of(block) is None:
            shown.append(block)
            continue
        shown += pending
        pending = []
        if block.get("type") == "resource":
            shown.append(_as_link(block["resource"]))
    return tuple(shown)


def _as_link(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    uri = str(resource.get("uri", ""))
    link = {"type": "resource_link", "uri": uri, "name": uri.rsplit("/", 1)[-1] or uri}
    return {**link, "mimeType": resource["mimeType"]} if resource.get("mimeType") else link


def _links(kept: _Kept) -> tuple[Mapping[str, Any], ...]:
    """The MCP block that refers to the whole output."""
    if kept.artifact is None:
        return ()
    artifact = kept.artifact
    return (
        {
            "type": "resource_link",
            "uri": artifact.uri,
            "name": f"artifact-{artifact.id[:8]}",
            "description": "the whole output",
            "mimeType": artifact.mime_type,
            "size": artifact.size,
        },
    )


def _is_short(error: ToolError | None) -> bool:
    if error is None:
        return True
    if len(error.message) > _STATUS_BYTES or len(error.hint) > _STATUS_BYTES:
        return False
    return not error.details or len(dumps(error.details)) <= _DETAIL_BYTES


def _short_error(error: ToolError) -> ToolError:
    if _is_short(error):
        return error
    short = replace(error, message=_shortened(error.message), hint=_shortened(error.hint))
    return short if len(dumps(error.details)) <= _DETAIL_BYTES else replace(short, details={})


def _shortened(text: str) -> str:
    return text if len(text) <= _STATUS_BYTES else f"{text[:_STATUS_BYTES]} … ({len(text)} characters)"


def estimate_tokens(size: int) -> int:
    """Estimate the tokens of `size` UTF-8 bytes of text: bytes / 4, rounded up."""
    return -(-size // _BYTES_PER_TOKEN)
