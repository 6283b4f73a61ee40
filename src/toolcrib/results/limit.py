"""Result limits: whole results where they fit, else head and tail or items, with the rest as an artifact.

    fits                      the result itself, as nearly all are
    whole (MCP client)        the result itself, up to `results.pass_whole`
    spooled                   file ──► redacted, stored as an artifact, excerpt; the pipeline deletes the file
    else                      text: items of a JSON list, lines, or head and tail; structured content: a valid
                              shortening, or none; media beyond `media_bytes`: a note

The rest is an artifact of the principal: the marker in the text names it, and where reading goes on.
Sizes are bytes of UTF-8 unless the profile counts characters. A token is estimated as 4 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from ..core.json import dumps, read_json
from ..core.patterns import regex
from ..core.result import SpooledResult, ToolError, ToolResult, Trust
from ..errors import ToolFailure
from .artifacts import Artifact, Artifacts
from .excerpts import (
    DEFAULT_STYLE,
    MAX_PARSED_LENGTH,
    Cut,
    ExcerptStyle,
    TextBudget,
    cut_json,
    cut_lines,
    cut_search,
    cut_text,
    parse_or_none,
)
from .redaction.redactor import Redactor
from .structured_content import shorten

Hint = Literal["skip", "normal", "force", "search"]

HINTS: Final[tuple[Hint, ...]] = get_args(Hint)
"""`skip` only the ceiling · `normal` the budget · `force` a smaller one · `search` the first items with short texts."""

_HINT_KEY: Final = "_compression_hint"

_BYTES_PER_TOKEN: Final = 4
_MAX_MEDIA_BYTES: Final = 8 * 1024 * 1024
"""Bytes of base64 in images, audio and blobs that one result may carry."""
_MIN_THREAD_BYTES: Final = 256 * 1024
"""Above this many bytes the work is done in a thread; below it costs less than the hop."""
_MIN_SHOWN_BYTES: Final = 400
"""Bytes that are shown under any budget: a marker alone takes about 250."""
_MAX_STATUS_BYTES: Final = 2000
"""Of an error's message and of its hint."""
_MAX_CHARACTER_BYTES: Final = 4
"""Bytes of UTF-8."""

_COMPRESSED_MARK: Final = regex(r"\[COMPRESSED:([0-9a-f]{32})\]")
_MAX_DETAIL_BYTES: Final = 16 * 1024
"""Longer details of an error are dropped: the text repeats them."""


class LimitOptions(Struct, frozen=True, kw_only=True):
    """Limiting of one result: the style, and facts about the call."""

    fit: ExcerptStyle = DEFAULT_STYLE
    hint: Hint | None = None
    """Hint of the caller, else of the tool's declaration; without either, the result may carry its own."""
    lines: bool = False
    """The text is a list of lines, best first: whole first lines are shown, and no tail."""
    schema: Mapping[str, Any] | None = None
    """The `outputSchema` that the caller has read: structured content stays valid for it, whole or shortened."""
    as_value: bool = False
    """Whether the model reads the value of the result and not its text: an object stays one, shortened."""
    whole: bool = False
    """Whether an MCP client reads the result: up to the limiter's `pass_whole` it stays unchanged."""
    read: str = "read_artifact"
    """The name of the tool that reads artifacts, as the model knows it; empty without one."""
    source: str = ""
    """The source of the tool, with its trust: artifacts carry both."""
    trust: Trust = "local"


def _take_hint(result: ToolResult) -> tuple[ToolResult, Hint | None]:
    """Return the result without the hint that its tool put into it, and the hint; an unknown one is dropped."""
    structured = result.structured_content
    if not isinstance(structured, dict) or _HINT_KEY not in structured:
        return result, None
    given = cast("dict[str, Any]", structured)
    hint = given[_HINT_KEY] if given[_HINT_KEY] in HINTS else None
    rest = {key: value for key, value in given.items() if key != _HINT_KEY}
    content = tuple(_replace_repetition(block, given, rest) for block in result.content)
    return replace(result, content=content, structured_content=rest), hint


def is_list(result: ToolResult) -> bool:
    """Whether the result is a list: its structured content, or else its text, as JSON."""
    if result.structured_content is not None:
        return isinstance(result.structured_content, list)
    text = result.text
    if result.spooled is not None or not text.lstrip().startswith("[") or len(text) > MAX_PARSED_LENGTH:
        return False
    return isinstance(parse_or_none(text), list)


