"""`get_diagnostics`: findings of ruff, pyright and configured language servers; syntax errors of other files.

All run as processes, in the sandbox if there is one. What waits for review is given to language servers, and to ruff
as its input; pyright reads the disk, and is not asked about files that are not there as the session sees them. A
program that is configured as a language server is not run a second time.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, Literal

from anyio import to_thread
from msgspec import Struct
from pydantic import Field
from tree_sitter import Node

from toolcrib.plugin import Context, ToolFailure, Workspace

from .._workspace.file_search import Base, FileFilter, base_at, files_below
from .._workspace.pages import fit_lines, room_of
from .._workspace.place import entry_at, workspace_of, workspace_tool
from ..git.repository import Program, run
from ..lsp.queries import MOST_FILES, Finding, check_files
from ..lsp.server import Server, fleet_of, is_configured, parts
from .analysis import source_of
from .grammars import grammar, language_of
from .index import FILE_BYTES

_RESULTS: Final = 100
_MOST: Final = 1_000
_NOTE: Final = 500
_SECONDS: Final = 300
_MOST_PARSED: Final = 500
"""Files of a folder that are parsed; a note counts the rest."""
_MOST_ASKED: Final = 50
"""Files that wait for review and are given to ruff one by one."""
_BATCH: Final = 50
_NEWS: Final = 300
"""Characters quoted from a failed program's stderr."""
_MESSAGE: Final = 400
_PYTHON: Final = (".py", ".pyi")
_UNSURE: Final = frozenset({"bash", "c", "cpp", "python", "ruby"})
"""Languages in which a grammar calls good code broken: macros and dialects. Python has ruff."""
_ORDER: Final = ("error", "warning", "information")

_Least = Literal["error", "warning", "information"]


class _Target(Struct, frozen=True, kw_only=True):
    """File or folder to check."""

    workspace: Workspace
    base: Base
    path: str
    """A file or folder, as tools name it."""
    files: Sequence[str]
    waiting: dict[str, bytes | None]
    """Files among them, or gone, whose content waits for review."""


@workspace_tool(
    op="x.code.diagnostics",
    category="diagnostics",
    kind="read",
    timeout=_SECONDS,
    tags=["diagnostics", "lint", "errors", "types", "ruff", "pyright", "check"],
    metadata={"result": "lines", "compression_hint": "skip"},
    examples=[{"path": "src/cart.py"}, {"path": "src", "severity": "error"}],
    policy={
        "do": ["Call it after you have changed code, with the file that you have changed."],
        "dont": ["Do not take it for the tests: run_tests runs them."],
        "edge_cases": [
            "The project's own settings of ruff and pyright count.",
            "pyright reads the disk: of changes that wait for review it knows nothing, and the answer says so.",
            "As a language server (lsp_get_diagnostics) it knows them.",
        ],
    },
)
async def get_diagnostics(
    ctx: Context,
    path: str = ".",
    severity: _Least = "information",
    max_results: Annotated[int, Field(ge=1, le=_MOST)] = _RESULTS,
) -> str:
    """Check code: what ruff, pyright and language servers find, and syntax errors, as path:line:column.

    Args:
        path: The file or folder to check; the workspace's root when not given.
        severity: The least that is shown: error, warning, or information for everything.
        max_results: At most so many findings.
    """
    asked = await _find_target(ctx, path)
    notes: list[str] = []
    found: set[Finding] = set()
    used, programs = await _served(ctx, asked, found, notes)
    if any(name.endswith(_PYTHON) for name in asked.files):
        for name, ask in (("ruff", _ruff), ("pyright", _pyright)):
            if name in programs:
                continue
            if shutil.which(name) is None:
                notes.append(f"{name} is not installed")
                continue
            try:
                found.update(await ask(ctx, asked, notes))
                used.append(name)
            except ToolFailure as failure:
                notes.append(f"{name} gave no answer: {failure.message}")
    broken = await _broken(asked, notes, is_python_asked="ruff" in {*used, *programs})
    found.update(broken)
    shown = sorted(one for one in found if _ORDER.index(one.severity) <= _ORDER.index(severity))
    lines = [
        f"{one.path}:{one.line}:{one.column}: {one.severity} [{one.source}] {one.message}"
        for one in shown[:max_results]
    ]
    counts = ", ".join(f"{sum(one.severity == kind for one in found)} {kind}s" for kind in _ORDER)
    notes.insert(0, f"{counts} in {len(asked.files)} files; asked: {', '.join([*used, 'syntax'])}")
    if len(shown) > max_results:
        notes.append(f"the first {max_results} of {len(shown)} are shown")
    hint = "narrow it with path and severity" if lines else ""
    return fit_lines(lines, room_of(ctx.result_bytes, _NOTE), notes, hint=hint)


