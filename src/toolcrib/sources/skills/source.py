"""Skill folders as a `sources.source.Source`: one tool a skill, which returns its text, and files on demand.

They are MCP resources too (`skill://`, SEP-2640): index, listing and file contents.
"""

from __future__ import annotations

import base64
import logging
import mimetypes
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import anyio
import anyio.to_thread
from msgspec import Struct, field

from ...catalog.skill_groups import SkillGroups
from ...core.context import Context
from ...core.events import Problem, SourceState
from ...core.patterns import regex
from ...core.result import ToolResult
from ...core.server_features import ServerFeatures
from ...core.tool import Tool
from ...errors import ToolFailure
from ...system.file_watch import POLL_SECONDS, Stamp, stamps, watch
from ...system.tasks import Background
from ...workspace.safe_paths import files_beneath, read_beneath
from ..skill_folder import FILE, answer, files_digest
from ..source import Listing, Publish
from .skill_scan import MAX_BYTES, FoundSkill, SkillRoot, SkillScan, Trusted, find_folders, read_skills

_SCHEME: Final = "skill://"
_NAME: Final = regex(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MARKDOWN: Final = "text/markdown"
_TYPES: Final[Mapping[str, str]] = {".md": _MARKDOWN, ".py": "text/x-python", ".sh": "text/x-shellscript"}

_logger = logging.getLogger(__name__)


class SkillResource(Struct, frozen=True, kw_only=True):
    """One file of a skill, as `resources/list` shows it."""

    uri: str
    name: str
    description: str
    mime_type: str
    size: int


def _resources_of(found: Iterable[FoundSkill]) -> tuple[SkillResource, ...]:
    """Return every file of every skill that has an address, each skill's SKILL.md first."""
    resources: list[SkillResource] = []
    for one in found:
        if one.manifest is None or not _NAME.fullmatch(one.skill.name):
            continue
        for name in sorted(one.manifest.files, key=lambda name: (name != one.skill.file, name)):
            is_main = name == one.skill.file
            resources.append(
                SkillResource(
                    uri=_uri(one, name),
                    name=one.skill.name if is_main else f"{one.skill.name}/{name}",
                    description=one.skill.description if is_main else "",
                    mime_type=_type(name),
                    size=one.manifest.files[name].size,
                )
            )
    return tuple(resources)


def entries_of(found: Iterable[FoundSkill]) -> tuple[Mapping[str, Any], ...]:
    """Return the answer to `skills/list`: `{uri, frontmatter, resources: [{uri, digest, size}]}` a skill."""
    return tuple(
        {
            "uri": _uri(one, one.skill.file),
            "frontmatter": one.skill.frontmatter,
            "resources": [
                {"uri": _uri(one, name), "digest": f"sha256:{stamp.sha256}", "size": stamp.size}
                for name, stamp in one.manifest.files.items()
            ],
        }
        for one in found
        if one.manifest is not None and _NAME.fullmatch(one.skill.name)
    )


def read_resource(found: Mapping[str, FoundSkill], uri: str) -> tuple[str, bytes]:
    """Return the media type and the content of `uri`. Raises `KeyError` if it is missing, or changed meanwhile."""
    name, _, path = unquote(uri.removeprefix(_SCHEME)).partition("/")
    one = found.get(name) if uri.startswith(_SCHEME) else None
    if one is None or one.manifest is None:
        raise KeyError(uri)
    path = one.skill.file if path == FILE else path
    if path not in one.manifest.files or uri != _uri(one, path):
        raise KeyError(uri)
    try:
        content = read_beneath(one.skill.folder, path, MAX_BYTES)
    except ValueError:
        raise KeyError(uri) from None
    if not one.manifest.holds(path, content):
        raise KeyError(uri)
    return _type(path), content


def _uri(one: FoundSkill, name: str) -> str:
    """The file of a skill is SKILL.md there, however it is written on disk."""
    return f"{_SCHEME}{one.skill.name}/{FILE if name == one.skill.file else quote(name)}"


def _type(name: str) -> str:
    suffix = name[name.rfind(".") :] if "." in name else ""
    return _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"


def _features_of(resources: Iterable[SkillResource]) -> ServerFeatures:
    """Return the entries that `resources/list` shows."""
    entries = tuple(map(_entry, resources))
    return ServerFeatures(resources=entries, reads=bool(entries))


class SkillFeatures:
    """Reads files of skills. Lives as long as its source."""

    traits: tuple[str, ...] = ("file_reader",)

    def __init__(self, read: Callable[[str], tuple[str, bytes]]) -> None:
        """`read` returns media type and content of a URI; it raises `KeyError` for an unknown one."""
        self._read = read
        self.on_update: Callable[[str], None] = _ignore

    async def read(self, uri: str, context: Context) -> ToolResult:
        """Return the file: its text, or base64 for other content."""
        try:
            mime_type, content = await anyio.to_thread.run_sync(partial(self._read, uri))
        except KeyError:
            raise ToolFailure("not_found", f"unknown resource {uri[:300]!r}, or it changed a moment ago") from None
        resource = {"uri": uri, "mimeType": mime_type, **_body(content)}
        return ToolResult(content=({"type": "resource", "resource": resource},))

    async def prompt(self, name: str, arguments: Mapping[str, str], context: Context) -> ToolResult:
        """Raise `ToolFailure`: skills are not prompts."""
        raise ToolFailure("not_found", f"unknown prompt {name[:200]!r}")

    async def complete(self, params: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
        """Return an empty completion: resources of skills have no arguments."""
        return {"values": []}

    async def watch(self, uri: str) -> None:
        """Do nothing: a skill that changes is listed anew."""

    async def unwatch(self, uri: str) -> None:
        """Do nothing."""


def _ignore(uri: str) -> None:
    """Ignore subscriptions: changes of single files are not announced."""


def _entry(resource: SkillResource) -> dict[str, Any]:
    shown: dict[str, Any] = {"uri": resource.uri, "name": resource.name}
    if resource.description:
        shown["description"] = resource.description
    return {**shown, "mimeType": resource.mime_type, "size": resource.size}


def _body(content: bytes) -> dict[str, str]:
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"blob": base64.b64encode(content).decode()}


class SkillsOptions(Struct, frozen=True, kw_only=True):
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
        self._reading = SkillScan(found={}, problems=(), folders=())
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

    def file_of(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """Return the path of the file of a skill that a call, or the reading of a resource, is about."""
        name, path = tool.local_name, str(arguments.get("reference") or FILE)
        if "uri" in arguments:
            name, _, path = unquote(str(arguments["uri"]).removeprefix(_SCHEME)).partition("/")
        found = self._reading.found.get(name)
        return "" if found is None else str(found.skill.folder / (found.skill.file if path == FILE else path))

    def implementation_of(self, tool: Tool) -> str:
        """Return a hash over the files of a skill as they are now; empty for one that is not there any more."""
        found = self._reading.found.get(tool.local_name)
        return "" if found is None else files_digest(found.skill.folder)

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
        return _resources_of(self._reading.found.values())

    def skill_entries(self) -> tuple[Mapping[str, Any], ...]:
        """Return the answer to `skills/list` of the MCP skills extension."""
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
        except Exception as error:  # a disk that goes away, say; the next scan tries again
            _logger.warning("skills %s cannot be read", self._name, exc_info=error)
        of_groups = [
            Problem(source=self._name, code="bad_config", message=sentence) for sentence in options.groups.problems
        ]
        tools = tuple(found.tool for found in self._reading.found.values())
        problems = (*of_groups, *self._reading.problems)
        listing = Listing(tools=tools, problems=problems, features=_features_of(self.resources()))
        self._ready.set()
        if listing != self._listing:
            self._listing = listing
            for problem in listing.problems:
                _logger.info("skills: %s", problem.message)
            if self._publish is not None:
                self._publish(listing)


def _answer(found: FoundSkill, arguments: Mapping[str, Any]) -> ToolResult:
    """Return the answer; of a project's skill no file that differs from its confirmed state."""
    skill, manifest = found.skill, found.manifest

    def read(relative: str) -> bytes:
        content = skill.read(relative)
        steps = "/".join(step for step in relative.split("/") if step not in ("", "."))
        if manifest is not None and found.root.scope == "project" and not manifest.holds(steps, content):
            raise ToolFailure(
                "unavailable",
                f"{skill.name}: {relative!r} differs from the confirmed state; it changed a moment ago",
                hint="Its user has to look at it and confirm it again.",
            )
        return content

    return answer(skill, arguments, read)
