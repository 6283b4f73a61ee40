"""`lsp_get_diagnostics`: diagnostics of language servers for a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, tool

from .._workspace.pages import fit_lines, room_of
from .._workspace.place import file_at, name_of, workspace_of
from .protocol_types import SEVERITIES, Diagnostic, parse_answer
from .running_server import RunningServer
from .server import SECONDS, Server, fleet_of

__all__ = ["MOST_FILES", "CheckResult", "Finding", "check_files", "lsp_get_diagnostics"]

MOST_FILES: Final = 50
"""Files that one server checks in one call."""
_MESSAGE: Final = 400


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing that is wrong. Lines and columns count from 1."""

    path: str
    line: int
    column: int
    severity: str
    source: str
    """Program and rule that report it."""
    message: str


@dataclass(slots=True, kw_only=True)
class CheckResult:
    """Findings, and notes about servers that failed."""

    findings: set[Finding] = field(default_factory=set[Finding])
    asked: list[str] = field(default_factory=list[str])
    """Servers that gave an answer."""
    notes: list[str] = field(default_factory=list[str])
    failures: list[ToolFailure] = field(default_factory=list[ToolFailure])


async def check_files(ctx: Context, servers: Sequence[Server], names: Sequence[str]) -> CheckResult:
    """Ask each server about the files of its languages; a failing server does not hide the others' findings."""
    result = CheckResult()
    for server in servers:
        own = [name for name in names if server.spec.takes(name)]
        if len(own) > MOST_FILES:
            result.notes.append(f"{server.name} was asked about {MOST_FILES} of {len(own)} files")
        if own:
            await _ask(ctx, server, own[:MOST_FILES], result)
    return result


async def _ask(ctx: Context, server: Server, names: Sequence[str], result: CheckResult) -> None:
    workspace = workspace_of(ctx)
    silent: list[str] = []

    async def ask(live: RunningServer) -> Mapping[str, list[Finding]]:
        silent.clear()
        found: dict[str, list[Finding]] = {}
        opened = dict(zip(names, await live.sync(workspace, *names), strict=True))
        for name, one in opened.items():
            items = await live.findings(one)
            if items is None:
                silent.append(name)
                continue
            given = parse_answer(list[Diagnostic], items, "what it finds")
            found[name] = [
                Finding(
                    name,
                    item.range.start.line + 1,
                    one.lines.column(item.range.start.line, item.range.start.character),
                    _severity(item.severity),
                    " ".join(str(word) for word in ((item.source or server.name).lower(), item.code) if word),
                    " ".join(item.message.split())[:_MESSAGE],
                )
                for item in given
            ]
        return found

    try:
        found = await server.ask(ctx, ask)
    except ToolFailure as failure:
        result.failures.append(failure)
        result.notes.append(failure.message)
        return
    result.findings.update(one for several in found.values() for one in several)
    if found:
        result.asked.append(server.name)
    if silent:
        result.notes.append(f"{server.name} did not report on {', '.join(silent[:3])} in time: their state is unknown")


def _severity(number: int | None) -> str:
    """Return it as a word; one that is left out is ours to choose (LSP 3.17, Diagnostic)."""
    return SEVERITIES[number - 1] if number is not None and 0 < number <= len(SEVERITIES) else SEVERITIES[0]


_MOST: Final = 1_000
_NOTE: Final = 500

_Least = Literal["error", "warning", "information", "hint"]


@tool(
    op="x.lsp.diagnostics",
    category="diagnostics",
    kind="read",
    open_world=False,
    needs=["language_server", "workspace"],
    timeout=SECONDS,
    tags=["lsp", "language server", "errors", "types", "check", "lint"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[{"file_path": "src/cart.ts"}, {"file_path": "src/cart.py", "severity": "error"}],
    policy={
        "do": ["Call it after you have changed a file, before you run anything."],
        "dont": ["Do not use it for a folder, or for more linters: get_diagnostics asks all that there are."],
    },
)
async def lsp_get_diagnostics(
    file_path: str,
    ctx: Context,
    severity: _Least = "information",
    max_results: Annotated[int, Field(ge=1, le=_MOST)] = 100,
) -> str:
    """Check one file with its language servers: errors and warnings as path:line:column.

    Args:
        file_path: The file.
        severity: The least that is shown: error, warning, information, or hint for everything.
        max_results: At most so many findings.
    """
    workspace, fleet = workspace_of(ctx), fleet_of(ctx)
    await file_at(workspace, file_path)
    name = name_of(workspace, file_path)
    result = await check_files(ctx, fleet.for_file(name), [name])
    if result.failures and not result.asked:
        raise result.failures[0]
    least = SEVERITIES.index(severity)
    shown = sorted(one for one in result.findings if SEVERITIES.index(one.severity) <= least)
    lines = [f"{one.path}:{one.line}:{one.column}: {one.severity} [{one.source}] {one.message}" for one in shown]
    counts = ", ".join(f"{sum(one.severity == kind for one in result.findings)} {kind}s" for kind in SEVERITIES[:3])
    notes = [f"{counts}; asked: {', '.join(result.asked) or 'no server'}", *result.notes, *fleet.problems]
    if len(lines) > max_results:
        notes.append(f"the first {max_results} of {len(lines)} are shown")
    hint = "lsp_get_code_actions may mend it" if lines else ""
    return fit_lines(lines[:max_results], room_of(ctx.result_bytes, _NOTE), notes, hint=hint)
