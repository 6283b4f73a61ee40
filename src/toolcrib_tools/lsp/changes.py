"""Code changes computed by language servers: rename, code actions, formatting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import pairwise
from typing import Annotated, Any, Final, TypedDict, cast

from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, Workspace, tool

from .._workspace.file_text import Text, decoded
from .._workspace.pages import fit_lines, room_of
from .._workspace.place import file_at, name_of, workspace_of
from ..files.edits import EDIT_BYTES, Draft
from ..files.text_matches import Span, hunks
from ..files.undo import apply, in_turn
from .documents import Documents, Lines, OpenDocument, display_path
from .protocol_types import ChangedText, CodeAction, FileChange, Range, TextEdit, WorkspaceEdit, parse_answer
from .queries import SECONDS, Line
from .running_server import RunningServer
from .server import Fleet, Server, fleet_of
from .symbol_lookup import Spot, SymbolQuery, find_places

__all__ = [
    "ChangedFile",
    "EditPlan",
    "EditReport",
    "apply_plan",
    "lsp_apply_code_action",
    "lsp_get_code_actions",
    "lsp_rename_symbol",
    "plan_edit",
]

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


@dataclass(slots=True, kw_only=True)
class EditPlan:
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


async def apply_plan(ctx: Context, workspace: Workspace, tool: str, plan: EditPlan, *, apply_it: bool) -> EditReport:
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
        written, answer["undo"] = await apply(ctx, workspace, tool, {name: before[name] for name in changed}, changed)
    answer["applied"], answer["pending"] = True, any(one.pending for one in written)
    return answer


def _in_order(edit: WorkspaceEdit) -> Sequence[ChangedText | FileChange]:
    """Return its changes; `documentChanges` count where there are both (LSP 3.17, WorkspaceEdit)."""
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
    """Return how many lines at the beginning are the same."""
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


_NEEDS: Final = ("language_server", "workspace")
_NOTE: Final = 400
_CHANGING_SHOWN: Final = 12
_PATIENCE: Final = 5.0
"""Seconds that a server has to say what is wrong, before it is asked what it offers."""
_MOST: Final = 100
"""Actions at one place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Area:
    """A part of a file, lines and columns from 1; 0 is the rest of it."""

    file: str
    start_line: int
    start_column: int
    end_line: int
    end_column: int

    def range(self, opened: OpenDocument) -> dict[str, Any]:
        """Return it in the protocol's words. Raises `ToolFailure` for one that is not there."""
        lines, last = opened.lines, self.end_line or self.start_line
        if max(self.start_line, last) > len(lines):
            raise ToolFailure("invalid_arguments", f"start_line, end_line: {self.file!r} has {len(lines)} lines")
        start = lines.start(self.start_line - 1) + max(0, self.start_column - 1)
        stop = lines.start(last - 1) + (self.end_column - 1 if self.end_column else len(lines.line(last - 1)))
        if stop < start:
            raise ToolFailure("invalid_arguments", "the end of the range comes before its start")
        return {"start": lines.position(start), "end": lines.position(stop)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfferedAction:
    """A code action and the server that offered it."""

    server: Server
    action: CodeAction
    raw: dict[str, Any]


@tool(
    op="x.lsp.rename",
    category="code",
    kind="write",
    idempotent=False,
    open_world=False,
    needs=_NEEDS,
    traits=["file_writer"],
    timeout=SECONDS,
    tags=["lsp", "language server", "rename", "refactor"],
    examples=[
        {"symbol": "Cart.total", "new_name": "sum_up"},
        {"symbol": "gross", "new_name": "gross_price", "file_path": "src/price.py", "apply": True},
    ],
    policy={
        "do": ["Call it without apply first, and look at the diff."],
        "dont": [
            "Do not rename with find_and_replace what a language server knows: it changes comments and namesakes."
        ],
        "edge_cases": ["A name that is declared in several places needs file_path, or the line too."],
    },
)
async def lsp_rename_symbol(
    symbol: Annotated[str, Field(min_length=1, max_length=300)],
    new_name: Annotated[str, Field(min_length=1, max_length=200)],
    ctx: Context,
    file_path: str = "",
    line: Line = 0,
    column: Line = 0,
    apply: bool = False,
) -> EditReport:
    """Rename a symbol in every file that uses it, worked out by a language server; all files change, or none.

    Args:
        symbol: Its name now, such as total or Cart.total; the name in that line when a line is given.
        new_name: Its name from then on.
        file_path: The file it is declared or used in; any when not given.
        line: The line in that file, from 1.
        column: The column in that line, from 1, where the name stands there several times.
        apply: Change the files; without it only the planned changes are listed.
    """
    workspace, fleet = workspace_of(ctx), fleet_of(ctx)
    spot = _one(
        await find_places(ctx, fleet, SymbolQuery(symbol=symbol, file=file_path, line=line, column=column)), symbol
    )

    async def ask(live: RunningServer) -> EditPlan | None:
        if not live.can("textDocument/rename"):
            return None
        (opened,) = await live.sync(workspace, spot.file)
        answer = await live.request("textDocument/rename", {**spot.params(opened), "newName": new_name})
        wanted = [] if answer is None else [parse_answer(WorkspaceEdit, answer, "how to rename")]
        return await plan_edit(workspace, live.documents, wanted)

    plan = await _first(ctx, fleet.for_file(spot.file), ask)
    if plan is None:
        raise ToolFailure("tool_error", f"no language server of {spot.file!r} renames")
    if not plan.draft.after:
        raise ToolFailure(
            "tool_error",
            f"the language server renames nothing at {spot.file}:{spot.line + 1}",
            hint="it may be no symbol of this project, or have that name already",
        )
    return await apply_plan(ctx, workspace, "lsp_rename_symbol", plan, apply_it=apply)


@tool(
    op="x.lsp.action.list",
    category="code",
    kind="read",
    open_world=False,
    needs=_NEEDS,
    timeout=SECONDS,
    tags=["lsp", "language server", "quick fix", "refactor", "organize imports"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[
        {"file_path": "src/cart.py", "start_line": 3},
        {"file_path": "src/cart.py", "start_line": 10, "end_line": 14, "kind": "refactor.extract"},
    ],
    policy={"do": ["Give the lines of a finding of lsp_get_diagnostics to see what mends it."]},
)
async def lsp_get_code_actions(
    file_path: str,
    start_line: Annotated[int, Field(ge=1)],
    ctx: Context,
    start_column: Annotated[int, Field(ge=1)] = 1,
    end_line: Line = 0,
    end_column: Line = 0,
    kind: Annotated[str, Field(max_length=100)] = "",
) -> str:
    """List the quick fixes and refactorings that language servers offer for lines of a file, by title.

    Args:
        file_path: The file.
        start_line: The first line, from 1.
        start_column: The first column, from 1.
        end_line: The last line; start_line when not given.
        end_column: The column to stop before; the end of the line when not given.
        kind: Only this kind, such as quickfix, refactor.extract or source.organizeImports.
    """
    area = _Area(
        file=file_path, start_line=start_line, start_column=start_column, end_line=end_line, end_column=end_column
    )
    notes: list[str] = []
    offered = await _offered(ctx, fleet_of(ctx), area, kind, notes)
    if not offered:
        what = f"action of the kind {kind!r}" if kind else "action"
        return f"[{'; '.join([f'no {what} is offered there', *notes])}]"
    lines = [_line(one) for one in offered]
    return fit_lines(
        lines, room_of(ctx.result_bytes, _NOTE), notes, hint="lsp_apply_code_action applies one by its title"
    )


@tool(
    op="x.lsp.action.apply",
    category="code",
    kind="write",
    idempotent=False,
    open_world=False,
    needs=_NEEDS,
    traits=["file_writer"],
    timeout=SECONDS,
    tags=["lsp", "language server", "quick fix", "refactor", "organize imports"],
    examples=[{"file_path": "src/cart.py", "start_line": 3, "action_title": "Ruff (F401): Remove unused import: `os`"}],
    policy={"do": ["Take the title from lsp_get_code_actions, for the same lines."]},
)
async def lsp_apply_code_action(
    file_path: str,
    start_line: Annotated[int, Field(ge=1)],
    action_title: Annotated[str, Field(min_length=1, max_length=500)],
    ctx: Context,
    start_column: Annotated[int, Field(ge=1)] = 1,
    end_line: Line = 0,
    end_column: Line = 0,
) -> EditReport:
    """Apply a quick fix or refactoring that a language server offers for lines of a file; all files change, or none.

    Args:
        file_path: The file.
        start_line: The first line, from 1.
        action_title: Which action, by its title.
        start_column: The first column, from 1.
        end_line: The last line; start_line when not given.
        end_column: The column to stop before; the end of the line when not given.
    """
    workspace = workspace_of(ctx)
    area = _Area(
        file=file_path, start_line=start_line, start_column=start_column, end_line=end_line, end_column=end_column
    )
    notes: list[str] = []
    chosen = _titled(await _offered(ctx, fleet_of(ctx), area, "", notes), action_title)

    async def work(live: RunningServer) -> EditPlan:
        return await plan_edit(workspace, live.documents, await _resolve_edits(live, chosen))

    plan = await chosen.server.ask(ctx, work, again=False)
    if not plan.draft.after:
        raise ToolFailure("tool_error", f"{chosen.server.name} changes no file for {action_title!r}")
    plan.notes += notes
    return await apply_plan(ctx, workspace, "lsp_apply_code_action", plan, apply_it=True)


async def _first(
    ctx: Context, servers: Sequence[Server], ask: Callable[[RunningServer], Awaitable[EditPlan | None]]
) -> EditPlan | None:
    """Return the first plan with a change in it, else an empty one; None where no server makes any.

    Raises `ToolFailure` if one fails and no other makes a change.
    """
    failure: ToolFailure | None = None
    empty: EditPlan | None = None
    for server in servers:
        try:
            plan = await server.ask(ctx, ask)
        except ToolFailure as error:
            failure = failure or error
            continue
        if plan is not None and plan.draft.after:
            return plan
        empty = empty or plan
    if failure is not None:
        raise failure
    return empty


def _one(spots: Sequence[Spot], symbol: str) -> Spot:
    if len(spots) > 1:
        places = ", ".join(f"{spot.file}:{spot.line + 1}" for spot in spots[:_CHANGING_SHOWN])
        raise ToolFailure(
            "invalid_arguments",
            f"symbol: {symbol!r} is declared in {len(spots)} places: {places}",
            hint="say which one is meant with file_path, or with file_path and line",
        )
    return spots[0]


async def _offered(ctx: Context, fleet: Fleet, area: _Area, kind: str, notes: list[str]) -> Sequence[_OfferedAction]:
    """Return what the servers of a file offer. Raises `ToolFailure` where none of them gives an answer."""
    workspace = workspace_of(ctx)
    await file_at(workspace, area.file)
    name = name_of(workspace, area.file)
    found: list[_OfferedAction] = []
    failures: list[ToolFailure] = []
    servers = fleet.for_file(name)
    for server in servers:
        try:
            raws = await server.ask(ctx, lambda live: _actions(live, workspace, name, area, kind))
        except ToolFailure as failure:
            if failure.code == "invalid_arguments":
                raise
            failures.append(failure)
            continue
        actions = [(raw, parse_answer(CodeAction, raw, "what it offers")) for raw in raws[:_MOST]]
        found += [_OfferedAction(server=server, action=action, raw=raw) for raw, action in actions]
    if len(failures) == len(servers):
        raise failures[0]
    notes += [failure.message for failure in failures]
    return found


async def _actions(
    live: RunningServer, workspace: Workspace, name: str, area: _Area, kind: str
) -> list[dict[str, Any]]:
    """Return what a server offers, knowing what it has found wrong there."""
    if not live.can("textDocument/codeAction"):
        return []
    (opened,) = await live.sync(workspace, name)
    where = area.range(opened)
    around = parse_answer(Range, where, "a range")
    wrong = [one for one in await live.findings(opened, patience=_PATIENCE) or () if _touches(one, around)]
    context: dict[str, Any] = {"diagnostics": wrong, "triggerKind": 1, **({"only": [kind]} if kind else {})}
    asked = {"textDocument": {"uri": opened.uri}, "range": where, "context": context}
    answer = await live.request("textDocument/codeAction", asked)
    offered = parse_answer(list[dict[str, Any]], answer or [], "what it offers")
    return [one for one in offered if not kind or _is_kind(one.get("kind"), kind)]


def _is_kind(given: Any, wanted: str) -> bool:
    return isinstance(given, str) and (given == wanted or given.startswith(f"{wanted}."))


def _touches(finding: Any, around: Range) -> bool:
    where = parse_answer(Range, cast("dict[str, Any]", finding).get("range"), "a range")
    first, last = around.start, around.end
    starts_before_end = (where.start.line, where.start.character) <= (last.line, last.character)
    return starts_before_end and (where.end.line, where.end.character) >= (first.line, first.character)


def _line(one: _OfferedAction) -> str:
    parts = [one.action.kind or "command"]
    if one.action.is_preferred:
        parts.append("preferred")
    if one.action.disabled is not None:
        parts.append(f"not now: {one.action.disabled.get('reason', '')}")
    return f"{one.action.title} [{'; '.join([*parts, one.server.name])}]"


def _titled(offered: Sequence[_OfferedAction], title: str) -> _OfferedAction:
    """Return the action of that title. Raises `ToolFailure` naming those that there are."""
    wanted = title.strip()
    found = [one for one in offered if one.action.title.strip() == wanted]
    if not found:
        titles = [one.action.title for one in offered]
        near = get_close_matches(wanted, titles, n=_CHANGING_SHOWN, cutoff=0.3) or titles[:_CHANGING_SHOWN]
        there = "; ".join(near) or "none"
        raise ToolFailure("not_found", f"no action {wanted!r} is offered there", hint=f"those offered: {there}")
    chosen = next((one for one in found if one.action.disabled is None), None)
    if chosen is None:
        reason = (found[0].action.disabled or {}).get("reason", "")
        raise ToolFailure("tool_error", f"{wanted!r} cannot be applied: {reason}")
    return chosen


async def _resolve_edits(live: RunningServer, chosen: _OfferedAction) -> list[WorkspaceEdit]:
    """Return the changes of an action: those it came with or is asked for, else those of its command.

    The command of one with changes is left alone: it is to run after them, and they are not made before all is known.
    """
    raw = chosen.raw
    if "edit" not in raw and not isinstance(raw.get("command"), str) and live.can("codeAction/resolve"):
        raw = await live.request("codeAction/resolve", raw)
    action = parse_answer(CodeAction, raw, "what it offers")
    if action.edit is not None:
        return [action.edit]
    command, arguments = action.command, action.arguments
    if isinstance(command, dict):
        command, arguments = str(command.get("command", "")), command.get("arguments")
    asked = await live.run(command, arguments or ()) if command else []
    return [parse_answer(WorkspaceEdit, edit, "what to change") for edit in asked]
