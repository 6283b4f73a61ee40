"""What the world of seed 000 holds: projects, tasks, agents, workspaces with files and branches, notes, hooks."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from toolcrib.errors import ToolFailure

__all__ = ["WORLD", "Record", "World", "found", "reset"]

Record = dict[str, Any]
Table = dict[str, Record]


@dataclass
class World:
    """Everything, in memory."""

    projects: Table = field(default_factory=dict[str, Record])
    tasks: Table = field(default_factory=dict[str, Record])
    archive: Table = field(default_factory=dict[str, Record])
    agents: Table = field(default_factory=dict[str, Record])
    profiles: Table = field(default_factory=dict[str, Record])
    workspaces: Table = field(default_factory=dict[str, Record])
    hooks: Table = field(default_factory=dict[str, Record])
    notes: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    about: dict[str, str] = field(default_factory=dict[str, str])
    """Project → its profile."""
    prompts: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    files: dict[str, str] = field(default_factory=dict[str, str])
    """Path below `/workspace` → text."""
    repositories: Table = field(default_factory=dict[str, Record])
    """Project → branches, the current one, and what is not committed."""
    messages: list[Record] = field(default_factory=list[Record])
    events: list[Record] = field(default_factory=list[Record])
    installed: set[str] = field(default_factory=set[str])
    active: str = ""
    """The project that is meant when none is named."""
    paused: bool = False
    numbers: int = 0

    def number(self, prefix: str) -> str:
        """Return an id that nothing has yet."""
        self.numbers += 1
        return f"{prefix}-{self.numbers}"

    def tell(self, kind: str, **facts: Any) -> None:
        """Write an event down."""
        self.events.append({"event": kind, **facts})

    def project(self, project_id: str = "") -> str:
        """Return the project that is meant; raises `ToolFailure` when there is no such one."""
        meant = project_id or self.active
        found(self.projects, meant, "project")
        return meant


WORLD = World()


def found(table: Table, key: str, what: str) -> Record:
    """Return the record of that key; raises `ToolFailure` naming what there is."""
    if key not in table:
        raise ToolFailure("tool_error", f"There is no {what} '{key}'; there are: {', '.join(table) or 'none'}")
    return table[key]


def reset() -> None:
    """Begin anew: one project with a repository, two agents, one profile, one prompt."""
    fresh = World()
    for entry in fields(World):
        setattr(WORLD, entry.name, getattr(fresh, entry.name))
    WORLD.projects["demo"] = {
        "id": "demo",
        "name": "demo",
        "status": "ACTIVE",
        "default_branch": "main",
        "channels": [],
    }
    WORLD.active = "demo"
    WORLD.agents["agent-a"] = {"id": "agent-a", "name": "a", "agent_type": "claude", "status": "IDLE"}
    WORLD.profiles["default"] = {"id": "default", "name": "Default", "needs": ["git"]}
    WORLD.workspaces["ws-1"] = {
        "id": "ws-1",
        "project_id": "demo",
        "source": "clone",
        "locked_by": "",
        "conflict": False,
    }
    WORLD.prompts["demo", "greet"] = "Hello {{name}}, work on {{project}}."
    WORLD.files.update(
        {"/workspace/demo/README.md": "# Demo\nA project.\n", "/workspace/demo/src/app.py": "print('hi')\n"}
    )
    first: Record = {"message": "Begin", "files": {}}
    WORLD.repositories["demo"] = {"branches": {"main": [first]}, "current": "main", "pulls": []}
