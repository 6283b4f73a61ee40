"""YAML catalog files: entries with their lines, options of the reader, and a problem for each bad entry."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from ...catalog.skill_groups import SkillGroups
from ...core.context import Context
from ...core.documents.tree import MAX_BYTES, Node
from ...core.documents.yaml import TooManyValues, parse_yaml
from ...core.events import Problem
from ...core.patterns import regex
from ...core.result import ToolResult
from ...core.similar import nearest
from ...errors import ConfigError
from ...system.file_watch import POLL_SECONDS
from .entry import EntryContext, ToolEntry, read_entry
from .fields import Expand, Fields
from .implementation import Code, Command, Delegate, SkillText
from .run_code import Located, locate

_ENTRIES: Final = "capabilities"
"""The key that the entries stand under; a document that is a list has them at its root."""

_MAX_NODES: Final = 60_000
"""Values in one catalog: some 1,500 entries, parsed in half a second."""

_MAX_CHUNKS: Final = 5_000
"""Parts that a broken document is taken apart into, some 30 µs each."""

_MAX_SHOWN: Final = 100
"""Defects of one document that are reported one by one."""

_ODD: Final = regex("[^\\t\\n\\x20-\\x7e\\x85\\xa0-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""Characters that YAML rejects, and bytes that are not UTF-8."""

_KEY: Final = regex(r"(?:[A-Za-z_][\w.-]*|\"[^\"]+\"|'[^']+')\s*:(?:\s|$)")
_DASH: Final = regex(r"( *)-(?:\s|$)")
_NAMED: Final = regex(r"( *)-\s+name\s*:")

CallTool = Callable[[str, str, Mapping[str, Any], Context], Awaitable[ToolResult]]
"""Calls a tool of a server for the caller, through the pipeline: server, tool, arguments, context."""

_SECTIONS: Final = ("tool_classification", "capability_categories", "skill_groups")
"""Keys at the root beside the entries that mean something to us."""


class Document(Struct, frozen=True, kw_only=True):
    """Content of a catalog: its entries in order, the other keys at its root, and the unreadable parts."""

    entries: tuple[Node, ...] = ()
    sections: dict[str, Node] = field(default_factory=dict[str, Node])
    broken: tuple[str, ...] = ()
    """One sentence a place, each with file and line."""


def read_document(text: str, file: str) -> Document:
    """Parse `text`. Raises `ConfigError` if it is not a catalog at all."""
    try:
        root = parse_yaml(text, file, max_nodes=_MAX_NODES)
    except TooManyValues:
        raise
    except (ConfigError, UnicodeEncodeError) as error:
        found = _taken_apart(text, file)
        if not found.entries and isinstance(error, ConfigError):
            raise
        return found if found.broken else Document(entries=found.entries, sections=found.sections, broken=(str(error),))
    return _whole(root, file)


def _whole(root: Node, file: str) -> Document:
    if root.kind == "sequence":
        return Document(entries=root.items)
    sections = {member.key: member.node for member in root.members}
    entries = sections.pop(_ENTRIES, None)
    if entries is None:
        close = nearest(_ENTRIES, sections, 1)
        hint = f"; rename `{close[0]}`" if close else ""
        raise ConfigError(f"not a catalog: it has no list `{_ENTRIES}`{hint}", file=file)
    if entries.kind == "scalar" and entries.value is None:
        return Document(sections=sections)
    if entries.kind != "sequence":
        raise ConfigError("a list of entries was expected", file=f"{file}:{entries.line}", key=_ENTRIES)
    return Document(entries=entries.items, sections=sections)


class _Chunk(Struct):
    """Lines that belong together: one item of the list, or one section at the root."""

    first: int
    """Its first line, counted from 0."""
    lines: list[str]
    key: str = ""
    """The key of a section; empty for an item."""

    def parse(self, file: str, max_nodes: int) -> Node:
        """Raise `ConfigError` with the line in the file."""
        text = "\n".join((*self.lines, ""))
        if (odd := _ODD.search(text)) is not None:
            line = self.first + text.count("\n", 0, odd.start()) + 1
            is_byte = "\udc80" <= odd[0] <= "\udcff"  # as `surrogateescape` decodes it
            reason = "is not UTF-8 text: save it as UTF-8" if is_byte else "a character that no text has"
            raise ConfigError(reason, file=f"{file}:{line}")
        return parse_yaml(text, file, max_nodes=max_nodes, first_line=self.first + 1)


