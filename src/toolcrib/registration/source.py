"""The tools that were registered for one instance: each with its runner, added and removed one by one.

`registrations` reads the definitions, and decides who may register.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ..core.context import Context
from ..core.events import SourceState
from ..core.result import ToolResult
from ..core.schema import Validator, compile_schema
from ..core.tool import Tool
from ..errors import ToolFailure
from ..results.redact import Redactor
from ..sources.source import Listing, Publish
from ..system.child_processes import shared_reaper

__all__ = ["Closing", "Registered", "RestSource", "Run"]

Run = Callable[[Tool, Mapping[str, Any], Context], Awaitable[ToolResult]]
"""Runs a tool with valid arguments. Raises `ToolFailure`."""


class Closing(Protocol):
    """An object that holds connections."""

    async def aclose(self) -> None:
        """Close them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """One tool with what runs it."""

    tool: Tool
    run: Run
    secrets: tuple[str, ...] = ()
    """Secret values that it sends; masked in every answer."""
    closing: Closing | None = None
    """Object to close with the source: a removed tool may still have running calls."""


class _Entry:
    __slots__ = ("output", "redactor", "registered")

    def __init__(self, registered: Registered) -> None:
        promised = registered.tool.output_schema
        self.registered = registered
        self.output: Validator | None = None if promised is None else compile_schema(promised)
        self.redactor = Redactor(registered.secrets) if registered.secrets else None


class RestSource:
    """The registered tools of one instance. Opened with the first, closed with the last or with the crib."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._publish: Publish | None = None
        self._entries: dict[str, _Entry] = {}
        self._closing: list[Closing] = []

    @property
    def name(self) -> str:
        """Name in rules and records."""
        return self._name

    @property
    def state(self) -> SourceState:
        """`ready` while it is open: nothing is connected before a call."""
        state: Literal["ready", "closed"] = "closed" if self._publish is None else "ready"
        return SourceState(source=self._name, kind="rest", state=state, tools=len(self._entries))

    async def open(self, publish: Publish) -> None:
        """Publish the listing, now and at every change."""
        self._publish = publish
        shared_reaper().hold()
        self._tell()

    async def ready(self) -> None:
        """Return at once."""

    def put(self, registered: Registered) -> None:
        """Offer a tool, in the place of an earlier one of its name. Raises `ValueError` for a broken output schema."""
        self._entries[registered.tool.local_name] = _Entry(registered)
        if registered.closing is not None:
            self._closing.append(registered.closing)
        self._tell()

    def remove(self, name: str) -> None:
        """Offer a tool no longer; calls that are in it end by themselves."""
        self._entries.pop(name, None)
        self._tell()

    def describe(self, tool: Tool, arguments: Mapping[str, Any]) -> str | None:
        """Return the request of a call, its secrets masked; None if its runner cannot describe it.

        Raises `ToolFailure` for arguments without a valid request.
        """
        entry = self._entries.get(tool.local_name)
        describe = getattr(entry.registered.run, "describe", None) if entry is not None else None
        if entry is None or describe is None:
            return None
        request = str(describe(tool, arguments))
        return request if entry.redactor is None else entry.redactor.text(request)

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run the tool; raises `ToolFailure`. Its secrets are masked in the answer."""
        entry = self._entries.get(tool.local_name)
        if entry is None or self._publish is None:
            raise ToolFailure("not_found", f"{tool.name} is not there any more")
        try:
            result = _checked(tool, await entry.registered.run(tool, arguments, context), entry.output)
        except ToolFailure as failure:
            if entry.redactor is None:
                raise
            return entry.redactor.result(ToolResult.of_failure(failure))
        return result if entry.redactor is None else await entry.redactor.clean(result)

    async def close(self) -> None:
        """Close every connection. Safe to call twice."""
        if self._publish is None:
            return
        self._publish = None
        while self._closing:
            await self._closing.pop().aclose()
        shared_reaper().release()

    def _tell(self) -> None:
        if self._publish is not None:
            self._publish(Listing(tools=tuple(entry.registered.tool for entry in self._entries.values())))


def _checked(tool: Tool, result: ToolResult, output: Validator | None) -> ToolResult:
    """Hold a success against the schema that the tool promises."""
    if output is None or result.is_error or result.spooled is not None or result.input_required is not None:
        return result
    if wrong := output.check(result.structured_content):
        raise ToolFailure("tool_error", f"{tool.name} did not return what its output_schema declares: {wrong[0]}")
    return result
