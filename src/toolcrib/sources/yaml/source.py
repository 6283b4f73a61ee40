"""One YAML catalog as a source of tools (`sources.source.Source`): read, run, and read again when its file changes.

An unreadable catalog, or one that the operator has not agreed to, leaves the last good listing in place. Running calls
are not disturbed by a change; the runner of an entry is kept as long as the entry is unchanged.

    file changed ─> content, digest ─> confirmed? ─ no ─> problem "untrusted", the listing before stays
                                         │ yes
                    entries read in a thread ─> runners kept or made ─> listing published

A call of code or of a command asks once more whether what it runs is confirmed: those files change without the catalog.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from ...catalog.skill_groups import SkillGroups
from ...core.context import Context
from ...core.documents.tree import MAX_BYTES
from ...core.events import Problem, SourceState
from ...core.result import ToolResult
from ...core.schema import Validator, compile_schema
from ...core.tool import Tool
from ...core.versions import stacked
from ...errors import ConfigError, ToolFailure
from ...results.redaction.redactor import Redactor
from ...system.child_processes import shared_reaper
from ...system.file_watch import stamps, watch
from ...system.tasks import Background, Threads
from ..skill_folder import FILE, answer, read_skill
from ..source import Listing, Publish
from .confirmation import confirmed_content, implementation_digest
from .document import CallableEntry, CallTool, CatalogListing, YamlOptions, read_catalog
from .entry import check_output
from .implementation import Code, Command, Delegate, Endpoint, Implementation, SkillText
from .run_code import CodeRunner, Located
from .run_command import CommandRunner
from .run_endpoint import EndpointRunner

_logger = logging.getLogger(__name__)
_SHORTEST_SECRET: Final = 8
"""Minimum length of a variable's value that is masked; shorter values occur in ordinary text."""

_Run = Callable[[Tool, Mapping[str, Any], Context], Awaitable[ToolResult]]


class _Ready(Struct, frozen=True, kw_only=True):
    """One entry with what runs it."""

    item: CallableEntry
    run: _Run
    output: Validator | None
    """Validator of successful results."""

    def runs(self, item: CallableEntry) -> bool:
        """Whether what runs this entry runs `item` as well."""
        mine, theirs = self.item, item
        same = mine.entry.implementation == theirs.entry.implementation
        return same and _place(mine.located) == _place(theirs.located)