def _taken_apart(text: str, file: str) -> Document:
    entries: list[Node] = []
    sections: dict[str, Node] = {}
    broken: list[str] = []
    left = _MAX_NODES
    chunks, strays = _split(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    if len(chunks) > _MAX_CHUNKS:
        raise ConfigError(f"has more than {_MAX_CHUNKS} entries", file=file)
    for chunk in chunks:
        try:
            node = chunk.parse(file, left)
            left -= _count(node)
        except TooManyValues:
            raise
        except ConfigError as error:
            what = "this entry" if not chunk.key else f"`{chunk.key}`"
            broken.append(f"{error} ({what}, from line {chunk.first + 1}, is left out)")
            continue
        if chunk.key:
            sections |= {member.key: member.node for member in node.members}
        else:
            entries += node.items
    broken += [f"{file}:{line + 1}: this line belongs to nothing and is left out" for line in strays]
    if len(broken) > _MAX_SHOWN:
        broken[_MAX_SHOWN:] = [f"{file}: {len(broken) - _MAX_SHOWN} more places could not be read"]
    return Document(entries=tuple(entries), sections=sections, broken=tuple(broken))


def _count(node: Node) -> int:
    pending, count = [node], 0
    while pending:
        found = pending.pop()
        count += 1 + len(found.members)
        pending += [*(member.node for member in found.members), *found.items]
    return count


def _split(lines: Sequence[str]) -> tuple[list[_Chunk], list[int]]:
    """Return the chunks in order, and the lines (from 0) that belong to none."""
    chunks: list[_Chunk] = []
    strays: list[int] = []
    column = _column(lines)
    in_list = _DASH.match(next(_content_lines(lines), "")) is not None
    for number, line in enumerate(lines):
        if not line.strip() or line.lstrip().startswith("#") or line.rstrip() in ("---", "..."):
            if chunks:  # kept: a text may have lines that begin with `#`
                chunks[-1].lines.append("" if line.startswith(("---", "...")) else line)
            continue
        dash = _DASH.match(line)
        indent = len(line) - len(line.lstrip(" "))
        if in_list and dash and indent <= column:
            chunks.append(_Chunk(number, [line]))
        elif indent == 0 and _KEY.match(line):
            key = line.partition(":")[0].strip().strip("\"'")
            in_list = key == _ENTRIES
            if not in_list:
                chunks.append(_Chunk(number, [line], key))
        elif not chunks or (in_list and indent <= column and line[indent] != "\t"):
            strays.append(number)
        else:
            chunks[-1].lines.append(line)
    return chunks, strays


def _column(lines: Sequence[str]) -> int:
    """Return the indentation of the entries' dashes: the most frequent of those before a name, else the first."""
    named = Counter(len(match[1]) for match in map(_NAMED.match, lines) if match)
    if named:
        return min(named, key=lambda indent: (-named[indent], indent))
    return next((len(match[1]) for match in map(_DASH.match, lines) if match), 0)


def _content_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines with content."""
    return (line for line in lines if line.strip() and not line.lstrip().startswith("#") and line.rstrip() != "---")


def _literal(text: str) -> str:
    if "${" in text:
        raise ConfigError("variables (${NAME}) have no values here")
    return text


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class YamlOptions:
    """Reading and running options of one catalog. Frozen, and as old as its source."""

    environment: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str], repr=False)
    """Ours; a command gets only the harmless part of it."""
    expand: Callable[[str], str] = _literal
    """Replaces `${VAR}`; raises `ConfigError` for one that is not set."""
    code: tuple[Path, ...] | None = ()
    """Folders, beside the catalog's own, that its modules may come from; None: it may not load code at all."""
    trusted: Callable[[Path, bytes], bool] | None = None
    """Whether the operator has agreed to a file with this `confirmed_content`. A refused one is not read any further.
    None: it needs no confirmation."""
    also_watched: tuple[Path, ...] = ()
    """Files whose change triggers a new reading: the record of trusted catalogs."""
    call_tool: CallTool | None = None
    """None: entries that name an MCP tool are unavailable."""
    poll_seconds: float = POLL_SECONDS
    """Between two looks at the file."""


class CallableEntry(Struct, frozen=True, kw_only=True):
    """One entry that can be called."""

    entry: ToolEntry
    located: Located | None = None
    """File of its module."""


class CatalogListing(Struct, frozen=True, kw_only=True):
    """Result of one reading of a catalog."""

    entries: tuple[CallableEntry, ...]
    problems: tuple[Problem, ...]
    groups: SkillGroups = field(default_factory=SkillGroups)
    """The catalog's `skill_groups`."""


def read_catalog(source: str, path: Path, content: bytes, options: YamlOptions, expand: Expand) -> CatalogListing:
    """Return the tools of `content`, read from `path`. Raises `ConfigError` if it is not a catalog at all."""
    if len(content) > MAX_BYTES:
        raise ConfigError(f"is larger than {MAX_BYTES >> 20} MiB; split it into several catalogs", file=str(path))
    text = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    document = read_document(text, str(path))
    report = _Report(source)
    for sentence in document.broken:
        report.add("bad_tool", sentence)
    reading = _reading(source, path, document, expand, report)
    entries: dict[tuple[str, str], CallableEntry] = {}
    for place, node in enumerate(document.entries):
        try:
            entry = read_entry(node, place, reading)
        except ConfigError as error:
            for one in error.each:
                report.add("bad_tool", str(one), tool=_name(node))
            continue
        if entry is not None:
            _take(entry, entries, path, options, report)
    groups = SkillGroups.of(document.sections["skill_groups"].plain()) if "skill_groups" in document.sections else None
    for sentence in groups.problems if groups else ():
        report.add("bad_config", f"{path}: {sentence}")
    return CatalogListing(
        entries=tuple(entries.values()), problems=tuple(report.problems), groups=groups or SkillGroups()
    )


class _Report:
    def __init__(self, source: str) -> None:
        self._source = source
        self.problems: list[Problem] = []

    def add(self, code: str, message: str, *, tool: str = "", hint: str = "") -> None:
        self.problems.append(Problem(source=self._source, code=code, message=message, tool=tool, hint=hint))


def _reading(source: str, path: Path, document: Document, expand: Expand, report: _Report) -> EntryContext:
    """Apply the sections to the entries; a malformed section affects only itself."""
    serial: frozenset[str] = frozenset()
    categories: tuple[str, ...] = ()
    for key, node in document.sections.items():
        try:
            if key == "tool_classification":
                serial = frozenset(Fields(node, str(path), (key,), expand).texts("serial_only_tools"))
            elif key == "capability_categories":
                categories = tuple(Fields(item, str(path), (key,), expand).text("id") for item in node.items)
        except ConfigError as error:
            report.add("bad_config", str(error))
        if key not in _SECTIONS:
            known = ", ".join(("capabilities", *_SECTIONS))
            report.add("unknown_key", f"{path}:{node.line}: {key}: unknown key, not used; there are {known}")
    return EntryContext(source=source, file=str(path), expand=expand, serial=serial, categories=categories)


def _take(
    entry: ToolEntry,
    entries: dict[tuple[str, str], CallableEntry],
    path: Path,
    options: YamlOptions,
    report: _Report,
) -> None:
    name, where = entry.tool.name, f"{path}:{entry.line}"
    for warning in entry.warnings:
        report.add("unknown_key", warning, tool=name)
    key = (name, entry.tool.version)
    if (first := entries.get(key)) is not None:
        there = f"{name} stands here a second time; the first one, on line {first.entry.line}, counts"
        report.add("duplicate", f"{where}: {there}", tool=name, hint="Rename one of the two, or remove it.")
        return
    try:
        entries[key] = CallableEntry(entry=entry, located=_ready(entry, path, options))
    except (OSError, ValueError) as reason:
        report.add("unavailable", f"{where}: {name} is not offered: {reason}", tool=name)


def _ready(entry: ToolEntry, path: Path, options: YamlOptions) -> Located | None:
    """Return the location of its code, if it is code. Raises `ValueError` with the reason why it cannot be called."""
    how = entry.implementation
    if how is None:
        raise ValueError("it has no implementation (module, command, endpoint, mcp or path)")
    if isinstance(how, Code):
        if options.code is None:
            raise ValueError("this catalog may not load code: `code` is off for it")
        return locate(how, (path.parent, *options.code))
    if isinstance(how, Delegate) and options.call_tool is None:
        raise ValueError("no MCP servers can be called from here")
    if isinstance(how, Command) and how.script:
        _inside(path, how.script)
    if isinstance(how, SkillText):
        _inside(path, how.path)
    return None


def _inside(path: Path, relative: str) -> None:
    there = (path.parent / relative).resolve()
    if not there.is_relative_to(path.parent.resolve()):
        raise ValueError(f"{relative} leads out of the catalog's folder")
    if not there.exists():
        raise ValueError(f"no file {relative} beside the catalog")


def _name(node: Node) -> str:
    member = node.member("name")
    return member.node.text[:128] if member else ""