def _replace_repetition(
    block: Mapping[str, Any], given: Mapping[str, Any], rest: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the block that repeats `given` as text with `rest` in its place; any other unchanged."""
    text = block.get("text")
    if not isinstance(text, str) or _HINT_KEY not in text or parse_or_none(text) != given:
        return block
    return {**block, "text": dumps(rest).decode()}


_DEFAULT_OPTIONS: Final = LimitOptions()
_ANY_SCHEMA: Final[Mapping[str, Any]] = {}
"""The schema of any value."""


class _StoredOutput(Struct, frozen=True, kw_only=True):
    """The stored whole output: an artifact, or the reason why it could not be stored."""

    artifact: Artifact | None = None
    problem: str = ""


class _Plan(Struct, frozen=True, kw_only=True):
    """Limits of one result: its own room, and the ceiling in bytes that no hint lifts.

    Text and structured content share the room, unless one repeats the other.
    """

    way: LimitOptions
    room: TextBudget
    ceiling: int
    whole: int = 0
    """Bytes that structured content may take where no valid shortening fits the ceiling."""
    spared: bool = False
    """Whether only the ceiling holds."""

    def fits(self, result: ToolResult) -> bool:
        """Whether nothing is too long, text and structured content together."""
        size = _text_bytes(result.content)
        if size > max(self.room.size, self.ceiling) or (self.room.unit == "bytes" and size > self.room.size):
            return False  # the text alone: a large structured content need not be written out to be measured
        size += len(result.json)
        if self.room.unit == "bytes" or size <= self.room.size:
            return size <= self.room.size
        length = len(_join_texts(result.content)) + len(result.json.decode())
        return length <= self.room.size and size <= self.ceiling

    def is_too_long(self, text: str) -> bool:
        """Whether this text must be cut."""
        return self.room.measure(text) > self.room.size or _size(text) > self.ceiling

    def reduced_by(self, notes: tuple[Mapping[str, Any], ...]) -> _Plan:
        """Return the plan for the room that `notes` leave."""
        taken = self.room.measure(_join_texts(notes)) if notes else 0
        return (
            replace(self, room=replace(self.room, size=max(_MIN_SHOWN_BYTES, self.room.size - taken)))
            if taken
            else self
        )


class Limiter:
    """Cuts results to their budget. `redactor` cleans spilled files on their way into an artifact.

    Has no state but its services; used from the event loop, and its long work runs in threads.
    """

    def __init__(
        self, artifacts: Artifacts, redactor: Redactor, *, media_bytes: int = _MAX_MEDIA_BYTES, pass_whole: int = 0
    ) -> None:
        """`media_bytes` is the base64 that one result may carry.

        `pass_whole` are the bytes of text, and as many of structured content, up to which a result for an MCP client
        (`LimitOptions.whole`) stays as it is.
        """
        self._pass_whole = pass_whole
        self._artifacts = artifacts
        self._redactor = redactor
        self._media_bytes = media_bytes

    @property
    def artifacts(self) -> Artifacts:
        """Store of the whole outputs."""
        return self._artifacts

    async def apply(
        self, result: ToolResult, budget_tokens: int, owner: str, way: LimitOptions = _DEFAULT_OPTIONS
    ) -> ToolResult:
        """Return `result` within `budget_tokens`, with the whole stored for `owner` if something was left out.

        `way` may ask for less than the budget. Expects a redacted result. Never raises for lack of storage: the text
        then states that the rest is lost.
        """
        if way.fit.hints:
            result, hint = _take_hint(result)
            way = replace(way, hint=hint) if hint and not way.hint else way
        ceiling = max(budget_tokens * _BYTES_PER_TOKEN, _MIN_SHOWN_BYTES)
        if self.fits(result, budget_tokens, way.fit.least):
            return result
        if way.whole and self._passes_whole(result):
            return replace(
                result, content=self._limit_media(result.content), error=result.error and _short_error(result.error)
            )
        plan = replace(_plan(result, way, ceiling), whole=self._pass_whole if way.whole else 0)
        if result.spooled is not None:
            return await to_thread.run_sync(self._unspool, result, result.spooled, plan, owner)
        media = sum(map(_block_media, result.content))
        if plan.fits(result) and media <= self._media_bytes and _is_short(result.error):
            return result
        size = _text_bytes(result.content) + media
        if size <= _MIN_THREAD_BYTES:
            structured = len(result.json)
            size = _MIN_THREAD_BYTES + 1 if way.schema is not None and structured > plan.ceiling else size + structured
        if size > _MIN_THREAD_BYTES:
            return await to_thread.run_sync(self._limit, result, plan, owner)
        return self._limit(result, plan, owner)

    def fits(self, result: ToolResult, budget_tokens: int, least: float) -> bool:
        """Whether the result is within every limit, `least` bytes among them, as nearly all are."""
        if result.spooled is not None:
            return False
        size = _text_bytes(result.content)
        room = min(max(budget_tokens * _BYTES_PER_TOKEN, _MIN_SHOWN_BYTES), least)
        size += len(result.json) if size <= room else 0
        return size <= room and sum(map(_block_media, result.content)) <= self._media_bytes and _is_short(result.error)

    @staticmethod
    def short_text(budget_tokens: int, least: float) -> float:
        """Return the characters up to which a result that is one text `fits`, whichever they are."""
        return min(budget_tokens * _BYTES_PER_TOKEN, least) / _MAX_CHARACTER_BYTES

    def _passes_whole(self, result: ToolResult) -> bool:
        """Whether a client gets text and structured content as they are; one mostly repeats the other."""
        if result.spooled is not None or _text_bytes(result.content) > self._pass_whole:
            return False
        return len(result.json) <= self._pass_whole

    def _limit(self, result: ToolResult, plan: _Plan, owner: str) -> ToolResult:
        content = self._limit_media(result.content)
        if result.structured_content is None and plan.way.as_value:
            value = parse_or_none(_join_texts(content))
            result = replace(result, structured_content=value) if isinstance(value, dict) else result
        written = result.json
        shown, notes, meta_of_cut = self._limit_structured(result.structured_content, written, content, plan, owner)
        plan = plan.reduced_by(notes)
        meta: dict[str, Any] = {**result.meta, **meta_of_cut}
        text = _join_texts(content)
        if plan.is_too_long(text):
            cut = self._cut(text, plan, owner)
            if cut is not None:
                raw = text.encode("utf-8", "replace")
                kept = self._store(raw, owner, "application/json" if raw == written else _mime_type(text), plan)
                content = _with_text(content, self._render(cut, kept, plan), kept)
                meta |= _cut_meta(cut, kept, plan)
        if plan.way.as_value and "shortened" in meta:  # the marker is in the text, which the model does not read
            read, whole = plan.way.read, meta.get("artifact")
            more = f': {read} {{"id": "{whole}"}} reads the whole' if read and whole else ""
            counts = "shortened to {shown} of {bytes} bytes".format_map(meta["shortened"])
            meta["warnings"] = [*meta.get("warnings", ()), counts + more]
        error = result.error and _short_error(result.error)
        return replace(result, content=(*content, *notes), structured_content=shown, error=error, meta=meta)

    def _cut(self, text: str, plan: _Plan, owner: str) -> Cut | None:
        """Cut `text`, which is longer than its room, in its style; None when it was cut before and stays.

        The result is always shorter: the room has a place for the marker.
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
        """Whether `text` has the mark of an artifact of this owner: a recorded outcome that is returned again.

        A replayed result has the marker already; cutting it again would name an artifact of an excerpt.
        """
        found = _COMPRESSED_MARK.search(text)
        if found is None:
            return False
        try:
            return self._artifacts.find(found[1], owner).id == found[1]
        except ToolFailure:
            return False

    def _limit_structured(
        self, structured: Any, written: bytes, content: tuple[Mapping[str, Any], ...], plan: _Plan, owner: str
    ) -> tuple[Any, tuple[Mapping[str, Any], ...], dict[str, Any]]:
        """Return structured content, `written` in JSON, whole or shortened, or None where it may not stay.

        Also returns the blocks that report a shortening which the text does not repeat, and metadata.
        """
        if structured is None:
            return None, (), {}
        text = _join_texts(content)
        schema, room, most = plan.way.schema, plan.room, plan.ceiling
        if schema is None and plan.way.as_value and not plan.spared:
            schema, most = _ANY_SCHEMA, room.text
        if schema is not None and len(written) <= most:
            return structured, (), {}
        size = room.measure(written.decode())
        if schema is None and room.measure(text) + size <= room.size:
            return structured, (), {}
        is_repeated = _is_json_of(text, structured, written) or any(
            _is_json_of(_text_of(block) or "", structured, written) for block in content
        )
        if schema is None and is_repeated and size <= room.size:
            return structured, (), {}
        short = shorten(structured, schema, most) if schema is not None else None
        if schema is not None and short is None and plan.whole > plan.ceiling:
            short = shorten(structured, schema, plan.whole)
        meta_of_cut: dict[str, Any] = {}
        if short is not None:
            meta_of_cut["shortened"] = {"bytes": len(written), "shown": len(dumps(short))}
        if is_repeated:
            return short, (), meta_of_cut
        kept = self._store(written, owner, "application/json", plan)
        if kept.artifact is not None:
            meta_of_cut["artifact"] = kept.artifact.id
        what = "left out" if short is None else f"shortened to {room.measure(dumps(short).decode())}"
        note = f"structured content of {size} {room.unit} {what}. {self._reading_advice(kept, 0, plan)}"
        text = f"{_compressed_mark(kept)}{note}" if plan.way.fit.marker == "compressed" else f"[toolcrib: {note}]"
        return short, ({"type": "text", "text": text}, *_link_blocks(kept)), meta_of_cut

    def _limit_media(self, content: tuple[Mapping[str, Any], ...]) -> tuple[Mapping[str, Any], ...]:
        """Replace media that do not fit by notes."""
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

    def _unspool(self, result: ToolResult, spooled: SpooledResult, plan: _Plan, owner: str) -> ToolResult:
        """Turn the raw file into a clean artifact; the pipeline deletes it.

        The excerpt is read from the stored, redacted text, so that the offsets of the marker are those of the artifact.
        """
        kept = self._store_file(spooled, owner, plan)
        room = replace(plan.room, unit="bytes")
        if kept.artifact is None:
            redactor = self._redactor.of(owner)
            head, tail = redactor.text(spooled.head), redactor.text(spooled.tail)
            cut = cut_text(head, room, spooled.size, tail=tail)
        else:
            cut = self._excerpt(kept.artifact, room, plan)
        content = ({"type": "text", "text": self._render(cut, kept, plan)}, *_link_blocks(kept))
        error = result.error and _short_error(result.error)
        meta = {**result.meta, **_cut_meta(cut, kept, plan)}
        return replace(result, content=content, structured_content=None, spooled=None, error=error, meta=meta)

    def _excerpt(self, artifact: Artifact, room: TextBudget, plan: _Plan) -> Cut:
        """Head and tail of a stored text, read from the store so that offsets fit."""
        with self._artifacts.open(artifact) as source:
            head = source.read(min(room.size, artifact.size)).decode("utf-8", "ignore")
            source.seek(max(0, artifact.size - room.size))
            tail = source.read(room.size).decode("utf-8", "ignore")
        lines = cut_lines(head, room, artifact.size, whole=False) if plan.way.lines else None
        return lines or cut_text(head, room, artifact.size, tail=tail)

    def _render(self, cut: Cut, kept: _StoredOutput, plan: _Plan) -> str:
        ref = kept.artifact.id if kept.artifact else ""
        return cut.render(self._reading_advice(kept, cut.head_bytes, plan), plan.way.fit.marker, ref)

    def _reading_advice(self, kept: _StoredOutput, offset: int, plan: _Plan) -> str:
        if kept.artifact is None:
            return f"The rest is lost: {kept.problem}."
        name, read = kept.artifact.id, plan.way.read
        if not read:
            return f"The whole is artifact {name}."
        on = f'The whole is artifact {name}: {read} {{"id": "{name}", "offset": {offset}}} goes on here'
        return f'{on}; as an argument: {{"$artifact": ID}}.'

    def _store_file(self, spooled: SpooledResult, owner: str, plan: _Plan) -> _StoredOutput:
        try:
            with Path(spooled.path).open("rb") as source:
                return _StoredOutput(
                    artifact=self._artifacts.put_stream(
                        lambda target: self._redactor.of(owner).stream(source, target),
                        owner,
                        spooled.mime_type,
                        source=plan.way.source,
                        trust=plan.way.trust,
                    )
                )
        except ToolFailure as failure:
            return _StoredOutput(problem=failure.message)
        except OSError as error:
            return _StoredOutput(problem=f"the output could not be read again: {error.strerror or error}")

    def _store(self, data: bytes, owner: str, mime_type: str, plan: _Plan) -> _StoredOutput:
        way = plan.way
        try:
            return _StoredOutput(
                artifact=self._artifacts.put(data, owner, mime_type, source=way.source, trust=way.trust)
            )
        except ToolFailure as failure:
            return _StoredOutput(problem=failure.message)


def _plan(result: ToolResult, way: LimitOptions, ceiling: int) -> _Plan:
    """Return the limits of a result, by its style, its hint and its kind.

    An excepted kind of result (`spare`, `skip`) keeps the ceiling of the session alone.
    """
    fit = way.fit
    plan = _Plan(way=way, ceiling=ceiling, room=TextBudget(size=ceiling, head=fit.head, note=fit.note))
    spared = ("errors" in fit.spare and result.is_error) or ("lists" in fit.spare and is_list(result))
    if spared or (fit.hints and way.hint == "skip"):
        return replace(plan, spared=True)
    characters = fit.force if fit.hints and way.hint == "force" else fit.characters
    if characters is not None:
        size = min(characters, ceiling // _MAX_CHARACTER_BYTES)
        return replace(plan, room=replace(plan.room, size=size, unit="characters"))
    if fit.tokens is not None:
        size = max(_MIN_SHOWN_BYTES, min(fit.tokens * _BYTES_PER_TOKEN, ceiling))
        return replace(plan, room=replace(plan.room, size=size))
    return plan


def _cut_meta(cut: Cut, kept: _StoredOutput, plan: _Plan) -> dict[str, Any]:
    """Metadata about a cut, for the caller."""
    meta_of_cut: dict[str, Any] = {"artifact": kept.artifact.id} if kept.artifact else {}
    if plan.way.fit.marker == "compressed":
        meta_of_cut["compression"] = {
            "ref_id": kept.artifact.id if kept.artifact else "",
            "original_length": cut.size,
            "shown_length": cut.shown,
            "hint": plan.way.hint or "normal",
        }
    return meta_of_cut


def _compressed_mark(kept: _StoredOutput) -> str:
    return f"[COMPRESSED:{kept.artifact.id}] " if kept.artifact else ""


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


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
        return len(block.get("data") or "")
    return len(block.get("resource", {}).get("blob") or "") if kind == "resource" else 0


def _join_texts(content: tuple[Mapping[str, Any], ...]) -> str:
    return "\n".join([text for block in content if (text := _text_of(block)) is not None])


def _is_json_of(text: str, value: Any, written: bytes) -> bool:
    """Whether `text` is `value` in JSON (`written` compactly), as tools repeat it for clients that read text only."""
    try:
        return text.encode() == written or bool(read_json(text, limit=len(text)) == value)
    except ValueError:  # a lone surrogate, too
        return False


def _mime_type(text: str) -> str:
    """`application/json` for text that parses, at a size at which that is cheap."""
    if text[:1] in ("{", "[") and len(text) <= _MAX_MEDIA_BYTES:
        try:
            read_json(text)
        except ValueError:
            return "text/plain"
        return "application/json"
    return "text/plain"


def _with_text(content: tuple[Mapping[str, Any], ...], text: str, kept: _StoredOutput) -> tuple[Mapping[str, Any], ...]:
    """`content` with one text in the place of all its texts; a resource that lost its text becomes a link."""
    shown: list[Mapping[str, Any]] = []
    pending: list[Mapping[str, Any]] = [{"type": "text", "text": text}, *_link_blocks(kept)]
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


def _link_blocks(kept: _StoredOutput) -> tuple[Mapping[str, Any], ...]:
    """The MCP block that refers to the whole output."""
    return () if kept.artifact is None else (kept.artifact.link("the whole output"),)


def _is_short(error: ToolError | None) -> bool:
    if error is None:
        return True
    if len(error.message) > _MAX_STATUS_BYTES or len(error.hint) > _MAX_STATUS_BYTES:
        return False
    return not error.details or len(dumps(error.details)) <= _MAX_DETAIL_BYTES


def _short_error(error: ToolError) -> ToolError:
    if _is_short(error):
        return error
    short = replace(error, message=_shorten_status(error.message), hint=_shorten_status(error.hint))
    return short if len(dumps(error.details)) <= _MAX_DETAIL_BYTES else replace(short, details={})


def _shorten_status(text: str) -> str:
    return text if len(text) <= _MAX_STATUS_BYTES else f"{text[:_MAX_STATUS_BYTES]} … ({len(text)} characters)"
