"""Mermaid diagrams, shown to the user as fenced source.

No terminal draws Mermaid by itself, and many clients do: what every one of them can show is the source between fences.
So the source is sent as progress while the call runs, and again in its answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Final

from anyio import to_thread
from msgspec import Struct
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure

from ._workspace.file_text import decoded
from ._workspace.place import file_at, workspace_of, workspace_tool

__all__ = ["display_diagram"]

_LANGUAGES: Final = {"mermaid": "mermaid", "dot": "dot", "graphviz": "dot", "plantuml": "plantuml", "puml": "plantuml"}
_FILES: Final = {".mmd": "mermaid", ".mermaid": "mermaid", ".dot": "dot", ".gv": "dot", ".puml": "plantuml"}
"""Files that are one diagram, by their ending."""
_OPENING: Final = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*\{?\.?(\w+)[^`]*")
_NAMED: Final = 20


class _Diagram(Struct, frozen=True, kw_only=True):
    """One diagram of a file."""

    language: str
    source: str
    line: int
    """First line of its source, from 1."""


@workspace_tool(
    op="x.diagram.display",
    category="files",
    kind="read",
    tags=["mermaid", "graphviz", "chart", "show", "markdown"],
    examples=[{"path": "docs/architecture.md"}, {"path": "docs/architecture.md", "index": 1}, {"path": "flow.mmd"}],
    policy={"edge_cases": ["An index beyond the last diagram is an error that lists what there is."]},
)
async def display_diagram(path: str, ctx: Context, index: Annotated[int, Field(ge=0)] = 0) -> str:
    """Show the user a diagram of a file: a Mermaid, Graphviz or PlantUML block in Markdown, or a file that is one.

    Args:
        path: The file, such as "docs/architecture.md".
        index: Which of its diagrams, counted from 0.
    """
    workspace = workspace_of(ctx)
    entry = await file_at(workspace, path)
    content = await workspace.read(path)
    found = await to_thread.run_sync(partial(_diagrams, content, entry.path))
    if index >= len(found):
        if not found:
            raise ToolFailure("tool_error", f"{entry.path} has no diagram in a fenced block (```mermaid, ```dot …)")
        listed = "; ".join(f"{number}: {one.language}, line {one.line}" for number, one in enumerate(found[:_NAMED]))
        raise ToolFailure("tool_error", f"{entry.path} has {len(found)} diagrams, none with index {index}", hint=listed)
    diagram = found[index]
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", diagram.source) or [""]))
    block = f"{fence}{diagram.language}\n{diagram.source}\n{fence}"
    await ctx.output(f"{block}\n")
    return f"Diagram {index} of {len(found)} in {entry.path}, from line {diagram.line}:\n\n{block}"


def _diagrams(content: bytes, path: str) -> list[_Diagram]:
    text = decoded(content, "").plain
    if language := _FILES.get(PurePosixPath(path).suffix.lower()):
        return [_Diagram(language=language, source=text.strip("\n"), line=1)] if text.strip() else []
    return list(_fenced(text.splitlines()))


def _fenced(lines: list[str]) -> Iterator[_Diagram]:
    """Yield the fenced blocks of a language of diagrams; one inside a block of another language is none."""
    fence, language, begins = "", "", 0
    for number, line in enumerate(lines):
        if not fence:
            if opened := re.fullmatch(r" {0,3}(`{3,}|~{3,})\s*", line) or _OPENING.fullmatch(line):
                fence = opened[1]
                language = opened[2].lower() if opened.re is _OPENING else ""
                begins = number + 1
        elif re.fullmatch(rf" {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}\s*", line):
            if language in _LANGUAGES and any(map(str.strip, lines[begins:number])):
                source = "\n".join(lines[begins:number])
                yield _Diagram(language=_LANGUAGES[language], source=source, line=begins + 1)
            fence = ""
