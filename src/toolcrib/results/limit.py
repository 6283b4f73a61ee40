"""Keeping a result within its budget: whole when it fits, else its beginning and its end, and the rest an artifact.

The budget is in tokens, estimated as UTF-8 bytes / 4 (measured ratios to a real tokenizer: 0.89 to 1.05). What is shown
is 60 % head and 40 % tail, cut between lines where lines are short enough, between items where the text is JSON that
can be rebuilt byte for byte; in between a marker counts what was left out and says how to read it. A profile may ask
for less, for another share and another marker (`fit`); the session's budget stays the ceiling.

What an MCP client reads passes whole up to a size of its own (`pass_whole`): the client has its own limits, and a
result that reached it before reaches it still. Structured content of a tool with an `outputSchema` is shortened to a
value that is valid for it (`structured`).

What was limited fits, so a second pass with the same budget leaves it alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from anyio import to_thread

from ..core.json import dumps, read_json
from ..core.result import Spill, ToolError, ToolResult
from ..errors import ToolFailure
from .artifacts import Artifacts
from .cut import Cut, Room, cut_json, cut_lines, cut_text
from .fit import Way
from .hints import cut_search, is_list, take_hint
from .pages import Artifact
from .redact import Redactor
from .structured import shorten

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
_LONGEST_CHARACTER: Final = 4
"""Bytes of UTF-8."""
_PLAIN: Final = Way()
_COMPRESSED: Final = re.compile(r"\[COMPRESSED:([0-9a-f]{32})\]")
_DETAIL_BYTES: Final = 16 * 1024
"""Longer details of an error are dropped: the text says what they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """Where the whole output went: an artifact, or why there is none."""

    artifact: Artifact | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What one result may take: its own room, and the ceiling in bytes that no hint lifts."""

    way: Way
    room: Room
    ceiling: int
    whole: int = 0
    """Bytes that structured content may take where no valid shortening fits the ceiling."""
    spared: bool = False
    """Whether only the ceiling holds."""

    def fits(self, result: ToolResult) -> bool:
        """Whether nothing is too long, text and structured content together."""
        size = _text_bytes(result.content) + _json_bytes(result.structured_content)
        if self.room.unit == "bytes" or size <= self.room.size:
            return size <= self.room.size
        length = len(_joined(result.content)) + len(dumps(result.structured_content or "").decode())
        return length <= self.room.size and size <= self.ceiling

    def is_too_long(self, text: str) -> bool:
        """Whether this text must be cut."""
        return self.room.measure(text) > self.room.size or _size(text) > self.ceiling

    def less(self, notes: tuple[Mapping[str, Any], ...]) -> _Plan:
        """Return the plan for what stands beside `notes`."""
        taken = self.room.measure(_joined(notes)) if notes else 0
        return replace(self, room=replace(self.room, size=max(_LEAST, self.room.size - taken))) if taken else self


class Limiter:
    """Cuts results to their budget. `redactor` cleans spilled files on their way into an artifact."""

    def __init__(
        self, artifacts: Artifacts, redactor: Redactor, *, media_bytes: int = _MEDIA_BYTES, pass_whole: int = 0
    ) -> None:
        """`media_bytes` is the base64 that one result may carry.

        `pass_whole` are the bytes of text, and as many of structured content, up to which a result for an MCP client
        (`Way.whole`) stays as it is.
        """
        self._pass_whole = pass_whole
        self._artifacts = artifacts
        self._redactor = redactor
        self._media_bytes = media_bytes

    @property
    def artifacts(self) -> Artifacts:
        """Where the whole of what was cut is kept."""
        return self._artifacts

    async def apply(self, result: ToolResult, budget_tokens: int, owner: str, way: Way = _PLAIN) -> ToolResult:
        """Return `result` within `budget_tokens`, its whole kept for `owner` where something was left out.

        `way` may ask for less than the budget. Expects a redacted result. Never raises for lack of room: then the
        text says that the rest is lost.
        """
        if way.fit.hints:
            result, hint = take_hint(result)
            way = replace(way, hint=hint) if hint and not way.hint else way
        ceiling = max(budget_tokens * _BYTES_PER_TOKEN, _LEAST)
        if result.spill is None and self._is_small(result, min(ceiling, way.fit.least)):
            return result
        if way.whole and self._passes_whole(result):
            return replace(
                result, content=self._limit_media(result.content), error=result.error and _short_error(result.error)
            )
        plan = replace(_plan(result, way, ceiling), whole=self._pass_whole if way.whole else 0)
        if result.spill is not None:
            return await to_thread.run_sync(self._unspill, result, result.spill, plan, owner)
        media = sum(map(_block_media, result.content))
        if plan.fits(result) and media <= self._media_bytes and _is_short(result.error):
            return result
        structured = _json_bytes(result.structured_content)
        is_shortened = way.schema is not None and structured > plan.ceiling
        if is_shortened or _text_bytes(result.content) + structured + media > _IN_THREAD:
            return await to_thread.run_sync(self._limit, result, plan, owner)
        return self._limit(result, plan, owner)

    def _is_small(self, result: ToolResult, room: float) -> bool:
        """Whether nothing has to be thought about: what nearly every result is."""
        size = _text_bytes(result.content) + _json_bytes(result.structured_content)
        media = sum([_block_media(block) for block in result.content])
        return size <= room and media <= self._media_bytes and _is_short(result.error)

    def _passes_whole(self, result: ToolResult) -> bool:
        """Whether a client gets text and structured content as they are; one mostly repeats the other."""
        size = max(_text_bytes(result.content), _json_bytes(result.structured_content))
        return result.spill is None and size <= self._pass_whole

    def _limit(self, result: ToolResult, plan: _Plan, owner: str) -> ToolResult:
        content = self._limit_media(result.content)
        shown, notes, told = self._limit_structured(result, content, plan, owner)
        plan = plan.less(notes)
        meta: dict[str, Any] = {**result.meta, **told}
        text = _joined(content)
        if plan.is_too_long(text):
            cut = self._cut(text, plan, owner)
            if cut is not None:
                kept = self._keep(text.encode("utf-8", "replace"), owner, _mime_type(text), plan)
                content = _with_text(content, self._render(cut, kept, plan), kept)
                meta |= _told(cut, kept, plan)
        error = result.error and _short_error(result.error)
        return replace(result, content=(*content, *notes), structured_content=shown, error=error, meta=meta)

    def _cut(self, text: str, plan: _Plan, owner: str) -> Cut | None:
        """Cut `text`, which is longer than its room, as its way says; None when it stays, having been cut before.

        What is shown is always shorter: the room has a place for the marker.
        """
        room = plan.room
        if _size(text) <= plan.ceiling and self._was_cut(text, owner):
            return None
        if plan.way.hint == "search" and not plan.spared:
            cut = cut_search(text, room, plan.way.fit)
            if cut is not None and _size(cut.head) + room.note <= plan.ceiling:
                return cut
        size = room.measure(text)
        lines = cut_lines(text, room, size) if plan.way.lines else None
        return lines or cut_json(text, room) or cut_text(text, room, size)

    def _was_cut(self, text: str, owner: str) -> bool:
        """Whether `text` has the mark of an artifact of this owner: a recorded outcome that is told again."""
        found = _COMPRESSED.search(text)
        if found is None:
            return False
        try:
            return self._artifacts.find(found[1], owner).id == found[1]
        except ToolFailure:
            return False

    def _limit_structured(
        self, result: ToolResult, content: tuple[Mapping[str, Any], ...], plan: _Plan, owner: str
    ) -> tuple[Any, tuple[Mapping[str, Any], ...], dict[str, Any]]:
        """Return the structured content, whole or shortened, or None where it may not stay.

        With it come the blocks that say so where the text does not repeat it, and metadata.
        """
        structured = result.structured_content
        if structured is None:
            return None, (), {}
        text, written = _joined(content), dumps(structured)
        schema = plan.way.schema
        if schema is not None and len(written) <= plan.ceiling:
            return structured, (), {}
        room = plan.room
        size = room.measure(written.decode())
        if schema is None and room.measure(text) + size <= room.size:
            return structured, (), {}
        is_repeated = _same(text, structured) or any(_same(_text_of(block) or "", structured) for block in content)
        if schema is None and is_repeated and size <= room.size:
            return structured, (), {}
        # A seed that limits in characters (`selection`) shows such a result as a failure, with the ends of its text.
        may_shorten = schema is not None and plan.way.fit.characters is None
        short = shorten(structured, schema, plan.ceiling) if schema is not None and may_shorten else None
        if schema is not None and may_shorten and short is None and plan.whole > plan.ceiling:
            short = shorten(structured, schema, plan.whole)
        told: dict[str, Any] = {}
        if short is not None:
            told["shortened"] = {"bytes": len(written), "shown": len(dumps(short))}
        if is_repeated:
            return short, (), told
        kept = self._keep(written, owner, "application/json", plan)
        if kept.artifact is not None:
            told["artifact"] = kept.artifact.id
        what = "left out" if short is None else f"shortened to {room.measure(dumps(short).decode())}"
        note = f"structured content of {size} {room.unit} {what}. {self._go_on(kept, 0, plan)}"
        text = f"{_sign(kept)}{note}" if plan.way.fit.marker == "compressed" else f"[toolcrib: {note}]"
        return short, ({"type": "text", "text": text}, *_links(kept)), told

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

    def _unspill(self, result: ToolResult, spill: Spill, plan: _Plan, owner: str) -> ToolResult:
        """Turn the raw file into a clean artifact, and delete it whatever happens."""
        try:
            kept = self._keep_file(spill, owner, plan)
        finally:
            spill.path.unlink(missing_ok=True)
        room = replace(plan.room, unit="bytes")
        if kept.artifact is None:
            head, tail = self._redactor.text(spill.head), self._redactor.text(spill.tail)
            cut = cut_text(head, room, spill.size, tail=tail)
        else:
            cut = self._excerpt(kept.artifact, room, plan)
        content = ({"type": "text", "text": self._render(cut, kept, plan)}, *_links(kept))
        error = result.error and _short_error(result.error)
        meta = {**result.meta, **_told(cut, kept, plan)}
        return replace(result, content=content, structured_content=None, spill=None, error=error, meta=meta)

    def _excerpt(self, artifact: Artifact, room: Room, plan: _Plan) -> Cut:
        """Head and tail of what was stored, read from there so that offsets fit."""
        with self._artifacts.open(artifact) as source:
            head = source.read(min(room.size, artifact.size)).decode("utf-8", "ignore")
            source.seek(max(0, artifact.size - room.size))
            tail = source.read(room.size).decode("utf-8", "ignore")
        lines = cut_lines(head, room, artifact.size, whole=False) if plan.way.lines else None
        return lines or cut_text(head, room, artifact.size, tail=tail)

    def _render(self, cut: Cut, kept: _Kept, plan: _Plan) -> str:
        ref = kept.artifact.id if kept.artifact else ""
        return cut.render(self._go_on(kept, cut.head_bytes, plan), plan.way.fit.marker, ref)

    def _go_on(self, kept: _Kept, offset: int, plan: _Plan) -> str:
        if kept.artifact is None:
            return f"The rest is lost: {kept.problem}."
        name, read = kept.artifact.id, plan.way.read
        if not read:
            return f"The whole is artifact {name}."
        on = f'The whole is artifact {name}: {read} {{"id": "{name}", "offset": {offset}}} goes on here'
        return f'{on}; as an argument: {{"$artifact": ID}}.'

    def _keep_file(self, spill: Spill, owner: str, plan: _Plan) -> _Kept:
        try:
            with Path(spill.path).open("rb") as source:
                return _Kept(
                    artifact=self._artifacts.put_stream(
                        lambda target: self._redactor.stream(source, target),
                        owner,
                        spill.mime_type,
                        source=plan.way.source,
                        trust=plan.way.trust,
                    )
                )
        except ToolFailure as failure:
            return _Kept(problem=failure.message)
        except OSError as error:
            return _Kept(problem=f"the output could not be read again: {error.strerror or error}")

    def _keep(self, data: bytes, owner: str, mime_type: str, plan: _Plan) -> _Kept:
        way = plan.way
        try:
            return _Kept(artifact=self._artifacts.put(data, owner, mime_type, source=way.source, trust=way.trust))
        except ToolFailure as failure:
            return _Kept(problem=failure.message)


def _plan(result: ToolResult, way: Way, ceiling: int) -> _Plan:
    """Return what the result may take, by its style, its hint and what it is."""
    fit = way.fit
    plan = _Plan(way=way, ceiling=ceiling, room=Room(size=ceiling, head=fit.head, note=fit.note))
    spared = ("errors" in fit.spare and result.is_error) or ("lists" in fit.spare and is_list(result))
    if spared or (fit.hints and way.hint == "skip"):
        return replace(plan, spared=True)
    characters = fit.force if fit.hints and way.hint == "force" else fit.characters
    if characters is not None:
        size = min(characters, ceiling // _LONGEST_CHARACTER)
        return replace(plan, room=replace(plan.room, size=size, unit="characters"))
    if fit.tokens is not None:
        size = max(_LEAST, min(fit.tokens * _BYTES_PER_TOKEN, ceiling))
        return replace(plan, room=replace(plan.room, size=size))
    return plan


def _told(cut: Cut, kept: _Kept, plan: _Plan) -> dict[str, Any]:
    """What the caller learns of a cut, beside the text."""
    told: dict[str, Any] = {"artifact": kept.artifact.id} if kept.artifact else {}
    if plan.way.fit.marker == "compressed":
        told["compression"] = {
            "ref_id": kept.artifact.id if kept.artifact else "",
            "original_length": cut.size,
            "shown_length": cut.shown,
            "hint": plan.way.hint or "normal",
        }
    return told


def _sign(kept: _Kept) -> str:
    return f"[COMPRESSED:{kept.artifact.id}] " if kept.artifact else ""


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
        return bool(read_json(text, limit=len(text)) == value)
    except ValueError:
        return False


def _mime_type(text: str) -> str:
    """`application/json` for what parses, up to a size where trying is cheap."""
    if text[:1] in ("{", "[") and len(text) <= _MEDIA_BYTES:
        try:
            read_json(text)
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