async def _served(
    ctx: Context, asked: _Target, found: set[Finding], notes: list[str]
) -> tuple[list[str], frozenset[str]]:
    """Ask the language servers; return their names, and which of our programs need not be run any more."""
    if not is_configured(ctx):
        return [], frozenset()
    try:
        fleet = fleet_of(ctx)
    except ToolFailure as failure:
        notes.append(failure.message)
        return [], frozenset()
    notes += fleet.problems
    programs = {server.name: _program(server) for server in fleet.servers}
    is_many = len(asked.files) > MOST_FILES  # then the program itself is the faster one
    wanted = [server for server in fleet.servers if not (is_many and programs[server.name])]
    result = await check_files(ctx, wanted, asked.files)
    notes += result.notes
    found.update(one for one in result.findings if one.severity in _ORDER)
    return result.asked, frozenset(program for name in result.asked if (program := programs[name]))


def _program(server: Server) -> str:
    """Return which of our programs a server is; empty for another one."""
    word = Path(server.spec.command[0]).name
    return next((name for name in ("ruff", "pyright") if word.startswith(name)), "")


async def _find_target(ctx: Context, path: str) -> _Target:
    workspace = workspace_of(ctx)
    entry = await entry_at(workspace, path)
    is_folder = entry.kind == "folder"
    base = await base_at(workspace, path if is_folder else str(PurePosixPath(entry.path).parent))
    files = (await files_below(workspace, base, FileFilter())).paths if is_folder else [entry.path]
    overlay = await workspace.overlay(path)
    return _Target(workspace=workspace, base=base, path=entry.path, files=files, waiting=dict(overlay))


async def _ruff(ctx: Context, asked: _Target, notes: list[str]) -> list[Finding]:
    """Ask ruff about the files on the disk, and about each that waits with its content."""
    common = ("ruff", "check", "--output-format=json", "--no-cache", "--no-fix", "--exit-zero", "--quiet")
    found: list[Finding] = []
    if set(asked.files) - asked.waiting.keys():
        found += _of_ruff(
            await _read_report(ctx, asked, (*common, "--", str(asked.workspace.local(asked.path)))), asked
        )
    there = {name: content for name, content in asked.waiting.items() if content is not None}
    waiting = [name for name in asked.files if name in there and name.endswith(_PYTHON)]
    if len(waiting) > _MOST_ASKED:
        notes.append(f"only {_MOST_ASKED} of {len(waiting)} files that wait for review were given to ruff")
    found = [one for one in found if one.path not in asked.waiting]
    for name in waiting[:_MOST_ASKED]:
        local = str(asked.workspace.local(name))
        answer = await _read_report(ctx, asked, (*common, f"--stdin-filename={local}", "-"), there[name])
        found += _of_ruff(answer, asked)
    return found


def _of_ruff(answer: Any, asked: _Target) -> Iterator[Finding]:
    for one in answer:
        path = _display_path(asked, one["filename"])
        if path is not None:
            source = f"ruff {one.get('code') or 'syntax'}"
            severity = one.get("severity", "error")
            place = one["location"]
            message = str(one["message"])[:_MESSAGE]
            known = severity if severity in _ORDER else "error"
            yield Finding(path, place["row"], place["column"], known, source, message)


