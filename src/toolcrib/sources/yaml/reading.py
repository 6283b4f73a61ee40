"""From the file of a catalog to everything that it offers, and a problem for each thing that it cannot."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...catalog.groups import SkillGroups
from ...core.events import Problem
from ...core.tree import MAX_BYTES, Node
from ...errors import ConfigError
from .document import Document, read_document
from .entry import Entry, Reading, read_entry
from .fields import Expand, Fields
from .implementation import Code, Command, Delegate, SkillText
from .modules import Located, locate
from .options import YamlOptions

__all__ = ["Offer", "Offers", "read_catalog"]

_SECTIONS: Final = ("tool_classification", "capability_categories", "skill_groups")
"""Keys at the root beside the entries that mean something to us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One entry that can be called."""

    entry: Entry
    located: Located | None = None
    """Where its module is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """What one reading of a catalog brought."""

    offers: tuple[Offer, ...]
    problems: tuple[Problem, ...]
    groups: SkillGroups = field(default_factory=SkillGroups)
    """The catalog's `skill_groups`."""


def read_catalog(source: str, path: Path, content: bytes, options: YamlOptions, expand: Expand) -> Offers:
    """Return what `content`, which `path` has, offers. Raises `ConfigError` when it is no catalog at all."""
    if len(content) > MAX_BYTES:
        raise ConfigError(f"is larger than {MAX_BYTES >> 20} MiB; split it into several catalogs", file=str(path))
    text = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    document = read_document(text, str(path))
    report = _Report(source)
    for sentence in document.broken:
        report.add("bad_tool", sentence)
    reading = _reading(source, path, document, expand, report)
    offers: dict[tuple[str, str], Offer] = {}
    for place, node in enumerate(document.entries):
        try:
            entry = read_entry(node, place, reading)
        except ConfigError as error:
            report.add("bad_tool", str(error), tool=_name(node))
            continue
        if entry is not None:
            _take(entry, offers, path, options, report)
    groups = SkillGroups.of(document.sections["skill_groups"].plain()) if "skill_groups" in document.sections else None
    for sentence in groups.problems if groups else ():
        report.add("bad_config", f"{path}: {sentence}")
    return Offers(offers=tuple(offers.values()), problems=tuple(report.problems), groups=groups or SkillGroups())


class _Report:
    def __init__(self, source: str) -> None:
        self._source = source
        self.problems: list[Problem] = []

    def add(self, code: str, message: str, *, tool: str = "", hint: str = "") -> None:
        self.problems.append(Problem(source=self._source, code=code, message=message, tool=tool, hint=hint))


def _reading(source: str, path: Path, document: Document, expand: Expand, report: _Report) -> Reading:
    """Take what the sections say of the entries; a section that is not as expected costs nothing but itself."""
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
    return Reading(source=source, file=str(path), expand=expand, serial=serial, categories=categories)


def _take(
    entry: Entry, offers: dict[tuple[str, str], Offer], path: Path, options: YamlOptions, report: _Report
) -> None:
    name, where = entry.tool.name, f"{path}:{entry.line}"
    for warning in entry.warnings:
        report.add("unknown_key", warning, tool=name)
    key = (name, entry.tool.version)
    if (first := offers.get(key)) is not None:
        there = f"{name} stands here a second time; the first one, on line {first.entry.line}, counts"
        report.add("duplicate", f"{where}: {there}", tool=name, hint="Rename one of the two, or remove it.")
        return
    try:
        offers[key] = Offer(entry=entry, located=_ready(entry, path, options))
    except (OSError, ValueError) as reason:
        report.add("unavailable", f"{where}: {name} is not offered: {reason}", tool=name)


def _ready(entry: Entry, path: Path, options: YamlOptions) -> Located | None:
    """Return where its code is, if it is code. Raises `ValueError` with the reason why it cannot be called."""
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
        raise ValueError(f"there is no file {relative} beside the catalog")


def _name(node: Node) -> str:
    member = node.member("name")
    return member.node.text[:128] if member else ""
