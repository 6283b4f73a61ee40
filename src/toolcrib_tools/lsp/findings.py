"""What language servers find wrong with files, each server asked about those that are its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from toolcrib.plugin import Context, ToolFailure

from .._workspace.place import workspace_of
from .live import Live
from .server import Server
from .shapes import SEVERITIES, Diagnostic, taken

__all__ = ["MOST_FILES", "Checked", "Finding", "checked"]

MOST_FILES: Final = 50
"""That one server is asked about in one call."""
_MESSAGE: Final = 400


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing that is wrong. Lines and columns count from 1."""

    path: str
    line: int
    column: int
    severity: str
    source: str
    """Who says it: the program and its rule."""
    message: str


@dataclass(slots=True, kw_only=True)
class Checked:
    """What came of asking."""

    findings: set[Finding] = field(default_factory=set[Finding])
    asked: list[str] = field(default_factory=list[str])
    """Servers that gave an answer."""
    notes: list[str] = field(default_factory=list[str])
    failures: list[ToolFailure] = field(default_factory=list[ToolFailure])


async def checked(ctx: Context, servers: Sequence[Server], names: Sequence[str]) -> Checked:
    """Ask servers about those of the files that are their own; one that fails hides nothing of the others."""
    result = Checked()
    for server in servers:
        own = [name for name in names if server.spec.takes(name)]
        if len(own) > MOST_FILES:
            result.notes.append(f"{server.name} was asked about {MOST_FILES} of {len(own)} files")
        if own:
            await _ask(ctx, server, own[:MOST_FILES], result)
    return result


async def _ask(ctx: Context, server: Server, names: Sequence[str], result: Checked) -> None:
    workspace = workspace_of(ctx)
    silent: list[str] = []

    async def ask(live: Live) -> Mapping[str, list[Finding]]:
        silent.clear()
        found: dict[str, list[Finding]] = {}
        opened = dict(zip(names, await live.sync(workspace, *names), strict=True))
        for name, one in opened.items():
            items = await live.findings(one)
            if items is None:
                silent.append(name)
                continue
            given = taken(list[Diagnostic], items, "what it finds")
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
        result.notes.append(
            f"{server.name} said nothing of {', '.join(silent[:3])} in time: that they are right is not known"
        )


def _severity(number: int | None) -> str:
    """Return it as a word; one that is left out is ours to choose (LSP 3.17, Diagnostic)."""
    return SEVERITIES[number - 1] if number is not None and 0 < number <= len(SEVERITIES) else SEVERITIES[0]