class YamlSource:
    """The tools of one catalog file."""

    def __init__(self, name: str, path: str | Path, options: YamlOptions | None = None) -> None:
        """`path` need not exist yet: the catalog is read as soon as it does."""
        self._name = name
        self._path = Path(path).absolute()
        self._options = options or YamlOptions()
        self._publish: Publish | None = None
        self._background = Background()
        self._ready = anyio.Event()
        self._threads = Threads()
        self._entries: dict[tuple[str, str], _Ready] = {}
        """By name and version."""
        self._retired: list[_Run] = []  # what ran entries that are gone: calls may still be in it
        self._listing: Listing | None = None
        """The newest good one; listings with a problem of the file are not kept."""
        self._digest = b""
        """Of the content that the entries come from; empty before the first one."""
        self._content = b""
        self._trouble: Problem | None = None
        """Reason why the entries are not those of the file as it is now."""
        self._redactor: Redactor | None = None
        self._groups = SkillGroups()
        self._is_open = False

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    @property
    def groups(self) -> SkillGroups:
        """The skill groups that the catalog has."""
        return self._groups

    @property
    def state(self) -> SourceState:
        """`failed` when it never could be read, `stale` when it cannot any more."""
        state: Literal["connecting", "ready", "stale", "failed", "closed"]
        if not self._is_open:
            state = "closed"
        elif not self._ready.is_set():
            state = "connecting"
        elif self._trouble is None:
            state = "ready"
        else:
            state = "stale" if self._digest else "failed"
        detail = self._trouble.message if self._trouble else ""
        return SourceState(source=self._name, kind="yaml", state=state, tools=len(self._entries), detail=detail)

    def target_of(self, tool: Tool) -> tuple[str, str] | None:
        """Return the server and the tool of it that a call of `tool` is passed to; None for other tools."""
        found = self._entries.get(_key(tool))
        how = found.item.entry.implementation if found is not None else None
        return (how.server, how.tool) if isinstance(how, Delegate) else None

    def files(self) -> list[str]:
        """Return the files that decide what runs: the catalog and, once it is read, those that its entries name."""
        named = [self._path]
        for entry in self._entries.values():
            located, implementation = entry.item.located, entry.item.entry.implementation
            if located is not None and located.file is not None and located.root is not None:
                named.append(located.file)
            elif isinstance(implementation, Command) and implementation.script:
                named.append(self._path.parent / implementation.script)
        return [str(path) for path in dict.fromkeys(named)]

    async def open(self, publish: Publish) -> None:
        """Read the catalog in the background, and again whenever its file changes."""
        self._publish = publish
        self._is_open = True
        shared_reaper().hold()
        await self._background.start()
        look = partial(stamps, (self._path, *self._options.also_watched))
        self._background.spawn(partial(watch, look, self._read, every=self._options.poll_seconds))

    async def ready(self) -> None:
        """Return when the catalog was read, or could not be."""
        await self._ready.wait()

    def describe(self, tool: Tool, arguments: Mapping[str, Any]) -> str | None:
        """Return the request or the command of a call, secrets masked; None for an entry without either.

        Raises `ToolFailure` for arguments without a valid one.
        """
        found = self._entries.get(_key(tool))
        if found is None or not isinstance(found.run, CommandRunner | EndpointRunner):
            return None
        description = found.run.describe(tool, arguments)
        return description if self._redactor is None else self._redactor.text(description)

    def file_of(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """Return the path of the file of a skill that a call is about; empty for any other entry."""
        found = self._entries.get(_key(tool))
        how = None if found is None else found.item.entry.implementation
        if not isinstance(how, SkillText):
            return ""
        return str(_skill_folder(self._path.parent / how.path) / str(arguments.get("reference") or FILE))

    def implementation_of(self, tool: Tool) -> str:
        """Return a hash over the entry of a tool and the files that it runs or shows; empty for one that is gone."""
        found = self._entries.get(_key(tool))
        how = None if found is None else found.item.entry.implementation
        return "" if found is None or how is None else implementation_digest(how, found.item.located, self._path.parent)

    async def check(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> None:
        """Raise the `ToolFailure` of a request whose address may not be reached, or that cannot be made."""
        found = self._entries.get(_key(tool))
        if found is not None and isinstance(found.run, EndpointRunner):
            await found.run.check(arguments)

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run the entry; raises `ToolFailure`. Secrets of the catalog are masked in the result."""
        found = self._entries.get(_key(tool))
        if found is None:
            raise ToolFailure("not_found", f"{tool.name} is not there any more")
        is_of_files = isinstance(found.item.entry.implementation, Code | Command | SkillText)
        if is_of_files and not await self._is_confirmed(self._content):
            message = (
                f"{tool.name} is withheld: a file that {self._path.name} runs or shows changed after it was confirmed"
            )
            raise ToolFailure("definition_changed", message, hint=f"The user runs `toolcrib trust {self._path.name}`.")
        redactor = self._redactor
        try:
            result = check_output(tool, await found.run(tool, arguments, context), found.output)
        except ToolFailure as failure:
            if redactor is None:
                raise
            return redactor.result(ToolResult.of_failure(failure))
        return result if redactor is None else await redactor.clean(result)

    async def close(self) -> None:
        """Stop looking at the file, let the threads go, close connections. Safe to call twice."""
        if not self._is_open:
            return
        self._is_open = False
        await self._background.stop()
        self._publish = None
        for run in (*self._retired, *(entry.run for entry in self._entries.values())):
            if isinstance(run, EndpointRunner):
                await run.aclose()
        self._threads.close()
        shared_reaper().release()

    async def _read(self) -> None:
        """Read the file; publish if its content or its problem changed."""
        try:
            await self._read_once()
        except Exception as error:  # any failure of a file: its next version is read
            _logger.warning("catalog %s cannot be read", self._name, exc_info=error)
            self._fail(Problem(source=self._name, code="unreadable", message=f"{self._path}: {error}"))
        self._ready.set()

    async def _read_once(self) -> None:
        secrets: set[str] = set()
        try:
            content = await anyio.to_thread.run_sync(_content, self._path)
            digest = hashlib.sha256(content).digest()
            if not await self._is_confirmed(content):
                self._fail(_untrusted(self._name, self._path))
                return
            if digest == self._digest and self._trouble is None:
                return
            expand = partial(_expanded, self._options.expand, secrets)
            read = partial(read_catalog, self._name, self._path, content, self._options, expand)
            entries = await anyio.to_thread.run_sync(read)
        except ConfigError as error:
            self._fail(Problem(source=self._name, code="unreadable", message=str(error)))
            return
        self._digest, self._content, self._trouble = digest, content, None
        masked = [secret for secret in secrets if len(secret) >= _SHORTEST_SECRET]
        self._redactor = Redactor(masked) if masked else None
        self._take(entries)

    async def _is_confirmed(self, content: bytes) -> bool:
        """Whether the operator has agreed to this content of the catalog, and to the files that it runs."""
        confirmed = self._options.trusted
        if confirmed is None:
            return True
        return await anyio.to_thread.run_sync(lambda: confirmed(self._path, confirmed_content(self._path, content)))

    def _take(self, entries: CatalogListing) -> None:
        before = self._entries
        self._groups = entries.groups
        self._entries = {_key(item.entry.tool): self._prepared(item, before) for item in entries.entries}
        kept = {id(entry.run) for entry in self._entries.values()}
        self._retired += [entry.run for entry in before.values() if id(entry.run) not in kept]
        for problem in entries.problems:
            _logger.warning("catalog %s: %s", self._name, problem.message)
        self._tell(Listing(tools=stacked(map(_tool, entries.entries)), problems=entries.problems))

    def _prepared(self, item: CallableEntry, before: Mapping[tuple[str, str], _Ready]) -> _Ready:
        known = before.get(_key(item.entry.tool))
        run = known.run if known and known.runs(item) else self._runner(item)
        promised = item.entry.tool.output_schema
        return _Ready(item=item, run=run, output=None if promised is None else compile_schema(promised))

    def _runner(self, item: CallableEntry) -> _Run:
        how: Implementation | None = item.entry.implementation
        folder, options = self._path.parent, self._options
        if isinstance(how, Code) and item.located is not None:
            return CodeRunner(how, item.located, self._threads)
        if isinstance(how, Command):
            return CommandRunner(how, folder, options.environment)
        if isinstance(how, Endpoint):
            return EndpointRunner(how)
        if isinstance(how, Delegate) and options.call_tool is not None:
            return partial(_delegate, how, options.call_tool)
        if isinstance(how, SkillText):
            return partial(_show_skill, folder / how.path)
        raise TypeError(f"nothing runs {how!r}")  # `read_catalog` returns only entries with a way to run

    def _fail(self, problem: Problem) -> None:
        """Keep the earlier listing, and report why it is outdated."""
        if self._trouble != problem:
            self._trouble = problem
            _logger.warning("catalog %s: %s", self._name, problem.message)
            before = self._listing or Listing(tools=())
            self._tell(replace(before, problems=(*before.problems, problem)), remember=False)

    def _tell(self, listing: Listing, *, remember: bool = True) -> None:
        if remember:
            self._listing = listing
        if self._publish is not None:
            self._publish(listing)


def _content(path: Path) -> bytes:
    """Raises `ConfigError` when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error


def _expanded(expand: Callable[[str], str], secrets: set[str], text: str, is_secret: bool) -> str:
    """Replace variables, and remember their secret values."""
    value = expand(text)
    if is_secret and value != text:
        secrets.add(value)
    return value


def _untrusted(source: str, path: Path) -> Problem:
    return Problem(
        source=source,
        code="untrusted",
        message=f"{path} is not read: it came with the project, or changed, and you have not confirmed it",
        hint=f"look at it, then run `toolcrib trust {path.name}` in its folder",
    )


def _place(located: Located | None) -> tuple[Path | None, Path | None] | None:
    return (located.file, located.root) if located else None


def _key(tool: Tool) -> tuple[str, str]:
    return (tool.local_name, tool.version)


def _tool(item: CallableEntry) -> Tool:
    tool = item.entry.tool
    return (
        replace(tool, execution=replace(tool.execution, streaming=True))
        if item.located and item.located.streams
        else tool
    )


async def _delegate(
    how: Delegate, call_tool: CallTool, tool: Tool, arguments: Mapping[str, Any], context: Context
) -> ToolResult:
    return await call_tool(how.server, how.tool, arguments, context)


def _skill_folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


async def _show_skill(path: Path, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
    def show() -> ToolResult:
        return answer(read_skill(_skill_folder(path)), arguments)

    try:
        return await anyio.to_thread.run_sync(show)
    except ConfigError as error:
        raise ToolFailure("unavailable", f"the skill cannot be read: {error}") from error
