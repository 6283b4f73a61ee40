"""Tools that change code by language servers: rename, code actions, formatting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final, cast

from msgspec import Struct
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, Workspace

from .._workspace.pages import fit_lines, room_of
from .._workspace.place import file_at, name_of, workspace_of
from .documents import OpenDocument
from .edit_plans import EditPlan, EditReport, apply_plan, plan_edit
from .protocol import CodeAction, Range, WorkspaceEdit, parse_answer
from .queries import Line
from .running_server import RunningServer
from .server import Fleet, Server, fleet_of, lsp_tool
from .symbol_lookup import Spot, SymbolQuery, find_places

_NOTE: Final = 400
_SHOWN: Final = 12
_PATIENCE: Final = 5.0
"""Seconds that a server has to say what is wrong, before it is asked what it offers."""
_MOST: Final = 100
"""Actions at one place."""


class _Area(Struct, frozen=True, kw_only=True):
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


class _OfferedAction(Struct, frozen=True, kw_only=True):
    """A code action and the server that offered it."""

    server: Server
    action: CodeAction
    raw: dict[str, Any]


@lsp_tool(
    op="x.lsp.rename",
    kind="write",
    idempotent=False,
    traits=["file_writer"],
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
    return await apply_plan(ctx, workspace, plan, apply_it=apply)


@lsp_tool(
    op="x.lsp.action.list",
    kind="read",
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


@lsp_tool(
    op="x.lsp.action.apply",
    kind="write",
    idempotent=False,
    traits=["file_writer"],
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
    return await apply_plan(ctx, workspace, plan, apply_it=True)


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
        places = ", ".join(f"{spot.file}:{spot.line + 1}" for spot in spots[:_SHOWN])
        raise ToolFailure(
            "invalid_arguments",
            f"symbol: {symbol!r} is declared in {len(spots)} places: {places}",
            hint="say which one is meant with file_path, or with file_path and line",
        )
    return spots[0]


async def _offered(ctx: Context, fleet: Fleet, area: _Area, kind: str, notes: list[str]) -> Sequence[_OfferedAction]:
    """Return the actions that the servers of a file offer. Raises `ToolFailure` if none of them answers."""
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
    """Return the actions that a server offers, given the problems that it has found there."""
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
        near = get_close_matches(wanted, titles, n=_SHOWN, cutoff=0.3) or titles[:_SHOWN]
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