async def _pyright(ctx: Context, asked: _Target, notes: list[str]) -> list[Finding]:
    """Ask pyright about the files on the disk."""
    if asked.waiting:
        notes.append("pyright knows nothing of the changes that wait for review")
    if not set(asked.files) - asked.waiting.keys():
        return []
    answer = await _read_report(ctx, asked, ("pyright", "--outputjson", str(asked.workspace.local(asked.path))))
    found: list[Finding] = []
    for one in answer["generalDiagnostics"]:
        path = _display_path(asked, one["file"])
        if path is None or path in asked.waiting:
            continue
        place = one.get("range", {}).get("start", {"line": 0, "character": 0})
        message = " ".join(str(one["message"]).split())[:_MESSAGE]
        source = f"pyright {one['rule']}" if "rule" in one else "pyright"
        known = one["severity"] if one["severity"] in _ORDER else "error"
        found.append(Finding(path, place["line"] + 1, place["character"] + 1, known, source, message))
    return found


async def _read_report(ctx: Context, asked: _Target, argv: Sequence[str], given: bytes = b"") -> Any:
    """Return a program's answer in JSON. Raises `ToolFailure` with its output if that is not JSON."""
    seen = parts(Path(shutil.which(argv[0]) or argv[0]))
    roots = asked.workspace.roots
    program = Program(
        argv=argv,
        cwd=asked.base.root,
        folders=roots,
        readable=tuple(dict.fromkeys((*seen, Path(sys.prefix), Path(sys.base_prefix)))),
        seconds=_SECONDS,
    )
    done = await run(ctx, program, given)
    try:
        return json.loads(done.stdout)
    except (ValueError, RecursionError):
        reason = " ".join(done.message.split())[:_NEWS] or f"exit status {done.status}"
        raise ToolFailure("tool_error", reason) from None


def _display_path(asked: _Target, path: str) -> str | None:
    """Return the path that tools give a file that a program names; None for one that was not asked about."""
    real, root = Path(path), asked.base.root
    if not real.is_relative_to(root):
        return None
    shown = asked.base.display(real.relative_to(root).as_posix())
    return shown if shown in asked.files else None


async def _broken(asked: _Target, notes: list[str], *, is_python_asked: bool) -> list[Finding]:
    """Return the syntax errors of files."""
    names = [name for name in asked.files if _is_parsed(name, is_python_asked=is_python_asked)]
    if len(names) > _MOST_PARSED:
        notes.append(f"syntax was looked at in {_MOST_PARSED} of {len(names)} files")
    found: list[Finding] = []
    for at in range(0, min(len(names), _MOST_PARSED), _BATCH):
        some = names[at : min(at + _BATCH, _MOST_PARSED)]
        contents = await asked.workspace.read_many(some, limit=FILE_BYTES)
        found += await to_thread.run_sync(_parsed, list(zip(some, contents, strict=True)))
    return found


def _is_parsed(name: str, *, is_python_asked: bool) -> bool:
    language = language_of(name)
    return language is not None and (language not in _UNSURE or (language == "python" and not is_python_asked))


def _parsed(batch: Sequence[tuple[str, bytes | ToolFailure]]) -> list[Finding]:
    found: list[Finding] = []
    for path, content in batch:
        language = language_of(path)
        if isinstance(content, ToolFailure) or language is None:
            continue
        try:
            source = source_of(content, path)
        except ToolFailure:
            continue  # it is not text
        node = _first_broken(grammar(language).parser().parse(source).root_node)
        if node is not None:
            row, column = node.start_point
            near = source[node.start_byte : node.start_byte + 40].decode("utf-8", "replace").split("\n")[0]
            message = f"{node.type!r} is missing" if node.is_missing else f"this is no {language}: {near!r}"
            found.append(Finding(path, row + 1, column + 1, "error", "syntax", message))
    return found


def _first_broken(node: Node) -> Node | None:
    """Return the first place where a file is broken; what comes after it often only follows from it."""
    while node.has_error and not (node.is_error or node.is_missing):
        inner = next((child for child in node.children if child.has_error or child.is_missing), None)
        if inner is None:
            return node
        node = inner
    return node if node.is_error or node.is_missing else None
