"""`lsp_get_diagnostics`: what language servers find wrong with a file."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from toolcrib.plugin import Context, tool

from .._workspace.pages import fitted, room_of
from .._workspace.place import file_at, name_of, workspace_of
from .findings import checked
from .fleet import fleet_of
from .reading import SECONDS
from .shapes import SEVERITIES

__all__ = ["lsp_get_diagnostics"]

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
    result = await checked(ctx, fleet.for_file(name), [name])
    if result.failures and not result.asked:
        raise result.failures[0]
    least = SEVERITIES.index(severity)
    shown = sorted(one for one in result.findings if SEVERITIES.index(one.severity) <= least)
    lines = [f"{one.path}:{one.line}:{one.column}: {one.severity} [{one.source}] {one.message}" for one in shown]
    counts = ", ".join(f"{sum(one.severity == kind for one in result.findings)} {kind}s" for kind in SEVERITIES[:3])
    notes = [f"{counts}; asked: {', '.join(result.asked) or 'nobody'}", *result.notes, *fleet.problems]
    if len(lines) > max_results:
        notes.append(f"the first {max_results} of {len(lines)} are shown")
    hint = "lsp_get_code_actions may mend it" if lines else ""
    return fitted(lines[:max_results], room_of(ctx.result_bytes, _NOTE), notes, hint=hint)
