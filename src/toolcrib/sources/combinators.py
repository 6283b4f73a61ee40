"""Combinators of sources: one source with fewer tools, or with other names for them.

    await crib.tools.mount_source(prefixed(filtered(source, ["get_*", "list_*"]), "crm_"))

A rule that denies or asks about a tool by its name in the source holds for the one with the new name. What they return
is a source of the same name; problems, resources, prompts and changes of the list pass through.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, cast

from msgspec.structs import replace

from ..core.context import Context
from ..core.events import Problem, SourceState
from ..core.result import ToolResult
from ..core.similar import did_you_mean
from ..core.tool import Tool
from ..errors import ToolFailure, UsageError
from .source import Listing, Publish, Source

_logger = logging.getLogger(__name__)

_Name = Callable[[str], str]
"""Gives the new name of a tool."""
_Keep = Callable[[Tool], bool]


def filtered(source: Source, keep: _Keep | Iterable[str]) -> Source:
    """Return `source` with the tools for which `keep` is true, or whose names in the source match one of its patterns.

    A tool for which `keep` raises is left out, and reported. Raises `UsageError` for what is neither.
    """
    if callable(keep):
        return DerivedSource(source, keep=keep)
    patterns = () if isinstance(keep, str) else tuple(keep)
    if not patterns or not all(isinstance(cast("Any", pattern), str) for pattern in patterns):
        raise UsageError('filtered: a function of a tool or a list of patterns was expected, such as ["get_*"]')
    return DerivedSource(source, keep=lambda tool: any(fnmatchcase(tool.local_name, pattern) for pattern in patterns))


def prefixed(source: Source, prefix: str) -> Source:
    """Return `source` with `prefix` before the name of each tool. Raises `UsageError` for an empty prefix."""
    if not isinstance(cast("Any", prefix), str) or not prefix.strip():
        raise UsageError("prefixed: a text was expected, such as 'crm_'")
    return DerivedSource(source, name=lambda name: f"{prefix}{name}")


def renamed(source: Source, names: Mapping[str, str]) -> Source:
    """Return `source` with other names for some tools: `{"name in the source": "new name"}`.

    A name that the source does not list is a problem. Raises `UsageError` for a new name that is empty or given twice.
    """
    if not isinstance(cast("Any", names), Mapping):
        raise UsageError("renamed: a mapping of a tool's name to its new name was expected")
    given = dict(names)
    for old, new in given.items():
        if not isinstance(cast("Any", new), str) or not new.strip():
            raise UsageError(f"renamed: {old!r}: a name was expected")
        if list(given.values()).count(new) > 1:
            raise UsageError(f"renamed: {new!r} is the new name of two tools")
    return DerivedSource(source, name=lambda name: given.get(name, name), expected=tuple(given))


def innermost(source: Source) -> Source:
    """Return the source that combinators were applied to, or `source` itself."""
    while isinstance(source, DerivedSource):
        source = source.inner
    return source


class DerivedSource:
    """A source whose tools are those of another one, fewer or under other names. Opened and closed with it.

    A call comes with the tool as it is named here. `inner` gets the same definition under its own name, never a newer
    one: it compares what the caller saw with what it lists now, and refuses a call of a changed definition.
    """

    def __init__(
        self,
        inner: Source,
        *,
        keep: _Keep = lambda tool: True,
        name: _Name = lambda name: name,
        expected: tuple[str, ...] = (),
    ) -> None:
        """`keep` and `name` get the tools and the names of `inner`; of `expected` ones each has to be listed."""
        self.inner = inner
        self._keep = keep
        self._name = name
        self._expected = expected
        self._tools: dict[str, Tool] = {}
        """The tools of `inner` by their names here."""
        self._passed: dict[str, tuple[Tool, Tool]] = {}
        """The last tool that was called under a name, and the same one as `inner` knows it."""
        # Protocols are checked on the instance, so what `inner` lacks must not be here either.
        for optional in ("files", "features", "skill_entries"):
            if hasattr(inner, optional):
                setattr(self, optional, getattr(inner, optional))
        if hasattr(inner, "describe"):
            self.describe = self._describe
        if hasattr(inner, "check"):
            self.check = self._check
        if hasattr(inner, "file_of"):
            self.file_of = self._file_of
        if hasattr(inner, "implementation_of"):
            self.implementation_of = self._implementation_of

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of `inner` beyond the contract of sources, such as its skill groups."""
        if name == "inner" or name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def name(self) -> str:
        """The configured name."""
        return self.inner.name

    @property
    def state(self) -> SourceState:
        """State of `inner`, with the number of tools that are listed here."""
        return replace(self.inner.state, tools=len(self._tools))

    async def open(self, publish: Publish) -> None:
        """Open `inner`; each of its listings is published as it is here."""
        await self.inner.open(lambda listing: publish(self._listing(listing)))

    async def ready(self) -> None:
        """Return when `inner` is ready."""
        await self.inner.ready()

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run `tool` at `inner`; raises `ToolFailure("not_found")` for one that is not listed here any more."""
        return await self.inner.call(self._of_inner(tool), arguments, context)

    async def close(self) -> None:
        """Close `inner`."""
        await self.inner.close()

    def _describe(self, tool: Tool, arguments: Mapping[str, Any]) -> str | None:
        """Return the request of a call, without sending it."""
        described: str | None = cast("Any", self.inner).describe(self._of_inner(tool), arguments)
        return described

    async def _check(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> None:
        """Raise the failure of a call that would fail after any answer of a person."""
        await cast("Any", self.inner).check(self._of_inner(tool), arguments, context)

    def _file_of(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """Return the file that a call reads; a tool that is not listed stands for the source itself."""
        known = self._of_inner(tool) if tool.local_name in self._tools else tool
        found: str = cast("Any", self.inner).file_of(known, arguments)
        return found

    def _implementation_of(self, tool: Tool) -> str:
        """Return what stands for the implementation of a tool; empty for one that is not listed here any more."""
        if tool.local_name not in self._tools:
            return ""
        found: str = cast("Any", self.inner).implementation_of(self._of_inner(tool))
        return found

    def _of_inner(self, tool: Tool) -> Tool:
        """Return `tool`, in the version that the caller saw, under the name that it has in `inner`."""
        listed = self._tools.get(tool.local_name)
        if listed is None:
            raise ToolFailure("not_found", f"source {self.name!r} offers no tool {tool.local_name!r} any more")
        if listed.local_name == tool.local_name:
            return tool
        passed = self._passed.get(tool.local_name)
        if passed is None or passed[0] is not tool:
            passed = self._passed[tool.local_name] = tool, replace(tool, local_name=listed.local_name)
        return passed[1]

    def _listing(self, listing: Listing) -> Listing:
        """Return the listing of `inner` as it is here. One bad entry is a problem and hides no other."""
        tools: dict[str, Tool] = {}
        problems: list[Problem] = []
        shown: list[Tool] = []
        for tool in listing.tools:
            new = self._name(tool.local_name)
            try:
                if not self._keep(tool):
                    continue
            except Exception as error:  # a filter of a program may fail in any way
                _logger.exception("the filter of source %s failed on %s", self.name, tool.local_name)
                problems.append(self._problem("bad_tool", f"its filter failed: {type(error).__name__}", new))
                continue
            if new in tools:
                message = (
                    f"{tools[new].local_name!r} and {tool.local_name!r} have the same name here: the first is used"
                )
                problems.append(self._problem("duplicate", message, new))
                continue
            tools[new] = tool
            is_same = new == tool.local_name
            original = tool.original_name or tool.local_name
            shown.append(tool if is_same else replace(tool, name=new, local_name=new, original_name=original))
        listed = [tool.local_name for tool in listing.tools] + [problem.tool for problem in listing.problems]
        for old in self._expected:
            if old not in listed and listing.tools:
                message = f"there is no tool {old!r} to rename{did_you_mean(old, listed)}"
                problems.append(self._problem("bad_tool", message, old))
        passed = (replace(one, tool=self._name(one.tool)) if one.tool else one for one in listing.problems)
        self._tools, self._passed = tools, {}
        return replace(listing, tools=tuple(shown), problems=(*passed, *problems))

    def _problem(self, code: str, message: str, tool: str) -> Problem:
        return Problem(source=self.name, code=code, message=message, tool=tool)
