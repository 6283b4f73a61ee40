"""Skill folders as a `sources.source.Source`: one tool a skill, which returns its text, and files on demand."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from ...catalog.skill_groups import SkillGroups
from ...core.context import Context
from ...core.events import Problem, SourceState
from ...core.result import ToolResult
from ...core.tool import Tool
from ...errors import ToolFailure
from ...system.file_watch import POLL_SECONDS, Stamp, stamps, watch
from ...system.tasks import Background
from ...workspace.safe_paths import files_beneath
from ..skill_folder import answer
from ..source import Listing, Publish
from .resources import SkillFeatures, SkillResource, entries_of, features_of, read_resource, resources_of
from .skill_roots import SkillRoot, find_folders
from .skill_scan import FoundSkill, Reading, Trusted, read_skills

__all__ = ["SkillsOptions", "SkillsSource"]

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsOptions:
    """Reading options of skills. Frozen, and as old as their source."""

    groups: SkillGroups = field(default_factory=SkillGroups)
    trusted: Trusted = lambda path, content: True
    """Whether the user has agreed to a project's skill: its SKILL.md, and bytes that identify all of its files."""
    also_watched: tuple[Path, ...] = ()
    """Files whose change triggers a new scan: the record of trusted skills."""
    poll_seconds: float = POLL_SECONDS * 2
    """Between two looks at the roots, which cost more than one at a file."""


class SkillsSource:
    """The skills below some roots; of two with one name the one in the earlier root counts."""

    def __init__(self, name: str, roots: tuple[SkillRoot, ...], options: SkillsOptions | None = None) -> None:
        """The roots need not exist yet."""
        self._name = name
        self._roots = roots
        self._options = options or SkillsOptions()
        self._publish: Publish | None = None
        self._background = Background()
        self._ready = anyio.Event()
        self._reading = Reading(found={}, problems=(), folders=())
        self._listing: Listing | None = None
        self._is_open = False
        self.features = SkillFeatures(self.read_resource)
        """The files of its skills as MCP resources."""

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    @property
    def groups(self) -> SkillGroups:
        """The groups that a selection may expand."""
        return self._options.groups

    @property
    def state(self) -> SourceState:
        """Ready, once the roots were looked through."""
        state = "closed" if not self._is_open else "ready" if self._ready.is_set() else "connecting"
        return SourceState(source=self._name, kind="skill", state=state, tools=len(self._reading.found))

    async def open(self, publish: Publish) -> None:
        """Look for skills in the background, and again whenever a file of theirs changes."""
        self._publish = publish
        self._is_open = True
        await self._background.start()
        self._background.spawn(partial(watch, self._look, self._read, every=self._options.poll_seconds))

    async def ready(self) -> None:
        """Return when the roots were looked through."""
        await self._ready.wait()

    def files(self) -> list[str]:
        """Return every file of every skill that is offered, once the roots were looked through."""
        return [
            str(found.skill.folder / name)
            for found in self._reading.found.values()
            for name in (found.manifest.files if found.manifest else ())
        ]

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Return the skill's text with the list of its files, or the file that `reference` names.

        Raises `ToolFailure`; `unavailable` for a file that changed since the skill was read.
        """
        found = self._reading.found.get(tool.local_name)
        if found is None:
            raise ToolFailure("not_found", f"the skill {tool.name} is not there any more")
        return await anyio.to_thread.run_sync(partial(_answer, found, arguments))

    async def close(self) -> None:
        """Stop looking. Safe to call twice."""
        self._is_open = False
        await self._background.stop()
        self._publish = None

    def resources(self) -> tuple[SkillResource, ...]:
        """Return every file of every valid skill as an MCP resource: `skill://name/SKILL.md` and those beside it."""
        return resources_of(self._reading.found.values())

    def skill_entries(self) -> tuple[Mapping[str, Any], ...]:
        """Return what `skills/list` of the MCP skills extension answers with."""
        return entries_of(self._reading.found.values())

    def read_resource(self, uri: str) -> tuple[str, bytes]:
        """Return media type and content. Raises `KeyError` if the file is missing, or changed meanwhile."""
        return read_resource(self._reading.found, uri)

    def _look(self) -> tuple[Stamp, ...]:
        """Return the stamps of every file of every skill. Runs in a thread."""
        folders = [folder for _, folder in find_folders(self._roots, [])]
        files = [folder / name for folder in folders for name in files_beneath(folder)]
        return stamps((*self._options.also_watched, *files))

    async def _read(self) -> None:
        options = self._options
        read = partial(read_skills, self._name, self._roots, options.groups, options.trusted)
        try:
            self._reading = await anyio.to_thread.run_sync(read)
        except Exception as error:  # noqa: BLE001 - a disk that goes away, say; the next scan tries again
            _log.warning("skills %s cannot be read", self._name, exc_info=error)
        of_groups = [
            Problem(source=self._name, code="bad_config", message=sentence) for sentence in options.groups.problems
        ]
        tools = tuple(found.tool for found in self._reading.found.values())
        problems = (*of_groups, *self._reading.problems)
        listing = Listing(tools=tools, problems=problems, features=features_of(self.resources()))
        self._ready.set()
        if listing != self._listing:
            self._listing = listing
            for problem in listing.problems:
                _log.info("skills: %s", problem.message)
            if self._publish is not None:
                self._publish(listing)


def _answer(found: FoundSkill, arguments: Mapping[str, Any]) -> ToolResult:
    reference = str(arguments.get("reference") or "")
    if reference and found.manifest is not None and found.root.scope == "project":
        _check(found, reference)
    return answer(found.skill, arguments)


def _check(found: FoundSkill, reference: str) -> None:
    """Compare a file with its confirmed state; `answer` reports a missing one."""
    manifest = found.manifest
    try:
        content = found.skill.read(reference)
    except ValueError:
        return
    steps = "/".join(step for step in reference.split("/") if step not in ("", "."))
    if manifest is not None and not manifest.holds(steps, content):
        raise ToolFailure(
            "unavailable",
            f"{found.skill.name}: {reference!r} differs from the confirmed state; it changed a moment ago",
            hint="Its user has to look at it and confirm it again.",
        )
