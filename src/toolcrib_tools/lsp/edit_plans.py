"""Edits of language servers: checked against the files, planned as a draft, and applied or shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Final, TypedDict

from msgspec import Struct, field
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, Workspace

from .._workspace.file_text import Text, decoded
from ..files.edits import EDIT_BYTES, Draft
from ..files.text_matches import Span, hunks
from ..files.undo import apply, in_turn
from .documents import Documents, Lines, display_path
from .protocol import ChangedText, FileChange, TextEdit, WorkspaceEdit

_MOST_FILES: Final = 500
_MOST_EDITS: Final = 20_000
_TOTAL_BYTES: Final = 100 * 1024 * 1024
_LINES: Final = 20
_SHOWN: Final = 100
_DIFF: Final = 6_000
"""Characters of all diffs in a result."""


class ChangedFile(TypedDict):
    """Change of one file."""

    path: str
    edits: int
    lines: Annotated[list[int], Field(description="The first 20 lines that change, as they were before.")]


class EditReport(TypedDict):
    """Outcome of a change."""

    files: Annotated[list[ChangedFile], Field(description="At most 100 are listed.")]
    created: list[str]
    removed: list[str]
    diff: Annotated[str, Field(description="The first changes.")]
    applied: Annotated[bool, Field(description="False: nothing was changed, this is what would be.")]
    pending: Annotated[bool, Field(description="True: it waits for review.")]
    undo: bool
    notes: list[str]


class EditPlan(Struct, kw_only=True):
    """A change that is ready. Lives as long as one call."""

    draft: Draft
    files: list[ChangedFile] = field(default_factory=list[ChangedFile])
    diffs: list[str] = field(default_factory=list[str])
    room: int = _DIFF
    edits: int = 0
    notes: list[str] = field(default_factory=list[str])


async def plan_edit(workspace: Workspace, documents: Documents, edits: Sequence[WorkspaceEdit]) -> EditPlan:
    """Check a server's workspace edit as a whole and return it as a plan.

    Raises `ToolFailure`, and nothing is changed: `denied` for a file outside of the workspace, `conflict` for a text
    that is another one than the server has seen, `tool_error` for what makes no sense, `too_large`.
    """
    plan = EditPlan(draft=Draft(workspace))
    for edit in edits:
        for change in _in_order(edit):
            if isinstance(change, FileChange):
                await _file(workspace, plan, change)
            else:
                await _text(workspace, documents, plan, change)
            if len(plan.draft.after) > _MOST_FILES or plan.edits > _MOST_EDITS:
                raise ToolFailure(
                    "too_large", f"more would change than one call may: {_MOST_FILES} files, {_MOST_EDITS:,} places"
                )
    if sum(len(content or b"") for content in plan.draft.after.values()) > _TOTAL_BYTES:
        raise ToolFailure("too_large", "more would change than one call may: 100 MiB")
    for name, content in plan.draft.before.items():
        if not await documents.is_seen(workspace, name, content):
            raise _conflict(name)
    return plan


async def apply_plan(ctx: Context, workspace: Workspace, plan: EditPlan, *, apply_it: bool) -> EditReport:
    """Make the change, or only tell what it would be. Raises `ToolFailure("conflict")` for what has changed meanwhile.

    Undone as one.
    """
    before, after = plan.draft.before, plan.draft.after
    changed = {name: content for name, content in after.items() if content != before[name]}
    answer = EditReport(
        files=plan.files[:_SHOWN],
        created=[name for name, content in changed.items() if before[name] is None and content is not None],
        removed=[name for name, content in changed.items() if content is None],
        diff="\n".join(plan.diffs),
        applied=False,
        pending=False,
        undo=False,
        notes=plan.notes,
    )
    if not apply_it or not changed:
        return answer
    async with in_turn(workspace):
        for name, content in before.items():
            there = await workspace.read(name) if await workspace.stat(name) is not None else None
            if there != content:
                raise _conflict(name)
        written, answer["undo"] = await apply(ctx, workspace, {name: before[name] for name in changed}, changed)
    answer["applied"], answer["pending"] = True, any(one.pending for one in written)
    return answer


def _in_order(edit: WorkspaceEdit) -> Sequence[ChangedText | FileChange]:
    """Return its changes; `documentChanges` count if there are both (LSP 3.17, WorkspaceEdit)."""
    if edit.in_order is not None:
        return edit.in_order
    by_file: Mapping[str, list[TextEdit]] = edit.changes or {}
    return [
        ChangedText.model_validate({"textDocument": {"uri": uri}, "edits": edits}) for uri, edits in by_file.items()
    ]


def _name(workspace: Workspace, uri: str) -> str:
    name = display_path(workspace, uri)
    if name is None:
        raise ToolFailure(
            "denied",
            f"the language server wants to change {uri}, which is outside of the workspace; nothing was changed",
        )
    return name


def _conflict(name: str) -> ToolFailure:
    return ToolFailure(
        "conflict", f"{name} was changed while the language server was asked; nothing was changed", hint="call it again"
    )


async def _text(workspace: Workspace, documents: Documents, plan: EditPlan, change: ChangedText) -> None:
    name, opened = _name(workspace, change.document.uri), documents.by_uri(change.document.uri)
    version = change.document.version
    if version is not None and opened is not None and version != opened.version:
        raise _conflict(name)
    content = await plan.draft.read(name, limit=EDIT_BYTES)
    text = decoded(content, path=name)
    spans = _spans(text, change.edits, name)
    if not spans:
        return
    pieces: list[str] = []
    end = 0
    for start, stop, put in spans:
        pieces += [text.raw[end:start], put]
        end = stop
    new = Text(raw="".join([*pieces, text.raw[end:]]), encoding=text.encoding).to_bytes()
    await plan.draft.put(name, new)
    plan.edits += len(spans)
    lines = Lines(text.raw)
    numbers = sorted({lines.position(start)["line"] + 1 for start, _, _ in spans})
    plan.files.append(ChangedFile(path=name, edits=len(spans), lines=numbers[:_LINES]))
    if plan.room > 0:
        diff = f"--- {name}\n+++ {name}\n{hunks(text.plain, _plain(text, spans), plan.room)}"
        plan.diffs.append(diff)
        plan.room -= len(diff)


def _spans(text: Text, edits: Sequence[TextEdit], name: str) -> list[Span]:
    """Return edits as spans of the text as it is in the file, in order. Raises `ToolFailure` where they overlap."""
    lines = Lines(text.raw)
    spans: list[Span] = []
    for edit in edits:
        start = lines.offset(edit.range.start.line, edit.range.start.character)
        stop = lines.offset(edit.range.end.line, edit.range.end.character)
        put = edit.text.replace("\r\n", "\n")
        put = put.replace("\n", "\r\n") if text.newline == "\r\n" else put
        if stop < start:
            raise ToolFailure("tool_error", f"the language server wants a change in {name} that ends before it begins")
        if put != text.raw[start:stop]:
            spans.append(_trimmed(text.raw, (start, stop, put)))
    spans.sort(key=lambda span: (span[0], span[1]))  # stable: what is put at one place stays in its order
    if any(after[0] < before[1] for before, after in pairwise(spans)):
        raise ToolFailure(
            "tool_error", f"the language server wants changes in {name} that overlap; nothing was changed"
        )
    return spans


def _trimmed(raw: str, span: Span) -> Span:
    """Return a span without the lines at its ends that stay as they are: some servers replace whole files."""
    start, stop, put = span
    old, new = raw[start:stop].splitlines(keepends=True), put.splitlines(keepends=True)
    first = _alike(old, new)
    last = _alike(old[first:][::-1], new[first:][::-1])
    start += sum(map(len, old[:first]))
    stop -= sum(map(len, old[len(old) - last :]))
    return start, stop, "".join(new[first : len(new) - last])


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of equal lines at the beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))


def _plain(text: Text, spans: Sequence[Span]) -> list[Span]:
    """Return spans of the text with LF for CRLF."""
    if "\r\n" not in text.raw:
        return list(spans)
    return [
        (start - text.raw.count("\r\n", 0, start), stop - text.raw.count("\r\n", 0, stop), put.replace("\r\n", "\n"))
        for start, stop, put in spans
    ]


async def _file(workspace: Workspace, plan: EditPlan, change: FileChange) -> None:
    """Add a file that is made, renamed or removed."""
    draft, options = plan.draft, change.options
    if change.kind == "create":
        name = _name(workspace, change.uri)
        if await draft.find(name) is None or options.overwrite:
            await draft.put(name, b"")
        elif not options.skips_existing:
            raise ToolFailure("conflict", f"the language server wants to make {name}, which is there already")
    elif change.kind == "rename":
        old, new = _name(workspace, change.old), _name(workspace, change.new)
        if await draft.find(new) is not None and not options.overwrite:
            if options.skips_existing:
                return
            raise ToolFailure("conflict", f"the language server wants to move {old} to {new}, which is there already")
        content = await draft.read(old)
        await draft.put(new, content)
        await draft.put(old, None)
        plan.notes.append(f"{old} moves to {new}")
    elif change.kind == "delete":
        name = _name(workspace, change.uri)
        if await draft.find(name) is not None:
            await draft.put(name, None)
        elif not options.skips_missing:
            raise ToolFailure("conflict", f"the language server wants to remove {name}, which is not there")
    else:
        raise ToolFailure("tool_error", f"the language server wants {change.kind!r}, which is not a change of files")
