"""What the world of seed 003 holds: files with their history, pages, terminals, plans, agents, memories, services."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field, fields
from typing import Any

from toolcrib.errors import ToolFailure

__all__ = ["WORLD", "Record", "Table", "World", "found", "place", "reset"]

Record = dict[str, Any]
Table = dict[str, Record]


@dataclass
class World:
    """Everything, in memory."""

    files: dict[str, str] = field(default_factory=dict[str, str])
    backups: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    pages: dict[str, str] = field(default_factory=dict[str, str])
    posted: list[Record] = field(default_factory=list[Record])
    terminals: Table = field(default_factory=dict[str, Record])
    notebooks: Table = field(default_factory=dict[str, Record])
    notebook: str = "main"
    memories: list[Record] = field(default_factory=list[Record])
    templates: dict[str, str] = field(default_factory=dict[str, str])
    plan: Record = field(default_factory=dict[str, Any])
    subscriptions: Table = field(default_factory=dict[str, Record])
    events: list[Record] = field(default_factory=list[Record])
    agents: Table = field(default_factory=dict[str, Record])
    jobs: Table = field(default_factory=dict[str, Record])
    waypoints: Table = field(default_factory=dict[str, Record])
    shared: list[str] = field(default_factory=list[str])
    questions: list[Record] = field(default_factory=list[Record])
    artifacts: Table = field(default_factory=dict[str, Record])
    references: Table = field(default_factory=dict[str, Record])
    prompts: dict[str, str] = field(default_factory=dict[str, str])
    services: Table = field(default_factory=dict[str, Record])
    streams: set[str] = field(default_factory=set[str])
    described: str = ""
    numbers: int = 0

    def number(self, prefix: str) -> str:
        """Return an id that nothing has yet."""
        self.numbers += 1
        return f"{prefix}-{self.numbers}"

    def text(self, path: str) -> str:
        """Return the text of a file; raises `ToolFailure` when there is none."""
        full = place(path)
        if full not in self.files:
            raise ToolFailure("tool_error", f"File not found: {path}")
        return self.files[full]

    def write(self, path: str, text: str | None) -> str:
        """Give a file another text, or none; what it was is kept. Returns its place."""
        full = place(path)
        if full in self.files:
            self.backups.setdefault(full, []).append(self.files.pop(full))
        if text is not None:
            self.files[full] = text
        return full


WORLD = World()


def place(path: str) -> str:
    """Return the place of a path in the tree."""
    return posixpath.normpath(posixpath.join("/", path))


def found(table: Table, key: str, what: str) -> Record:
    """Return the record of that key; raises `ToolFailure` naming what there is."""
    if key not in table:
        raise ToolFailure("tool_error", f"There is no {what} '{key}'; there are: {', '.join(table) or 'none'}")
    return table[key]


def reset() -> None:
    """Begin anew: a small project, two pages, one reference."""
    fresh = World()
    for entry in fields(World):
        setattr(WORLD, entry.name, getattr(fresh, entry.name))
    source = "def greet(name):\n    return 'hello ' + name\n\n\ndef main():\n    print(greet('you'))\n"
    WORLD.files.update({"/src/app.py": source, "/README.md": "# App\nIt greets.\n", "/logo.png": "PNG"})
    WORLD.pages.update(
        {"https://example.org/a": "Tools and how to find them", "https://example.org/b": "Greeting people"}
    )
    WORLD.references["style"] = {"path": "/README.md", "selected": False}
    WORLD.notebooks["main"] = {"variables": {}, "gpu": False}
